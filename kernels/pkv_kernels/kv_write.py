"""Writes new keys and values to their slots of the paged cache."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def write_kv_kernel(
    key_ptr, value_ptr, key_cache_ptr, value_cache_ptr, slot_mapping_ptr,
    key_stride_token, key_stride_head, value_stride_token, value_stride_head,
    cache_stride_block, cache_stride_slot, cache_stride_head,
    KV_HEADS: tl.constexpr, HEAD_SIZE: tl.constexpr, BLOCK_SIZE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One program: all KV heads of one token."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping_ptr + token).to(tl.int64)
    if slot < 0:
        return
    element = tl.arange(0, WIDTH)
    head = element // HEAD_SIZE
    dim = element % HEAD_SIZE
    exists = head < KV_HEADS
    key = tl.load(key_ptr + token * key_stride_token + head * key_stride_head + dim, mask=exists)
    value = tl.load(value_ptr + token * value_stride_token + head * value_stride_head + dim, mask=exists)
    offsets = slot // BLOCK_SIZE * cache_stride_block + slot % BLOCK_SIZE * cache_stride_slot
    offsets += head * cache_stride_head + dim
    tl.store(key_cache_ptr + offsets, key, mask=exists)
    tl.store(value_cache_ptr + offsets, value, mask=exists)


def write_kv(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Copies the key and value of token t to slot slot_mapping[t]; of slot -1, the padding of CUDA graphs, nowhere.

    key, value [tokens, kv_heads, head_size], contiguous in head_size.
    key_cache, value_cache [num_blocks, block_size, kv_heads, head_size], contiguous in head_size, with equal strides.
    slot_mapping [tokens], any integer dtype: block * block_size + place in the block; no slot twice.
    """
    tokens, kv_heads, head_size = key.shape
    width = triton.next_power_of_2(kv_heads * head_size)
    write_kv_kernel[(tokens,)](
        key, value, key_cache, value_cache, slot_mapping,
        *key.stride()[:2], *value.stride()[:2], *key_cache.stride()[:3],
        KV_HEADS=kv_heads, HEAD_SIZE=head_size, BLOCK_SIZE=key_cache.shape[1], WIDTH=width,
        num_warps=min(8, max(1, width // 256)), enable_fp_fusion=True,
    )  # fmt: skip
