"""How fast attention is beside the device itself: beside its copies in decoding, and its matrix products in prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from pkv_kernels.verification import Batch, random_batch

Milliseconds = Callable[[Callable[[], object]], float]
"""Runs a call some times, and gives the median."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is measured."""

    seqs: int = 32
    context: int = 8192
    prompt: int = 8192
    heads: int = 32
    groups: tuple[int, ...] = (4, 8)
    head_size: int = 128
    block_size: int = 16
    matmul: int = 8192
    copy: int = 2**31


def measure(milliseconds: Milliseconds, device: str, sizes: Sizes) -> dict[str, object]:
    """Rates in bytes and floating-point operations per second, in bfloat16, and as parts of the device's own."""
    source, target = torch.zeros(2, sizes.copy, dtype=torch.uint8, device=device)
    copied = 2 * sizes.copy / milliseconds(lambda: target.copy_(source)) * 1000
    a, b = torch.randn(2, sizes.matmul, sizes.matmul, device=device).bfloat16()
    multiplied = 2 * sizes.matmul**3 / milliseconds(lambda: a @ b) * 1000

    def batch(seqs: int, query_len: int, keys: int, group: int) -> Batch:
        return random_batch(
            [(query_len, keys)] * seqs, dtype=torch.bfloat16, kv_heads=sizes.heads // group, group=group,
            head_size=sizes.head_size, block_size=sizes.block_size, device=device,
        )  # fmt: skip

    results: dict[str, object] = {"copy_bytes_per_second": copied, "matmul_flop_per_second": multiplied}
    for group in sizes.groups:
        decode = batch(sizes.seqs, 1, sizes.context, group)
        moved = 2 * sizes.seqs * sizes.context * sizes.heads // group * sizes.head_size * 2
        rates = {name: moved / milliseconds(call) * 1000 for name, call in contestants(decode).items()}
        results[f"decode_group_{group}"] = {
            "bytes_per_second": rates, "of_copy": {name: rate / copied for name, rate in rates.items()}
        }  # fmt: skip
        prompt = batch(1, sizes.prompt, sizes.prompt, group)
        operations = 4 * sizes.heads * sizes.head_size * sizes.prompt * (sizes.prompt + 1) // 2
        rates = {name: operations / milliseconds(call) * 1000 for name, call in contestants(prompt).items()}
        results[f"prompt_group_{group}"] = {
            "flop_per_second": rates, "of_matmul": {name: rate / multiplied for name, rate in rates.items()}
        }  # fmt: skip
    return results


def contestants(batch: Batch) -> dict[str, Callable[[], object]]:
    """paged_attention, and others on the same keys in one piece: torch's attention, and FlashAttention where installed.

    All sequences of the batch must have the same lengths, which fill their block tables.
    """
    seqs, query_len = len(batch.seq_lens), batch.max_query_len
    keys, values = (cache[batch.block_tables.long()].flatten(1, 2) for cache in (batch.key_cache, batch.value_cache))
    query, out = batch.query.unflatten(0, (seqs, query_len)), torch.empty_like(batch.query)
    causal = query_len > 1
    calls: dict[str, Callable[[], object]] = {
        "pkv_kernels": lambda: batch.write_attention(out),
        "torch_sdpa": lambda: torch.nn.functional.scaled_dot_product_attention(
            query.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), is_causal=causal, enable_gqa=True
        ),
    }
    try:
        from flash_attn import flash_attn_func
    except ImportError:
        return calls
    return calls | {"flash_attention": lambda: flash_attn_func(query, keys, values, causal=causal)}
