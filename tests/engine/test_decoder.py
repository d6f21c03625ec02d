"""The decoder against transformers on the same weights, and against itself however a prompt is cut or batched.

float32 on CPUs. Logits agree to 2e-5 of their largest magnitude (sums are taken in another order), and 64 greedy tokens
are equal.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from pkv_engine.model.batch import Batch, Share
from pkv_engine.model.config import DecoderConfig
from pkv_engine.model.linear import Linear
from pkv_engine.model.weights import Weights
from pkv_lint.prompt.errors import InputError

from . import families
from .families import FAMILIES, VOCAB
from .running import engine_on, greedy, run, tokens

LENGTH = 300
TABLE = random.Random(1).sample(range(1, 80), 40)
PROMPT = random.Random(2).choices(range(VOCAB), k=LENGTH)
FOLLOWERS = [random.Random(seed).choices(range(VOCAB), k=40) for seed in range(7)]


def all_logits(family: str, chunks: list[int]) -> torch.Tensor:
    """Logits behind every token of the prompt, computed in chunks of these lengths."""
    device = families.device(family)
    parts, first = [], 0
    for length in chunks:
        share = Share(PROMPT[first : first + length], first, TABLE, True)
        batch = Batch.build([share], 16, device.row_multiple)
        every = replace(batch, sampled_rows=torch.arange(len(batch.token_ids)), num_sampled=length)
        parts.append(device.forward(every))
        first += length
    return torch.cat(parts)


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_equals_transformers(family: str) -> None:
    model = families.reference(family)
    expected = model(torch.tensor([PROMPT])).logits[0]
    for chunks in ([LENGTH], [16, 1, 100, 183]):
        error = (all_logits(family, chunks) - expected).abs().max()
        assert error < 2e-5 * expected.abs().max(), chunks
    generated = model.generate(torch.tensor([PROMPT]), max_new_tokens=64, do_sample=False, pad_token_id=0)
    engine = engine_on(families.device(family))
    assert tokens(run(engine, [greedy("a", PROMPT, 64)])["a"]) == generated[0, LENGTH:].tolist()


@pytest.mark.parametrize("family", ["llama3", "qwen3"])
def test_cached_prefix_and_batch_change_nothing(family: str) -> None:
    device = families.device(family)
    prompts = [PROMPT[:150] + tail for tail in FOLLOWERS]
    alone = []
    for number, prompt in enumerate(prompts):
        engine = engine_on(device, enable_prefix_caching=False)
        alone.append(tokens(run(engine, [greedy(str(number), prompt, 24)])[str(number)]))
    engine = engine_on(device, max_num_batched_tokens=64)
    requests = [greedy(str(number), prompt, 24) for number, prompt in enumerate(prompts)]
    first, *rest = (run(engine, requests[:1]), run(engine, requests[1:]))
    together = first | rest[0]
    if not device.batch_invariant:
        pytest.skip("on this machine products depend on the number of rows")
    assert [tokens(together[str(number)]) for number in range(len(prompts))] == alone
    assert {deltas[0].num_cached_tokens for deltas in rest[0].values()} == {144}


@torch.inference_mode()
def test_logits_do_not_depend_on_chunks() -> None:
    if not families.device("qwen2").batch_invariant:
        pytest.skip("on this machine products depend on the number of rows")
    whole = all_logits("qwen2", [LENGTH])
    for chunks in ([1, 299], [255, 45], [16] * 18 + [12], [*[1] * 20, 37, 2, 241]):
        assert torch.equal(all_logits("qwen2", chunks), whole), chunks


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "the architecture GPT2LMHeadModel is not supported"),
        ({"architectures": None}, "the architecture none stated is not supported"),
        ({"quantization_config": {"quant_method": "fp8"}}, "weights quantised with fp8"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "rotary scaling of the kind longrope"),
        ({"hidden_act": "gelu"}, "the activation gelu"),
        ({"partial_rotary_factor": 0.5, "rope_parameters": {}}, "a share of 0.5"),
        ({"hidden_size": None}, "has no hidden_size"),
        ({"architectures": 5}, "the architecture 5"),
        ({"quantization_config": "fp8"}, "quantization_config cannot be used"),
        ({"rope_parameters": [1]}, "rope_parameters cannot be used"),
        ({"rope_parameters": {"rope_theta": "x"}}, r"rope_parameters\.rope_theta cannot be used"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 0}}, r"rope_parameters\.factor cannot be used"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps cannot be used"),
        ({"num_hidden_layers": 0}, "num_hidden_layers cannot be used"),
        ({"max_position_embeddings": 10**12}, "max_position_embeddings cannot be used"),
        ({"num_attention_heads": 3}, "3 query heads cannot share 2 KV heads"),
        ({"head_dim": 15}, "heads of 15 values"),
    ],
)
def test_other_models_are_refused_by_name(changes: dict[str, object], message: str) -> None:
    config = families.reference("llama3").config.to_dict() | {"architectures": ["LlamaForCausalLM"]} | changes
    with pytest.raises(InputError, match=message) as error:
        DecoderConfig.from_json(config, "config.json")
    assert str(error.value).startswith("config.json: ")


def test_missing_and_misshapen_weights_are_named() -> None:
    weights = families.weights("llama3")
    with pytest.raises(InputError, match=r"llama3: the weight model\.lost is missing"):
        weights.get("model.lost", 1)
    with pytest.raises(InputError, match=r"has the shape \[64\], not \[65\]"):
        weights.get("model.norm.weight", 65)


def test_a_weight_that_cannot_be_read_is_named() -> None:
    def torn(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        raise ValueError("not enough data")

    with pytest.raises(InputError, match=r"file: the weight model\.norm cannot be read: not enough data"):
        Weights(torn, "file", torch.float32, torch.device("cpu")).get("model.norm", 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype_has_products_on_every_processor(dtype: torch.dtype) -> None:
    weight, x = torch.randn(24, 16).to(dtype), torch.randn(5, 16).to(dtype)
    torch.testing.assert_close(Linear(weight)(x), (x.float() @ weight.float().T).to(dtype), rtol=0.02, atol=0.02)


def test_a_sliding_window_limits_the_context() -> None:
    config = families.reference("mistral").config.to_dict() | {"architectures": ["MistralForCausalLM"]}
    assert DecoderConfig.from_json(config | {"sliding_window": 100}, "").max_model_len == 100
    assert DecoderConfig.from_json(config, "").max_model_len == 1024
