"""What the attention kernels share: how large a tile is, and the loop that attends from one tile of rows to a range of keys.

A row is one query head at one query token. The rows of a tile are all query heads that share one KV head, for as many
consecutive query tokens as fit (vLLM's `triton_unified_attention` lays them out the same way), so every key is loaded once
for the whole group:

    row  = query_token_in_tile * GROUP + head_in_group          GROUP = query heads per KV head

Keys come in tiles of their own, apart from the block size of the cache: a key tile may take several blocks or a part of one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

INTERPRETED: bool = triton.knobs.runtime.interpret
"""Whether the kernels run on the CPU in Triton's interpreter. Read when a kernel is decorated, so never changed later."""


@dataclass(frozen=True, slots=True)
class Tile:
    """How one program of an attention kernel works: rows, keys per step, warps, and tiles of keys in flight."""

    rows: int
    keys: int
    warps: int
    stages: int


# By bytes per element and head size padded to a power of two. Short tiles serve decoding, whose time goes into reading keys
# and values: few rows, deep pipelines. Long ones serve prompts: 64 rows at least, so that wgmma and tcgen05 apply. float32
# is for checking other paths: exact products have no tensor cores.
_SHORT = {
    (2, 64): Tile(16, 64, 4, 4),
    (2, 128): Tile(16, 64, 4, 3),
    (2, 256): Tile(16, 32, 4, 3),
    (4, 64): Tile(16, 32, 4, 2),
    (4, 128): Tile(16, 32, 4, 2),
    (4, 256): Tile(16, 16, 4, 2),
}
_LONG = {
    (2, 64): Tile(128, 64, 8, 3),
    (2, 128): Tile(128, 64, 8, 3),
    (2, 256): Tile(64, 32, 4, 2),
    (4, 64): Tile(64, 32, 8, 2),
    (4, 128): Tile(64, 32, 8, 2),
    (4, 256): Tile(64, 16, 8, 2),
}


def padded(head_size: int) -> int:
    """The head size as tiles hold it: a power of two of at least 64 (smaller ones use the tiles of 64)."""
    return max(64, triton.next_power_of_2(head_size))


def short_tile(dtype: torch.dtype, head_size: int, group: int) -> Tile:
    """The tile for a few query tokens per sequence. Raises KeyError for head sizes above 256."""
    return _with_rows_for(group, _SHORT[dtype.itemsize, padded(head_size)])


def long_tile(dtype: torch.dtype, head_size: int, group: int) -> Tile:
    """The tile for prompts and chunks of them. Raises KeyError for head sizes above 256."""
    return _with_rows_for(group, _LONG[dtype.itemsize, padded(head_size)])


def _with_rows_for(group: int, tile: Tile) -> Tile:
    return tile if group <= tile.rows else Tile(triton.next_power_of_2(group), tile.keys, tile.warps, tile.stages)


@triton.jit
def load_rows(
    query_ptr, token, head, row_exists, stride_token, stride_head, HEAD_SIZE: tl.constexpr, HEAD_PAD: tl.constexpr
):
    """The queries [rows, HEAD_PAD] of rows given by token and head; zeros in rows that do not exist and in the padding."""
    dims = tl.arange(0, HEAD_PAD)
    offsets = (token.to(tl.int64) * stride_token + head * stride_head)[:, None] + dims[None, :]
    return tl.load(query_ptr + offsets, mask=row_exists[:, None] & (dims < HEAD_SIZE)[None, :], other=0.0)


@triton.jit
def attend(
    query,
    position,
    row_max,
    row_sum,
    acc,
    key_cache_ptr,
    value_cache_ptr,
    block_table_ptr,
    first_key,
    end_key,
    scale_log2,
    k_stride_block,
    k_stride_slot,
    v_stride_block,
    v_stride_slot,
    BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    MASKED: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """One pass of online softmax over the keys first_key .. end_key - 1 of a sequence.

    query [rows, HEAD_PAD]; position [rows]: where each row stands in its sequence, a row sees the keys up to there; row_max,
    row_sum [rows] and acc [rows, HEAD_PAD] in float32: the state so far, base-2 exponents, returned anew. The cache pointers
    point to the KV head, the block table's to the row of the sequence. Without MASKED every row must see every key, and the
    range must consist of whole tiles.

    UPCAST computes in float32: Triton's interpreter keeps bfloat16 as bit patterns, which tl.dot would multiply as integers.
    """
    dims = tl.arange(0, HEAD_PAD)
    for tile_start in range(first_key, end_key, KEYS):
        key = tile_start + tl.arange(0, KEYS)
        # Literal masks where nothing is left out let the compiler drop them.
        key_exists = key < end_key if MASKED else tl.full([KEYS], True, tl.int1)
        block = tl.load(block_table_ptr + key // BLOCK_SIZE, mask=key_exists, other=0).to(tl.int64)
        slot = key % BLOCK_SIZE
        in_cache = key_exists[:, None] & (dims < HEAD_SIZE)[None, :]
        k_offsets = (block * k_stride_block + slot * k_stride_slot)[:, None] + dims[None, :]
        v_offsets = (block * v_stride_block + slot * v_stride_slot)[:, None] + dims[None, :]
        keys = tl.load(key_cache_ptr + k_offsets, mask=in_cache, other=0.0)
        values = tl.load(value_cache_ptr + v_offsets, mask=in_cache, other=0.0)
        if UPCAST:
            keys, values = keys.to(tl.float32), values.to(tl.float32)

        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale_log2
        if MASKED:
            scores = tl.where(key[None, :] <= tl.minimum(position, end_key - 1)[:, None], scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        # A row that has seen no key yet has the maximum -inf, and -inf - -inf is no number.
        base = tl.where(new_max == float("-inf"), 0.0, new_max) if MASKED else new_max
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(row_max - base)
        row_sum = row_sum * shrink + tl.sum(weights, 1)
        acc = tl.dot(weights.to(values.dtype), values, acc * shrink[:, None], input_precision="ieee")
        row_max = new_max
    return row_max, row_sum, acc
