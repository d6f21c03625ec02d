"""Causal attention over a paged KV cache: prompts, chunks of prompts behind a cached prefix and decoding in one launch."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from pkv_kernels.attention_tile import INTERPRETED, attend, load_rows, long_tile, padded, short_tile
from pkv_kernels.split_attention import SEGMENT_KEYS, split_attention


@triton.jit
def find_sequence(query_start_ptr, tile, num_seqs, QUERIES: tl.constexpr):
    """The sequence that a tile of QUERIES query tokens belongs to.

    Sequence s owns the tiles from query_start[s] // QUERIES + s on. That leaves each of them as many as it needs or one more,
    and their number is known from shapes alone: tokens // QUERIES + num_seqs.
    """
    low = 0
    high = num_seqs - 1
    while low < high:
        middle = (low + high + 1) // 2
        if tl.load(query_start_ptr + middle) // QUERIES + middle <= tile:
            low = middle
        else:
            high = middle - 1
    return low


@triton.jit(do_not_specialize=["num_seqs"])
def attention_kernel(
    out_ptr,
    query_ptr,
    key_cache_ptr,
    value_cache_ptr,
    block_table_ptr,
    query_start_ptr,
    seq_len_ptr,
    scale_log2,
    num_seqs,
    out_stride_token,
    out_stride_head,
    q_stride_token,
    q_stride_head,
    k_stride_block,
    k_stride_slot,
    k_stride_head,
    v_stride_block,
    v_stride_slot,
    v_stride_head,
    block_table_stride,
    GROUP: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """One program: one tile of rows (see attention_tile) against all keys that it sees."""
    QUERIES: tl.constexpr = ROWS // GROUP
    tile = tl.num_programs(0) - 1 - tl.program_id(0)  # late tiles see more keys: they start first, so none is left at the end
    kv_head = tl.program_id(1)
    seq = find_sequence(query_start_ptr, tile, num_seqs, QUERIES)
    query_start = tl.load(query_start_ptr + seq)
    query_len = tl.load(query_start_ptr + seq + 1) - query_start
    first_query = (tile - query_start // QUERIES - seq) * QUERIES
    if first_query >= query_len:
        return

    rows = tl.arange(0, ROWS)
    query_index = first_query + rows // GROUP
    head = kv_head * GROUP + rows % GROUP
    row_exists = (rows < QUERIES * GROUP) & (query_index < query_len)
    query = load_rows(
        query_ptr, query_start + query_index, head, row_exists, q_stride_token, q_stride_head, HEAD_SIZE, HEAD_PAD
    )
    if UPCAST:
        query = query.to(tl.float32)

    seq_len = tl.load(seq_len_ptr + seq)
    first_position = seq_len - query_len + first_query
    seen_by_all = (first_position + 1) // KEYS * KEYS
    seen_by_any = tl.minimum(first_position + QUERIES, seq_len)
    position = seq_len - query_len + query_index
    row_max = tl.full([ROWS], float("-inf"), tl.float32)
    row_sum = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, HEAD_PAD], tl.float32)
    key_cache_ptr += kv_head.to(tl.int64) * k_stride_head
    value_cache_ptr += kv_head.to(tl.int64) * v_stride_head
    block_table_ptr += seq.to(tl.int64) * block_table_stride
    for MASKED in tl.static_range(2):
        row_max, row_sum, acc = attend(
            query,
            position,
            row_max,
            row_sum,
            acc,
            key_cache_ptr,
            value_cache_ptr,
            block_table_ptr,
            seen_by_all if MASKED else 0,
            seen_by_any if MASKED else seen_by_all,
            scale_log2,
            k_stride_block,
            k_stride_slot,
            v_stride_block,
            v_stride_slot,
            BLOCK_SIZE,
            KEYS,
            HEAD_SIZE,
            HEAD_PAD,
            MASKED,
            UPCAST,
        )

    acc = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    dims = tl.arange(0, HEAD_PAD)
    out_offsets = ((query_start + query_index).to(tl.int64) * out_stride_token + head * out_stride_head)[:, None]
    tl.store(
        out_ptr + out_offsets + dims[None, :],
        acc.to(out_ptr.dtype.element_ty),
        mask=row_exists[:, None] & (dims < HEAD_SIZE)[None, :],
    )


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
    """Writes softmax(scale * query . keys) . values to out, for every query token over the keys up to its own position.

    out, query [tokens, heads, head_size], contiguous in head_size; head_size a multiple of 16 up to 256.
    key_cache, value_cache [num_blocks, block_size, kv_heads, head_size], contiguous in head_size; heads = kv_heads * group.
    block_tables [seqs, max_blocks] int32: the blocks of each sequence in order. What lies behind its last block is not read.
    query_start_locs [seqs + 1] int32: sequence s owns the query tokens query_start_locs[s] .. query_start_locs[s + 1] - 1.
    seq_lens [seqs] int32: keys of each sequence, the query tokens included; these are its last ones. A sequence without
    query tokens is passed over, and query tokens of one without keys get zeros (both pad batches of CUDA graphs).
    scale: what scores are multiplied by, usually head_size ** -0.5.
    max_query_len: the most query tokens of one sequence, or more. It picks the tile, and nothing else.

    The keys of all query tokens must have been written (`write_kv`). One launch takes any mix of sequences. Only when none has
    more query tokens than a short tile holds (16 // group, 1 at least), and the block tables are wider than SEGMENT_KEYS keys,
    split_attention divides the keys of each sequence among several programs.
    """
    tokens, heads, head_size = query.shape
    _, block_size, kv_heads, _ = key_cache.shape
    group = heads // kv_heads
    tile = short_tile(query.dtype, head_size, group)
    if max_query_len * group > tile.rows:
        tile = long_tile(query.dtype, head_size, group)
    elif block_tables.shape[1] * block_size > SEGMENT_KEYS:
        split_attention(
            out, query, key_cache, value_cache, block_tables, query_start_locs, seq_lens, scale, max_query_len
        )
        return
    attention_kernel[tokens // (tile.rows // group) + len(seq_lens), kv_heads](
        out,
        query,
        key_cache,
        value_cache,
        block_tables,
        query_start_locs,
        seq_lens,
        scale * math.log2(math.e),
        len(seq_lens),
        *out.stride()[:2],
        *query.stride()[:2],
        *key_cache.stride()[:3],
        *value_cache.stride()[:3],
        block_tables.stride(0),
        GROUP=group,
        BLOCK_SIZE=block_size,
        HEAD_SIZE=head_size,
        HEAD_PAD=padded(head_size),
        ROWS=tile.rows,
        KEYS=tile.keys,
        UPCAST=INTERPRETED and query.dtype == torch.bfloat16,
        num_warps=tile.warps,
        num_stages=tile.stages,
        enable_fp_fusion=True,
    )
