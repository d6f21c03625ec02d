"""What a user can choose about the engine. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """`model` is a directory, a hub id, a GGUF file or `tiny` (built in, offline); `tokenizer` and `chat_template`
    override what it brings. `device` is `auto`, `cpu` or `cuda`; `dtype` is `auto` (bfloat16 on CUDA, float32 on
    CPUs), `float32`, `bfloat16` or `float16`.

    `block_size` is in tokens. The KV cache has `num_gpu_blocks` blocks (the null block among them, on any device), else
    as many as fit into `kv_cache_memory` bytes, else on CUDA into what is free and on CPUs into 1 GiB. A None of
    `max_model_len` is the model's own limit. Other names are vLLM's engine arguments.
    """

    model: str
    tokenizer: str | None = None
    chat_template: str | None = None
    offline: bool = False
    device: str = "auto"
    dtype: str = "auto"
    block_size: int = 16
    num_gpu_blocks: int | None = None
    kv_cache_memory: int | None = None
    max_model_len: int | None = None
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 256
    enable_prefix_caching: bool = True
    scheduling_policy: str = "fcfs"
    seed: int = 0
    check_kv: bool = False
    step_log: Path | None = None
