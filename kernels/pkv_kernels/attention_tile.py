"""What the attention kernels share: the sizes of tiles, and the loop over the keys that a tile of rows attends to.

A row is one query head at one query token. A tile has all query heads that share one KV head, for as many consecutive
query tokens as fit, so every key is loaded once for the whole group (vLLM's `triton_unified_attention` does the same):

    row = query_token_in_tile * GROUP + head_in_group          GROUP = query heads per KV head

Keys come in tiles of their own, apart from the block size of the cache: one may take several blocks or a part of one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl

INTERPRETED = bool(triton.knobs.runtime.interpret)
"""Whether kernels run on the CPU in Triton's interpreter: TRITON_INTERPRET at the time they were decorated."""


@dataclass(frozen=True, slots=True)
class Tile:
    """How a program of an attention kernel works: rows, keys per step, warps, and tiles of keys in flight."""

    rows: int
    keys: int
    warps: int
    stages: int


# By bytes per element and padded head size. Short tiles are for decoding, which waits for keys and values: few rows,
# many keys in flight. Long ones are for prompts: at least 64 rows, which wgmma and tcgen05 need. float32 is there to
# check the other dtypes: its exact products have no tensor cores.
_SHORT = {
    (2, 64): Tile(16, 64, 4, 4),
    (2, 128): Tile(16, 64, 4, 3),
    (2, 256): Tile(16, 32, 4, 3),
    (4, 64): Tile(16, 32, 4, 2),
    (4, 128): Tile(16, 16, 4, 2),
    (4, 256): Tile(16, 16, 4, 2),
}
_LONG = {
    (2, 64): Tile(128, 64, 8, 3),
    (2, 128): Tile(128, 64, 8, 3),
    (2, 256): Tile(64, 32, 8, 2),
    (4, 64): Tile(64, 32, 8, 2),
    (4, 128): Tile(32, 16, 8, 2),
    (4, 256): Tile(32, 16, 8, 2),
}


def padded(head_size: int) -> int:
    """The head size as tiles hold it: a power of two, at least 64."""
    return max(64, 1 << (head_size - 1).bit_length())


def choose_tile(query: torch.Tensor, key_cache: torch.Tensor, *, short: bool) -> Tile:
    """The tile for queries [tokens, heads, head_size]. Raises KeyError for head sizes above 256."""
    tile = (_SHORT if short else _LONG)[query.element_size(), padded(query.shape[2])]
    group = query.shape[1] // key_cache.shape[2]
    return replace(tile, rows=max(tile.rows, 1 << (group - 1).bit_length()))


def launch_options(tile: Tile, query: torch.Tensor, key_cache: torch.Tensor, scale: float) -> dict[str, object]:
    """The arguments that all attention kernels take: the scale, what they are compiled for, and how."""
    return {
        "scale_log2": scale * math.log2(math.e),
        "GROUP": query.shape[1] // key_cache.shape[2],
        "BLOCK_SIZE": key_cache.shape[1],
        "HEAD_SIZE": query.shape[2],
        "HEAD_PAD": padded(query.shape[2]),
        "ROWS": tile.rows,
        "KEYS": tile.keys,
        # The interpreter keeps bfloat16 as bit patterns, which tl.dot would multiply as integers.
        "UPCAST": INTERPRETED and query.dtype == torch.bfloat16,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
        "enable_fp_fusion": True,
    }


@triton.jit
def load_rows(
    query_ptr, token, head, exists, stride_token, stride_head,
    HEAD_SIZE: tl.constexpr, HEAD_PAD: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """The queries [rows, HEAD_PAD] of rows given by token and head; zeros where none exist and in the padding."""
    dims = tl.arange(0, HEAD_PAD)
    offsets = (token.to(tl.int64) * stride_token + head * stride_head)[:, None] + dims[None, :]
    query = tl.load(query_ptr + offsets, mask=exists[:, None] & (dims < HEAD_SIZE)[None, :], other=0.0)
    return query.to(tl.float32) if UPCAST else query


@triton.jit
def attend(
    query, position, row_max, row_sum, acc,
    key_cache_ptr, value_cache_ptr, block_table_ptr, first_key, end_key, scale_log2, stride_block, stride_slot,
    BLOCK_SIZE: tl.constexpr, KEYS: tl.constexpr, HEAD_SIZE: tl.constexpr, HEAD_PAD: tl.constexpr,
    MASKED: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Online softmax over the keys first_key .. end_key - 1 of a sequence: row_max, row_sum and acc anew.

    query [rows, HEAD_PAD]; position [rows]: where each row stands in its sequence, it sees the keys up to there;
    row_max, row_sum [rows] and acc [rows, HEAD_PAD] float32: the state so far, with exponents of 2. The cache pointers
    point to the KV head, that of the block table to the row of the sequence. Without MASKED, every row must see all
    of these keys, and they must be whole tiles.
    """
    dims = tl.arange(0, HEAD_PAD)
    key = first_key + tl.arange(0, KEYS)
    block = tl.load(block_table_ptr + key // BLOCK_SIZE, mask=key < end_key, other=0)
    for _ in range(first_key, end_key, KEYS):
        exists = key < end_key if MASKED else tl.full([KEYS], True, tl.int1)
        offsets = (block.to(tl.int64) * stride_block + key % BLOCK_SIZE * stride_slot)[:, None] + dims[None, :]
        in_cache = exists[:, None] & (dims < HEAD_SIZE)[None, :]
        keys = tl.load(key_cache_ptr + offsets, mask=in_cache, other=0.0)
        values = tl.load(value_cache_ptr + offsets, mask=in_cache, other=0.0)
        # Blocks are looked up one tile ahead: loads that wait for a load of their own iteration get half the pipeline.
        next_key = key + KEYS
        block = tl.load(block_table_ptr + next_key // BLOCK_SIZE, mask=next_key < end_key, other=0)
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
        key = next_key
    return row_max, row_sum, acc
