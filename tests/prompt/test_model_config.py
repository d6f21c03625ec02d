"""What config.json says."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.model_config import ModelConfig

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
}
SLIDING, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"
NOTHING_SAID = Deployment()


def groups(raw: dict[str, Any], deployment: Deployment = NOTHING_SAID) -> list[tuple[str, int | None, int, int | None]]:
    found = ModelConfig.from_json(raw).cache_groups(deployment)
    return [(group.layer.kind, group.layer.window, group.num_layers, group.block_size) for group in found]


def test_a_plain_model() -> None:
    config = ModelConfig.from_json(LLAMA)
    assert (config.model_type, config.architectures, config.dtype) == ("llama", ("LlamaForCausalLM",), "bfloat16")
    assert config.max_model_len == 131072
    assert config.layers[0].width == 8 * 128 and config.layers[0].kv_heads == 8
    assert groups(LLAMA) == [("full", None, 32, 16)]
    assert config.hit_unit(NOTHING_SAID) == 16
    assert config.unmodelled(NOTHING_SAID) == ()


@pytest.mark.parametrize(
    ("raw", "heads", "width"),
    [
        ({"num_attention_heads": 32, "hidden_size": 4096}, 32, 4096),
        ({"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}, 8, 1024),
        ({"model_type": "falcon", "n_head": 71, "hidden_size": 4544, "multi_query": True}, 1, 64),
        ({"model_type": "falcon", "n_head": 71, "num_kv_heads": 71, "hidden_size": 4544, "multi_query": True}, 1, 64),
        (
            {
                "model_type": "falcon",
                "n_head": 128,
                "n_head_kv": 8,
                "hidden_size": 8192,
                "multi_query": True,
                "new_decoder_architecture": True,
            },
            8,
            512,
        ),
        # One latent vector for all heads, and what keeps more than that or otherwise.
        ({"model_type": "deepseek_v3", "kv_lora_rank": 512, "qk_rope_head_dim": 64}, 0, 576),
        ({"model_type": "deepseek_v32", "kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_attention_heads": 8}, 0, 0),
        ({"model_type": "minicpm3", "kv_lora_rank": 256, "num_attention_heads": 8, "hidden_size": 64}, 0, 0),
        # Numbers that stand elsewhere, differ between layers or between keys and values.
        ({"model_type": "dbrx", "n_head": 8, "hidden_size": 64, "attn_config": {"kv_n_heads": 2}}, 0, 0),
        ({"num_attention_heads": 8, "hidden_size": 64, "num_key_value_heads": [1, 2]}, 0, 0),
        ({"num_attention_heads": 8, "head_dim": 192, "v_head_dim": 128}, 0, 0),
        ({"num_attention_heads": 8, "hidden_size": 64, "kv_channels": 16}, 0, 0),
        ({"num_attention_heads": 8}, 0, 0),
    ],
)
def test_heads(raw: dict[str, Any], heads: int, width: int) -> None:
    (layer,) = ModelConfig.from_json({"num_hidden_layers": 1, **raw}).layers
    assert (layer.kv_heads, layer.width) == (heads, width)


def test_the_deployment_states_the_block_size() -> None:
    stated = Deployment.from_vllm_args("vllm serve m --block-size 32")
    assert groups(LLAMA, stated) == [("full", None, 32, 32)]
    assert ModelConfig.from_json(LLAMA).hit_unit(stated) == 32
    assert ModelConfig.from_json({}).hit_unit(stated) == 32


# Groups and blocks that vLLM's own planner makes of these fields.
FAMILIES: list[tuple[str, dict[str, Any], Any, int | None]] = [
    (
        "gpt-oss-20b",
        {"model_type": "gpt_oss", "num_hidden_layers": 24, "sliding_window": 128, "layer_types": [FULL] * 24},
        [("sliding", 128, 12, 16), ("full", None, 12, 16)],
        16,
    ),
    (
        "Gemma-3-27b",
        {"text_config": {"model_type": "gemma3_text", "num_hidden_layers": 62, "sliding_window": 1024}},
        [("sliding", 1024, 9, 16)] * 4 + [("sliding", 1024, 8, 16)] * 2 + [("full", None, 10, 16)],
        16,
    ),
    (
        "Gemma-3-1b",
        {"num_hidden_layers": 26, "sliding_window": 512, "layer_types": ([SLIDING] * 5 + [FULL]) * 4 + [SLIDING] * 2},
        [("sliding", 512, 4, 16)] * 4 + [("sliding", 512, 3, 16)] * 2 + [("full", None, 4, 16)],
        16,
    ),
    (
        "Gemma-4-like",
        {
            "num_hidden_layers": 60,
            "sliding_window": 1024,
            "layer_types": ([SLIDING] * 5 + [FULL]) * 10,
            "num_key_value_heads": 16,
            "head_dim": 256,
            "num_global_key_value_heads": 4,
            "global_head_dim": 512,
        },
        [("sliding", 1024, 10, 16)] * 5 + [("full", None, 10, 32)],
        32,
    ),
    (
        "Gemma-2-9b",
        {"model_type": "gemma2", "num_hidden_layers": 42, "sliding_window": 4096},
        [("sliding", 4096, 21, 16), ("full", None, 21, 16)],
        16,
    ),
    (
        "Llama-4-Scout",
        {"num_hidden_layers": 48, "layer_types": (["chunked_attention"] * 3 + [FULL]) * 12},
        [("full", None, 48, 16)],
        16,
    ),
    (
        "Mistral-7B-v0.1",
        {"model_type": "mistral", "num_hidden_layers": 32, "sliding_window": 4096},
        [("sliding", 4096, 32, 16)],
        16,
    ),
    (
        "Command-R7B",
        {"model_type": "cohere2", "num_hidden_layers": 32, "sliding_window": 4096, "sliding_window_pattern": 4},
        [("sliding", 4097, 8, 16)] * 3 + [("full", None, 8, 16)],
        16,
    ),
    (
        "Qwen3-Next-80B",
        {"model_type": "qwen3_next", "num_hidden_layers": 48, "full_attention_interval": 4, "linear_num_key_heads": 16},
        [("linear", None, 12, None)] * 3 + [("full", None, 12, None)],
        None,
    ),
    (
        "Nemotron-H-8B",
        {"num_hidden_layers": 52, "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"},
        [("linear", None, 4, None)] * 6 + [("full", None, 4, None)],
        None,
    ),
    (
        "Jamba-1.5-mini",
        {"num_hidden_layers": 32, "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16},
        [("linear", None, 4, None)] * 7 + [("full", None, 4, None)],
        None,
    ),
    (
        "under 1.5 times as many",
        {"num_hidden_layers": 25, "sliding_window": 128, "layer_types": [SLIDING, FULL] * 12 + [FULL]},
        [("sliding", 128, 12, 16), ("full", None, 13, 16)],
        16,
    ),
    (
        "1.5 times as many",
        {"num_hidden_layers": 50, "sliding_window": 64, "layer_types": [FULL] * 20 + [SLIDING] * 30},
        [("full", None, 20, 16), ("sliding", 64, 15, 16), ("sliding", 64, 15, 16)],
        16,
    ),
]


@pytest.mark.parametrize(("raw", "expected", "unit"), [family[1:] for family in FAMILIES], ids=[f[0] for f in FAMILIES])
def test_groups(raw: dict[str, Any], expected: Any, unit: int | None) -> None:
    assert groups(raw) == expected
    assert ModelConfig.from_json(raw).hit_unit(NOTHING_SAID) == unit


def test_one_manager_for_all_layers() -> None:
    raw = {"model_type": "gpt_oss", "num_hidden_layers": 24, "sliding_window": 128}
    deployment = Deployment.from_vllm_args("vllm serve m --disable-hybrid-kv-cache-manager")
    assert groups(raw, deployment) == [("full", None, 24, 16)]
    # It changes nothing for a model of sliding layers alone.
    raw = {"model_type": "mistral", "num_hidden_layers": 32, "sliding_window": 4096}
    assert groups(raw, deployment) == [("sliding", 4096, 32, 16)]


def test_what_is_not_modelled_is_named() -> None:
    def named(raw: dict[str, Any]) -> tuple[str, ...]:
        return ModelConfig.from_json(raw).unmodelled(NOTHING_SAID)

    assert named({"num_hidden_layers": 2, "sliding_window": 8, "layer_types": [SLIDING, FULL]}) == (
        "sliding-window layers",
    )
    assert named({"num_hidden_layers": 2, "layer_types": [LINEAR, FULL]}) == ("linear-attention layers",)
    assert named({"num_hidden_layers": 2, "layer_types": ["new", FULL]}) == ("layers of unknown kinds",)
    assert named({"model_type": "falcon_h1", "num_hidden_layers": 2, "num_attention_heads": 2, "mamba_d_ssm": 8}) == (
        "layers of unknown kinds",
    )


def test_qwen_models_that_could_slide_do_not() -> None:
    raw = {"num_hidden_layers": 28, "sliding_window": 32768, "use_sliding_window": False, "max_window_layers": 28}
    assert groups(raw) == [("full", None, 28, 16)]


def test_layers_that_share_keys_and_values_keep_none() -> None:
    raw = {"num_hidden_layers": 10, "num_kv_shared_layers": 4}
    assert groups(raw) == [("full", None, 6, 16)]


@pytest.mark.parametrize(
    ("raw", "length"),
    [
        ({}, None),
        ({"max_position_embeddings": 4096}, 4096),
        ({"n_positions": 1024, "seq_length": 512}, 512),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 2.5}}, 10240),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "yarn", "factor": 4.0}}, 4096),
        ({"max_position_embeddings": 4096, "rope_parameters": {"rope_type": "default", "rope_theta": 1.0}}, 4096),
        ({"max_position_embeddings": 40, "rope_parameters": {"a": {"rope_type": "dynamic", "factor": 2}}}, 80),
        (
            {
                "max_position_embeddings": 131072,
                "original_max_position_embeddings": 4096,
                "rope_scaling": {"type": "longrope"},
            },
            4096,
        ),
        ({"model_type": "gemma3_text", "max_position_embeddings": 9, "rope_scaling": {"rope_type": "linear"}}, 9),
        ({"max_position_embeddings": 9, "model_type": "gemma3_text", "rope_scaling": {"factor": 8, "type": "x"}}, 9),
        ({"text_config": {"max_position_embeddings": 77}, "max_position_embeddings": 1}, 77),
        ({"max_position_embeddings": "many", "rope_scaling": [1]}, None),
        ({"max_position_embeddings": True}, None),
        ({"max_position_embeddings": 10**400}, None),
        ({"max_position_embeddings": 9, "rope_scaling": {"type": "linear", "factor": math.inf}}, 9),
        ({"max_position_embeddings": 9, "rope_scaling": {"type": "linear", "factor": math.nan}}, 9),
    ],
)
def test_the_longest_sequence(raw: dict[str, Any], length: int | None) -> None:
    assert ModelConfig.from_json(raw).max_model_len == length


def test_a_directory_is_read(tmp_path: Path) -> None:
    assert ModelConfig.load(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert ModelConfig.load(tmp_path) == ModelConfig.from_json(LLAMA)


def test_overrides_reach_inside(tmp_path: Path) -> None:
    raw = {"model_type": "x", "text_config": {"max_position_embeddings": 10, "num_hidden_layers": 2}}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    line = "vllm serve m --hf-overrides.text_config.max_position_embeddings 20 --hf-overrides.architectures+ A,B"
    config = ModelConfig.load(tmp_path, Deployment.from_vllm_args(line).hf_overrides)
    assert config is not None
    assert (config.max_model_len, len(config.layers), config.architectures) == (20, 2, ("A", "B"))


@pytest.mark.parametrize(("data", "message"), [(b"{", ":1:2: not valid JSON"), (b"[]", ": needs a JSON object")])
def test_a_broken_file_is_one_clear_line(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(InputError) as caught:
        ModelConfig.load(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'config.json'}{message}")
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        ModelConfig.load(tmp_path)


def test_any_json_object_is_taken() -> None:
    raw = {"model_type": 5, "architectures": "x", "num_hidden_layers": -3, "layer_types": "x", "torch_dtype": None}
    config = ModelConfig.from_json(raw)
    assert config == ModelConfig("", (), None, None, ())
    assert ModelConfig.from_json({"num_hidden_layers": 10**30}).layers == ()
    assert ModelConfig.from_json({"num_hidden_layers": 10**9}).layers == ()
