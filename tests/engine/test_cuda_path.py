"""The CUDA path as far as it goes without a GPU: the Triton kernels run in their interpreter, on CPU tensors, and what
a CUDA graph would record is computed anew at each replay. Padding, buffers and order are the real ones."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from pkv_engine.generation import GenerationRequest, SamplingParams
from pkv_engine.model.batch import Batch
from pkv_engine.model.cuda import CudaDevice

from . import families
from .running import engine_on, greedy, run, tokens

NUM_BLOCKS = 20


class Uncaptured(CudaDevice):
    """Computes again what a graph would replay, into the same memory, from the same inputs."""

    def _capture(self, batch: Batch) -> Any:
        logits = torch.empty(len(batch.num_new), self.vocab_size)
        return SimpleNamespace(replay=lambda: logits.copy_(self._compute(batch))), logits


@torch.inference_mode()
def test_tokens_are_those_of_transformers() -> None:
    decoder = Uncaptured.load_decoder(families.config("qwen3"), families.weights("qwen3"), 64)
    device = Uncaptured(decoder, NUM_BLOCKS, 16, max_num_seqs=5)
    # Slots that nobody wrote must not matter, least of all those of the null block.
    for layer in device._cache.layers:
        layer.keys.fill_(float("nan"))
        layer.values.fill_(float("nan"))
    source = random.Random(0)
    shared = source.choices(range(families.VOCAB), k=17)
    prompts = [[*shared, *source.choices(range(families.VOCAB), k=length)] for length in (3, 1, 9)]
    engine = engine_on(device, num_blocks=NUM_BLOCKS, max_model_len=64, max_num_batched_tokens=32)
    found = run(engine, [greedy(str(number), prompt, 3) for number, prompt in enumerate(prompts)])
    assert [found[str(number)][0].num_cached_tokens for number in range(3)] == [0, 16, 16]
    for number, prompt in enumerate(prompts):
        expected = families.reference("qwen3").generate(
            torch.tensor([prompt]), max_new_tokens=3, do_sample=False, pad_token_id=0
        )
        assert tokens(found[str(number)]) == expected[0, len(prompt) :].tolist()
    assert sorted(device._graphs) == [4]
    params = SamplingParams(seed=3, max_tokens=2)
    again = [GenerationRequest(request_id=name, prompt_token_ids=shared, params=params) for name in "ab"]
    drawn = run(engine, again)
    assert tokens(drawn["a"]) == tokens(drawn["b"])
