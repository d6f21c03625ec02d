"""From what a user named to an engine that runs."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pkv_engine.engine import Engine
from pkv_engine.options import EngineOptions
from pkv_engine.step_log import StepLog
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.tokenizer import Tokenizer
from pkv_sim.exact.scheduler_config import SchedulerConfig

if TYPE_CHECKING:
    import torch

    from pkv_engine.model.config import DecoderConfig
    from pkv_engine.model.cpu import CpuDevice
    from pkv_engine.model.cuda import CudaDevice

CPU_CACHE_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """An engine with what belongs to its model: the renderer of its prompts and the vocabulary of its replies.

    `batch_invariant` tells that a token's logits do not depend, bit for bit, on what is computed with it.
    """

    name: str
    engine: Engine
    renderer: Renderer
    tokenizer: Tokenizer
    max_model_len: int
    batch_invariant: bool


def load(options: EngineOptions) -> LoadedModel:
    """Raises InputError for what cannot be loaded: no such model, another architecture, torch not installed."""
    try:
        import safetensors  # noqa: F401
        import torch
    except ImportError as error:
        raise InputError(f"the engine needs {error.name}: pip install 'pkv-lint[engine]'") from None
    from pkv_engine.audit import KVAudit
    from pkv_engine.model.files import ModelFiles
    from pkv_engine.model.weights import Weights
    from pkv_engine.runner import ModelRunner

    device = _device(options)
    dtype = _dtype(options, device)
    files = ModelFiles.find(options)
    weights = Weights(files.source, files.origin, dtype, device, files.rope_factors)
    if options.max_model_len is not None and options.max_model_len > files.config.max_model_len:
        raise InputError(f"max_model_len is {options.max_model_len}, and the model allows {files.config.max_model_len}")
    place = _device_class(device)
    try:
        with torch.inference_mode():
            decoder = place.load_decoder(files.config, weights, options.max_model_len or files.config.max_model_len)
            num_blocks = _num_blocks(options, files.config, dtype, device)
            placed = place(decoder, num_blocks, options.block_size, options.max_num_seqs)
        audit = KVAudit(num_blocks, options.block_size) if options.check_kv else None
    except (RuntimeError, MemoryError) as error:
        # Allocators have no error of their own on CPUs.
        if isinstance(error, RuntimeError) and not any(word in str(error) for word in ("memory", "overflow")):
            raise
        raise InputError(
            "there is not enough memory for this model and its KV cache: see --num-gpu-blocks, --kv-cache-memory and "
            "--max-model-len"
        ) from None
    config = SchedulerConfig(
        num_gpu_blocks=num_blocks,
        block_size=options.block_size,
        max_model_len=_max_model_len(options, files.config, num_blocks),
        max_num_batched_tokens=options.max_num_batched_tokens,
        max_num_seqs=options.max_num_seqs,
        policy=options.scheduling_policy,
        async_scheduling=False,
        enable_prefix_caching=options.enable_prefix_caching,
    )
    engine = Engine(
        config,
        ModelRunner(placed, options.block_size, seed=options.seed, audit=audit),
        vocab_size=files.config.vocab_size,
        eos_token_ids=files.config.eos_token_ids,
        tokenizer=files.tokenizer,
        observer=_step_log(options),
    )
    return LoadedModel(
        options.model, engine, files.renderer, files.tokenizer, config.max_model_len, placed.batch_invariant
    )


def _device(options: EngineOptions) -> torch.device:
    import torch

    if options.device == "cpu" or (options.device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InputError("there is no CUDA device that torch can use")
    return torch.device("cuda")


def _device_class(device: torch.device) -> type[CpuDevice] | type[CudaDevice]:
    if device.type == "cuda":
        from pkv_engine.model.cuda import CudaDevice

        return CudaDevice
    from pkv_engine.model.cpu import CpuDevice

    return CpuDevice


def _dtype(options: EngineOptions, device: torch.device) -> torch.dtype:
    import torch

    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    return dtypes[{"cuda": "bfloat16", "cpu": "float32"}[device.type] if options.dtype == "auto" else options.dtype]


def _num_blocks(options: EngineOptions, config: DecoderConfig, dtype: torch.dtype, device: torch.device) -> int:
    """The size of the KV cache in blocks, the null block among them, with the weights already loaded."""
    if options.num_gpu_blocks is not None:
        return options.num_gpu_blocks
    memory = options.kv_cache_memory
    if memory is None:
        if device.type == "cuda":
            from pkv_engine.model.cuda import free_memory

            memory = free_memory(config, dtype, options.max_num_batched_tokens)
        else:
            memory = CPU_CACHE_BYTES
    block = options.block_size * config.kv_bytes_per_token(dtype.itemsize)
    if memory < 2 * block:
        raise InputError(f"a KV cache of {memory} bytes holds no two blocks of {block} bytes")
    return memory // block


def _max_model_len(options: EngineOptions, config: DecoderConfig, num_blocks: int) -> int:
    """What the model allows, what was asked for, and what fits into the KV cache (its null block holds nothing)."""
    room = (num_blocks - 1) * options.block_size
    if options.max_model_len is None:
        return min(config.max_model_len, room)
    if options.max_model_len > room:
        raise InputError(f"max_model_len is {options.max_model_len}, and the KV cache has room for {room} tokens")
    return options.max_model_len


def _step_log(options: EngineOptions) -> StepLog | None:
    if options.step_log is None:
        return None
    try:
        file = options.step_log.open("wb", buffering=0)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(options.step_log)) from None
    log = StepLog(file)
    weakref.finalize(log, file.close)
    return log
