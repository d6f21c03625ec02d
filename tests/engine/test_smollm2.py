"""SmolLM2-135M with real text, where PKV_SMOLLM2 names its GGUF file, against transformers on the same weights.

float32, 64 greedy tokens.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from pkv_engine.loading import LoadedModel, load
from pkv_engine.model.gguf_file import GGUFFile
from pkv_engine.options import EngineOptions

from .running import greedy, run, text, tokens

pytestmark = pytest.mark.slow
QUESTIONS = ("What is the capital of France?", "Tell a story of a fox and a hedgehog.", "Why is the sky blue?")
SYSTEM = Path(__file__).read_text(encoding="utf-8")
"""Any text of some length will do."""


@pytest.fixture(scope="module")
def file() -> Path:
    if "PKV_SMOLLM2" not in os.environ:
        pytest.skip("PKV_SMOLLM2 names no GGUF file of SmolLM2-135M")
    return Path(os.environ["PKV_SMOLLM2"])


@pytest.fixture(scope="module")
def loaded(file: Path) -> LoadedModel:
    return load(EngineOptions(model=str(file), check_kv=True, num_gpu_blocks=400))


@pytest.fixture(scope="module")
def reference(file: Path) -> Any:
    """transformers' Llama with the weights of the file (its own reader of GGUF needs a further package)."""
    import transformers

    model_file = GGUFFile(file)
    weights = model_file.weights()
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**model_file.config())).eval()
    state = {name: weights(name, tuple(tensor.shape)) for name, tensor in model.state_dict().items()}
    model.load_state_dict({name: tensor for name, tensor in state.items() if tensor is not None}, strict=False)
    model.tie_weights()
    return model


def prompts(loaded: LoadedModel) -> list[list[int]]:
    bodies = [
        {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]}
        for question in QUESTIONS
    ]
    return [list(loaded.renderer.render(body).token_ids) for body in bodies]


def test_the_vocabulary_is_that_of_transformers(file: Path, loaded: LoadedModel) -> None:
    import transformers

    theirs = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    for sample in (SYSTEM, "1234 naïve  été\r\n\n\t日本語 🦔 don't I'LL", "<|im_start|>user\nhi<|im_end|>"):
        ours = loaded.tokenizer.encode(sample).tolist()
        assert ours == theirs(sample, add_special_tokens=False).input_ids
        assert loaded.tokenizer.decode(ours) == sample


def test_tokens_are_those_of_transformers_cached_or_not(loaded: LoadedModel, reference: Any) -> None:
    requests = [greedy(str(number), prompt, 64) for number, prompt in enumerate(prompts(loaded))]
    together = run(loaded.engine, requests)
    again = run(loaded.engine, requests)
    loaded.engine.reset_prefix_cache()
    for request in requests:
        prompt = torch.tensor([list(request.prompt_token_ids)])
        with torch.inference_mode():
            expected = reference.generate(prompt, max_new_tokens=64, do_sample=False, eos_token_id=None, pad_token_id=0)
        assert tokens(together[request.request_id]) == expected[0, prompt.shape[1] :].tolist()
        if loaded.batch_invariant:
            assert tokens(again[request.request_id]) == tokens(together[request.request_id])
        assert again[request.request_id][0].num_cached_tokens == (prompt.shape[1] - 1) // 16 * 16
    assert "Paris" in text(together["0"])
