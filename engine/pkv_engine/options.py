"""What a user can choose about the engine. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path

import click


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


def _size(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    from pkv_sim.kv_memory import read_size

    try:
        return read_size(value) if value is not None else None
    except ValueError:
        raise click.BadParameter(f"{value!r} is no size such as 4GiB", ctx=context, param=option) from None


_MANY = click.IntRange(1, 1 << 40)
OPTIONS = (
    click.option("--model", metavar="ID|DIR|GGUF", required=True, help="The model; `tiny` is built in."),
    click.option("--tokenizer", metavar="FILE|DIR", help="tokenizer.json, or the directory that holds it."),
    click.option("--chat-template", metavar="FILE", help="Chat template instead of the model's own."),
    click.option("--offline", is_flag=True, help="Never ask the hub."),
    click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True),
    click.option(
        "--dtype",
        type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
        default="auto",
        show_default=True,
        help="Of weights and KV cache; auto: bfloat16 on CUDA, float32 on CPUs.",
    ),
    click.option("--block-size", type=click.IntRange(1, 1024), default=16, show_default=True, help="Tokens per block."),
    click.option("--num-gpu-blocks", type=click.IntRange(2, 1 << 40), help="Blocks of the KV cache, on any device."),
    click.option("--kv-cache-memory", metavar="SIZE", callback=_size, help="Memory for the KV cache, such as 4GiB."),
    click.option("--max-model-len", type=_MANY, help="Longest prompt and output, in tokens (default: the model's)."),
    click.option("--max-num-batched-tokens", type=_MANY, default=2048, show_default=True, help="Tokens per step."),
    click.option("--max-num-seqs", type=_MANY, default=256, show_default=True, help="Requests that run at once."),
    click.option("--enable-prefix-caching/--no-enable-prefix-caching", default=True, show_default=True),
    click.option("--scheduling-policy", type=click.Choice(["fcfs", "priority"]), default="fcfs", show_default=True),
    click.option(
        "--seed",
        type=click.IntRange(-(1 << 63), (1 << 63) - 1),
        default=0,
        show_default=True,
        help="For requests that bring none.",
    ),
    click.option("--check-kv", is_flag=True, help="Check at every read what the slots of the KV cache hold."),
    click.option(
        "--step-log", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write arrivals and steps."
    ),
)


def engine_options(command: Callable[..., int]) -> Callable[..., int]:
    """Gives a command the options of the engine, as one argument `engine`."""

    @wraps(command)
    def gathered(**values: object) -> int:
        chosen = {field.name: values.pop(field.name) for field in fields(EngineOptions)}
        return command(engine=EngineOptions(**chosen), **values)  # type: ignore[arg-type]

    for option in reversed(OPTIONS):
        gathered = option(gathered)
    return gathered
