"""What each kernel computes, in plain torch and float64, one sequence at a time: to read, and to compare with.

Names and arguments are those of the launchers, whose docstrings give the shapes. Results are rounded once, to the dtype
that the launcher gives; pass float64 tensors to have them unrounded.
"""

from __future__ import annotations

import torch


def write_kv(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """See kv_write.write_kv."""
    block_size = key_cache.shape[1]
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            key_cache[slot // block_size, slot % block_size] = key[token]
            value_cache[slot // block_size, slot % block_size] = value[token]


def paged_attention(
    out: torch.Tensor,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    query_start_locs: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    max_query_len: int,
) -> None:
    """See attention.paged_attention."""
    block_size = key_cache.shape[1]
    group = query.shape[1] // key_cache.shape[2]
    starts = query_start_locs.tolist()
    for table, start, end, keys in zip(block_tables, starts[:-1], starts[1:], seq_lens.tolist(), strict=True):
        if start == end:
            continue
        if keys == 0:
            out[start:end] = 0
            continue
        assert end - start <= max_query_len
        blocks = table[: -(-keys // block_size)].long()
        key, value = (
            cache[blocks].flatten(0, 1)[:keys].double().repeat_interleave(group, 1)
            for cache in (key_cache, value_cache)
        )
        scores = torch.einsum("qhd,khd->hqk", query[start:end].double(), key) * scale
        positions = torch.arange(keys - (end - start), keys, device=query.device)
        ahead = torch.arange(keys, device=query.device) > positions[:, None]
        out[start:end] = torch.einsum("hqk,khd->qhd", scores.masked_fill(ahead, float("-inf")).softmax(-1), value)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See norm.rms_norm."""
    exact = x.double()
    return (exact / (exact.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()).to(x.dtype)


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See norm.add_rms_norm."""
    total = x.double() + residual.double()
    residual.copy_(total)
    return rms_norm(total, weight, eps).to(x.dtype)


def rotary_embedding(
    query: torch.Tensor, key: torch.Tensor, cos_sin_cache: torch.Tensor, positions: torch.Tensor
) -> None:
    """See rotary.rotary_embedding."""
    cos, sin = cos_sin_cache[positions.long()].double()[:, None].chunk(2, -1)
    for x in (query, key):
        first, second = x.double().chunk(2, -1)
        x.copy_(torch.cat((first * cos - second * sin, second * cos + first * sin), -1))


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """See activation.silu_mul."""
    gate, up = gate_up.double().chunk(2, -1)
    return (torch.nn.functional.silu(gate) * up).to(gate_up.dtype)


def sample(
    logits: torch.Tensor, temperatures: torch.Tensor, seeds: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """See sampling.sample."""
    tokens = torch.arange(logits.shape[1], device=logits.device)
    uniform = ((_philox(tokens, positions.long()[:, None], seeds[:, None]) >> 9) + 0.5) / 2**23
    random = temperatures > 0
    noise = -(-uniform.double().log()).log() * random[:, None]
    return (logits.double() / torch.where(random, temperatures, 1.0)[:, None] + noise).argmax(1)


def _philox(counter_0: torch.Tensor, counter_1: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    """Philox-4x32-10 (Salmon et al., SC 2011) of the counter (counter_0, counter_1, 0, 0): the first of its 4 words."""
    low = 0xFFFFFFFF
    c0, c1, c2, c3 = counter_0 & low, counter_1 & low, torch.zeros_like(counter_0), torch.zeros_like(counter_0)
    k0, k1 = seed & low, (seed >> 32) & low
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57  # may wrap around: the masks below take the right bits all the same
        c0, c1, c2, c3 = (b >> 32 & low) ^ c1 ^ k0, b & low, (a >> 32 & low) ^ c3 ^ k1, a & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return c0
