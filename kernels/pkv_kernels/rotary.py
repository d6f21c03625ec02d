"""Rotary position embedding of queries and keys."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def rotate(
    x_ptr, cos, sin, stride_head,
    HEADS: tl.constexpr, HEADS_PAD: tl.constexpr, HALF: tl.constexpr, HALF_PAD: tl.constexpr,
):  # fmt: skip
    """Rotates all heads of the token that x_ptr points to; cos and sin [1, HALF_PAD]."""
    head = tl.arange(0, HEADS_PAD)
    dim = tl.arange(0, HALF_PAD)
    x_ptr += head[:, None] * stride_head + dim[None, :]
    exists = (head < HEADS)[:, None] & (dim < HALF)[None, :]
    first = tl.load(x_ptr, mask=exists).to(tl.float32)
    second = tl.load(x_ptr + HALF, mask=exists).to(tl.float32)
    tl.store(x_ptr, (first * cos - second * sin).to(x_ptr.dtype.element_ty), mask=exists)
    tl.store(x_ptr + HALF, (second * cos + first * sin).to(x_ptr.dtype.element_ty), mask=exists)


@triton.jit
def rotary_kernel(
    query_ptr, key_ptr, cos_sin_ptr, position_ptr,
    query_stride_token, query_stride_head, key_stride_token, key_stride_head, cos_sin_stride,
    HEADS: tl.constexpr, HEADS_PAD: tl.constexpr, KV_HEADS: tl.constexpr, KV_HEADS_PAD: tl.constexpr,
    HALF: tl.constexpr, HALF_PAD: tl.constexpr,
):  # fmt: skip
    """One program: all query heads of one token, or all its key heads."""
    token = tl.program_id(0).to(tl.int64)
    dim = tl.arange(0, HALF_PAD)
    cos_sin_ptr += tl.load(position_ptr + token).to(tl.int64) * cos_sin_stride
    cos = tl.load(cos_sin_ptr + dim, mask=dim < HALF).to(tl.float32)[None, :]
    sin = tl.load(cos_sin_ptr + HALF + dim, mask=dim < HALF).to(tl.float32)[None, :]
    if tl.program_id(1) == 0:
        rotate(query_ptr + token * query_stride_token, cos, sin, query_stride_head, HEADS, HEADS_PAD, HALF, HALF_PAD)
    else:
        rotate(key_ptr + token * key_stride_token, cos, sin, key_stride_head, KV_HEADS, KV_HEADS_PAD, HALF, HALF_PAD)


def rotary_embedding(
    query: torch.Tensor, key: torch.Tensor, cos_sin_cache: torch.Tensor, positions: torch.Tensor
) -> None:
    """Rotates queries and keys in place by their positions. Dimension i is paired with i + head_size / 2 (GPT-NeoX).

    query [tokens, heads, head_size] and key [tokens, kv_heads, head_size], contiguous in head_size.
    cos_sin_cache [max_position, head_size], contiguous in head_size: the cosines of all head_size / 2 angles of a
    position, then the sines.
    positions [tokens], any integer dtype. Computed in float32.
    """
    tokens, heads, head_size = query.shape
    kv_heads, half = key.shape[1], head_size // 2
    heads_pad, half_pad = triton.next_power_of_2(heads), triton.next_power_of_2(half)
    rotary_kernel[tokens, 2](
        query, key, cos_sin_cache, positions, *query.stride()[:2], *key.stride()[:2], cos_sin_cache.stride(0),
        HEADS=heads, HEADS_PAD=heads_pad, KV_HEADS=kv_heads, KV_HEADS_PAD=triton.next_power_of_2(kv_heads),
        HALF=half, HALF_PAD=half_pad,
        num_warps=min(8, max(1, heads_pad * half_pad // 512)), enable_fp_fusion=True,
    )  # fmt: skip
