"""From memory to blocks: sizes of tokens, parallel GPUs, number formats, and what is refused."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.model_config import ModelConfig
from pkv_sim.kv_memory import KVMemory, kv_memory, layers_by_stage, read_size

GIB = 1 << 30
LLAMA_8B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "hidden_size": 7168,
    "v_head_dim": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
}
QWEN3_06B = {
    "model_type": "qwen3",
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 1024,
}


def memory(raw: dict[str, Any], flags: str = "", size: int = 40 * GIB) -> KVMemory:
    return kv_memory(size, ModelConfig.from_json(raw), Deployment.from_vllm_args(f"vllm serve m {flags}"))


@pytest.mark.parametrize(
    ("raw", "flags", "bytes_per_token"),
    [
        (LLAMA_8B, "", 131_072),
        (LLAMA_8B, "-tp 2", 65_536),
        # Fewer heads than GPUs: each has one.
        (LLAMA_8B, "-tp 16", 16_384),
        (LLAMA_8B, "-pp 2", 65_536),
        # 32 layers on 3 GPUs: the first two have 11.
        (LLAMA_8B, "-pp 3", 11 * 4096),
        (LLAMA_8B, "--kv-cache-dtype fp8", 65_536),
        (LLAMA_8B, "--dtype float32", 262_144),
        (LLAMA_8B | {"torch_dtype": "float32"}, "", 131_072),
        (LLAMA_8B, "--dtype float32 --kv-cache-dtype bfloat16", 131_072),
        (QWEN3_06B, "", 114_688),
        # One latent vector of 512 + 64 numbers in each layer and on each GPU.
        (DEEPSEEK_V3, "", 61 * 576 * 2),
        (DEEPSEEK_V3, "-tp 8", 61 * 576 * 2),
        (DEEPSEEK_V3, "-tp 8 --kv-cache-dtype fp8", 61 * 576),
    ],
)
def test_bytes_of_a_token(raw: dict[str, Any], flags: str, bytes_per_token: int) -> None:
    assert memory(raw, flags).bytes_per_token == bytes_per_token


def test_blocks() -> None:
    found = memory(LLAMA_8B, "-tp 2 -pp 2")
    assert found == KVMemory(40 * GIB, 32_768, 4)
    assert found.num_gpu_blocks(16) == 81_920
    assert KVMemory(3 * 16 * 32_768 - 1, 32_768).num_gpu_blocks(16) == 2
    with pytest.raises(InputError, match="hold 1 blocks of 16 tokens; two, one of them the null block, take 1,048,576"):
        KVMemory(2 * 16 * 32_768 - 1, 32_768).num_gpu_blocks(16)


def test_what_is_over_goes_in_front_of_the_last_stage() -> None:
    assert layers_by_stage(32, 4) == [8, 8, 8, 8]
    assert layers_by_stage(61, 4) == [15, 15, 16, 15]
    assert layers_by_stage(63, 4) == [16, 16, 16, 15]


@pytest.mark.parametrize(
    ("raw", "flags", "message"),
    [
        (DEEPSEEK_V3 | {"model_type": "deepseek_v32"}, "", "what a token of deepseek_v32 takes in the KV cache"),
        ({"model_type": "odd", "num_hidden_layers": 2}, "", "what a token of odd takes in the KV cache is not known"),
        (LLAMA_8B, "-tp 3", "32 attention heads cannot be shared by 3 GPUs"),
        (LLAMA_8B | {"num_key_value_heads": 6}, "-tp 4", "6 KV heads cannot be shared by 4 GPUs"),
        (LLAMA_8B, "-pp 33", "32 layers cannot be shared by 33 pipeline stages"),
        (LLAMA_8B, "--kv-cache-dtype nvfp4", "--kv-cache-dtype nvfp4: its size is not modelled"),
        (LLAMA_8B, "--kv-cache-dtype-skip-layers 0 1", "--kv-cache-dtype-skip-layers: its effect"),
        *(
            (LLAMA_8B | {name: scheme}, "", "say which with --kv-cache-dtype")
            for name, scheme in (
                ("quantization_config", {"kv_cache_quant_algo": "FP8"}),
                ("quantization_config", {"quantization": {"kv_cache_quant_algo": "FP8"}}),
                ("compression_config", {"kv_cache_scheme": {"num_bits": 8}}),
            )
        ),
    ],
)
def test_what_cannot_be_told_is_refused(raw: dict[str, Any], flags: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        memory(raw, flags)


def test_a_config_is_needed() -> None:
    with pytest.raises(InputError, match=r"config\.json, and there is none"):
        kv_memory(GIB, None, Deployment())


def test_pages_of_full_attention_models_equal_those_of_the_planner(shared: Path) -> None:
    families = json.loads((shared / "golden" / "hybrid" / "families.json").read_text())["families"]
    heads = {
        "gpt-oss-20b --disable-hybrid-kv-cache-manager": (8, 64),
        "Llama-4-Scout (default: hybrid manager off)": (8, 128),
    }
    alone = [family for family in families if [group["kind"] for group in family["groups"]] == ["FullAttentionSpec"]]
    assert {family["name"] for family in alone} == set(heads)
    for family in alone:
        (group,) = family["groups"]
        kv_heads, size = heads[family["name"]]
        raw = {"num_hidden_layers": group["num_layers"], "num_key_value_heads": kv_heads, "head_dim": size}
        found = memory(raw)
        assert found.bytes_per_token * group["block_size"] == family["bytes_per_pool_block"]
        assert found.num_gpu_blocks(group["block_size"]) == 40 * GIB // family["bytes_per_pool_block"]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1073741824", GIB),
        ("40GiB", 40 * GIB),
        ("40 gib", 40 * GIB),
        ("37.5 GiB", 75 * GIB // 2),
        ("40GB", 40 * 10**9),
        ("40G", 40 * GIB),
        ("40g", 40 * 10**9),
        ("512KiB", 1 << 19),
        ("2T", 1 << 41),
        ("7B", 7),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "4e9", "40 X", "1e", "nan", "4,000", "9" * 40])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError):
        read_size(text)


@pytest.mark.oracle
def test_models_as_vllm_reads_them() -> None:
    """Heads, their sizes and layers of every configuration that transformers knows; layers of pipeline stages."""
    pytest.importorskip("vllm.config")
    convertors = importlib.import_module("vllm.transformers_utils.model_arch_config_convertor")
    text_config = importlib.import_module("vllm.transformers_utils.config").get_hf_text_config
    stages_of = importlib.import_module("vllm.distributed.utils").get_pp_indices
    for layers in range(1, 130):
        for stages in range(1, min(layers, 17) + 1):
            bounds = [stages_of(layers, stage, stages) for stage in range(stages)]
            assert layers_by_stage(layers, stages) == [stop - start for start, stop in bounds]
    known = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    compared = 0
    for name in known:
        try:
            given = known[name]()
            raw = given.to_dict()
            convertor = convertors.MODEL_ARCH_CONFIG_CONVERTORS.get(name, convertors.ModelArchConfigConvertorBase)
            read = convertor(given, text_config(given))
            heads = 0 if read.is_deepseek_mla() else read.get_total_num_kv_heads()
            wanted = (read.get_num_hidden_layers(), heads, read.get_head_size())
        except Exception:  # what has no defaults, or is no language model
            continue
        config = ModelConfig.from_json(raw)
        plain = config.layers and not config.unmodelled(Deployment()) and all(layer.width for layer in config.layers)
        if not plain or not wanted[0] or None in wanted or name == "xlstm":
            continue  # xlstm has no attention, and vLLM does not run it
        layer = config.layers[0]
        assert (len(config.layers), layer.kv_heads, layer.width // (layer.kv_heads or 1)) == wanted, name
        compared += 1
    assert compared > 300
