"""How many blocks the memory for the KV cache holds, as vLLM counts them for models with full attention."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.model_config import Layer, ModelConfig

# Bytes of a number by --kv-cache-dtype. `auto` is the model's own; vLLM runs float32 models in 16 bits unless --dtype
# says otherwise (config/model.py:_resolve_auto_dtype).
_CACHE_DTYPES = {
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_inc": 1,
}
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True, slots=True)
class KVMemory:
    """Memory for the KV cache in bytes on each of `gpus` GPUs, and what a token takes there (`bytes_per_token`: all
    layers of the GPU that holds most of them)."""

    bytes_per_gpu: int
    bytes_per_token: int
    gpus: int = 1

    def num_gpu_blocks(self, block_size: int) -> int:
        """Blocks of so many tokens, the null block included (kv_cache_planning.py:get_num_blocks). Raises InputError
        when that leaves none to use."""
        blocks = self.bytes_per_gpu // (self.bytes_per_token * block_size)
        if blocks < 2:
            least = 2 * self.bytes_per_token * block_size
            raise InputError(
                f"{self.bytes_per_gpu:,} bytes of KV cache hold {blocks} blocks of {block_size} tokens; two, one of "
                f"them the null block, take {least:,}"
            )
        return blocks


def stated_memory(bytes_per_gpu: int | None, config: ModelConfig | None, deployment: Deployment) -> KVMemory | None:
    """The memory that sizes the cache: `bytes_per_gpu`, else what the server's line says; None when that says nothing,
    or the number of blocks. Raises InputError as `kv_memory`."""
    if bytes_per_gpu is None and deployment.num_gpu_blocks_override is None:
        bytes_per_gpu = deployment.kv_cache_memory_bytes
    return kv_memory(bytes_per_gpu, config, deployment) if bytes_per_gpu is not None else None


def kv_memory(bytes_per_gpu: int, config: ModelConfig | None, deployment: Deployment) -> KVMemory:
    """Raises InputError where the size of a token cannot be told exactly, or vLLM would not start."""
    if config is None:
        raise InputError(
            "memory becomes blocks by the model's config.json, and there is none: name a --model that has it"
        )
    name = config.model_type or "the model"
    if not config.layers or not all(layer.width for layer in config.layers):
        raise InputError(f"what a token of {name} takes in the KV cache is not known: say --num-gpu-blocks instead")
    for flag in ("--kv-cache-dtype-skip-layers", "VLLM_PP_LAYER_PARTITION", "VLLM_MLA_DISABLE"):
        if flag in deployment.ignored:
            raise InputError(f"{flag}: its effect on the size of the KV cache is not modelled: say --num-gpu-blocks")
    tensor, stages = deployment.tensor_parallel_size, deployment.pipeline_parallel_size
    if config.attention_heads % tensor:
        raise InputError(f"{config.attention_heads} attention heads cannot be shared by {tensor} GPUs")
    if stages > len(config.layers):
        raise InputError(f"{len(config.layers)} layers cannot be shared by {stages} pipeline stages")
    numbers = [numbers_of(layer, tensor) for layer in config.layers]
    start, fullest = 0, 0
    for count in layers_by_stage(len(numbers), stages):
        # The stage with the fewest blocks sets the number of all (kv_cache_planning.py:get_kv_cache_configs).
        fullest = max(fullest, sum(numbers[start : start + count]))
        start += count
    return KVMemory(bytes_per_gpu, fullest * bytes_of_number(config, deployment), tensor * stages)


def numbers_of(layer: Layer, tensor_parallel_size: int) -> int:
    """The numbers that one token takes in a layer on each GPU. Raises InputError for heads that cannot be shared."""
    heads, gpus = layer.kv_heads, tensor_parallel_size
    if not heads:
        return layer.width  # MLA: every GPU has the whole latent vector
    if max(heads, gpus) % min(heads, gpus):
        raise InputError(f"{heads} KV heads cannot be shared by {gpus} GPUs")
    # get_num_kv_heads: heads are replicated where there are fewer than GPUs.
    return 2 * max(1, heads // gpus) * (layer.width // heads)


def layers_by_stage(num_layers: int, stages: int) -> list[int]:
    """How many layers each pipeline stage runs (distributed/utils.py:get_pp_indices): what is over goes to the stages
    in front of the last one, from behind."""
    least, more = divmod(num_layers, stages)
    counts = [least] * stages
    for stage in range(2, more + 2):
        counts[-stage] += 1
    return counts


def bytes_of_number(config: ModelConfig, deployment: Deployment) -> int:
    """Raises InputError for formats with scales or of sizes that are not modelled."""
    if deployment.kv_cache_dtype != "auto":
        if deployment.kv_cache_dtype not in _CACHE_DTYPES:
            raise InputError(f"--kv-cache-dtype {deployment.kv_cache_dtype}: its size is not modelled")
        return _CACHE_DTYPES[deployment.kv_cache_dtype]
    if config.kv_cache_scheme:
        raise InputError("the checkpoint brings a number format for its KV cache: say which with --kv-cache-dtype")
    return 4 if deployment.dtype in ("float", "float32") else 2


def read_size(text: str) -> int:
    """Bytes of a text such as `40GiB`, `40GB`, or as vLLM has it, `40G` (binary), `40g` (decimal) or plain bytes.
    Raises ValueError."""
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*(([kmgt]?)(i?b)?)\s*", text, re.IGNORECASE)
    if found is None:
        raise ValueError
    number, _, unit, ending = found.groups()
    binary = unit.isupper() if ending is None else ending.lower() == "ib"
    return int(float(number) * (1024 if binary else 1000) ** _UNITS[unit.lower()])
