"""KV memory for a person and for programs: how much there is, and how it is taken by requests that run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from pkv_lint.findings import counted
from pkv_sim.kv_memory import KVMemory
from pkv_sim.outputs.json import rounded
from pkv_sim.outputs.text import percent
from pkv_sim.reservation import Holding, Reservations
from pkv_sim.simulation import share

NAMES = {"maximum": "maximum length", "power_of_two": "next power of two", "exact": "exact length"}


def size_member(memory: KVMemory, block_size: int) -> dict[str, Any]:
    """`kv_cache_memory` of the JSON output."""
    return {
        "kv_cache_memory": {
            "bytes_per_gpu": memory.bytes_per_gpu,
            "gpus": memory.gpus,
            "bytes_per_token": memory.bytes_per_token,
            "tokens": memory.num_gpu_blocks(block_size) * block_size,
        }
    }


def size_lines(memory: KVMemory, block_size: int, max_model_len: int | None) -> Iterator[str]:
    """Where the number of blocks comes from. `max_model_len` is the longest sequence that the server takes (tokens)."""
    gpus = f" on each of {memory.gpus} GPUs" if memory.gpus > 1 else ""
    blocks = memory.num_gpu_blocks(block_size)
    yield (
        f"{memory.bytes_per_gpu / 2**30:,.2f} GiB of KV cache{gpus}, {memory.bytes_per_token:,} bytes a token: "
        f"{blocks:,} blocks, {blocks * block_size:,} tokens in all"
    )
    if max_model_len is not None and -(-max_model_len // block_size) > blocks - 1:
        # kv_cache_utils.py:get_kv_cache_configs holds the null block back
        yield f"vLLM would not start: no sequence of {max_model_len:,} tokens fits (say a smaller --max-model-len)"


def members(found: Reservations, slots: int | None) -> dict[str, Any]:
    """`memory` of the JSON output. `slots` are those of the cache in tokens."""
    return {
        "memory": {
            "requests": found.requests,
            "length_unknown": found.unknown,
            "token_steps": found.steps,
            "max_model_len": found.max_model_len,
            "policies": [policy(holding, slots) for holding in found.holdings],
        }
    }


def policy(holding: Holding, slots: int | None) -> dict[str, Any]:
    return {
        "policy": holding.policy,
        "block_size": holding.block_size,
        "slots": rounded(holding.held),
        "used": rounded(share(holding.used, holding.held)),
        "reserved": rounded(share(holding.reserved, holding.held)),
        "internal_fragmentation": rounded(share(holding.internal, holding.held)),
        "external_fragmentation": rounded(share(holding.external, holding.held)),
        "waste": rounded(holding.waste),
        "sequences": rounded(holding.sequences(slots)) if slots is not None else None,
    }


def lines(found: Reservations, slots: int | None) -> Iterator[str]:
    """The section of the summary. `slots` are those of the cache in tokens; without them the last column compares."""
    yield click.style("KV memory of a running request", bold=True)
    if not found.holdings:
        yield "not known: the traffic does not tell how many tokens were generated"
        return
    requests = counted(found.requests, "request")
    yield f"in slots of one token, mean over {found.steps:,} steps of {requests} (one for each generated token)"
    yield ""
    heads = ("slots", "used", "reserved", "internal", "external", "waste", "at once" if slots is not None else "fit")
    yield f"  {'':<17}" + "".join(f"{head:>10}" for head in heads)
    for holding in found.holdings:
        name, fit = name_of(holding), fitting(found, holding, slots)
        parts = (holding.used, holding.reserved, holding.internal, holding.external)
        shares = "".join(f"{percent(share(part, holding.held)):>10}" for part in parts)
        waste = click.style(f"{percent(holding.waste):>10}", bold=True)
        yield f"  {name:<17}{holding.held:>10,.0f}{shares}{waste}{fit:>10}"
    yield ""
    yield from conditions(found)


def name_of(holding: Holding) -> str:
    return NAMES.get(holding.policy) or f"blocks of {holding.block_size}"


def fitting(found: Reservations, holding: Holding, slots: int | None) -> str:
    """How many requests the cache holds at once; without its size, how many times as many as by the first policy."""
    return (
        f"{holding.sequences(slots):,.1f}" if slots is not None else f"{found.holdings[0].held / holding.held:,.1f} x"
    )


def conditions(found: Reservations) -> Iterator[str]:
    """What the figures hold for."""
    whose = "of the server" if found.stated else "in the traffic (no --max-model-len is known)"
    yield f"maximum length: {found.max_model_len:,} tokens, the longest {whose}; requests share no slot"
    if found.unknown:
        yield f"left out: {counted(found.unknown, 'request')}, whose number of generated tokens is not known"
