"""Attention of few query tokens over long contexts: the keys of a sequence are divided among programs (flash decoding).

The keys of each sequence are cut into segments. Programs take segments, and leave the maximum, the sum and the weighted
values of each row in each; a second kernel joins them. How long segments are follows from the width of the block tables
alone: neither the rest of the batch nor the number of programs changes a bit of a sequence's result.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pkv_kernels.attention_tile import attend, choose_tile, launch_options, load_rows, padded

SEGMENT_KEYS = 512
"""Keys of a segment, as long as MAX_SEGMENTS of them reach. What a segment leaves is small beside what it reads."""
MAX_SEGMENTS = 32
"""The most segments of a sequence: in wider block tables they are longer."""
PROGRAMS = 512
"""Programs to start where there are as many segments: some more than a large GPU runs at once."""


@triton.jit
def segment_kernel(
    partial_ptr, partial_max_ptr, partial_sum_ptr, query_ptr, key_cache_ptr, value_cache_ptr, block_table_ptr,
    query_start_ptr, seq_len_ptr, segment_keys, max_segments, query_stride_token, query_stride_head,
    cache_stride_block, cache_stride_slot, cache_stride_head, block_table_stride, scale_log2,
    GROUP: tl.constexpr, BLOCK_SIZE: tl.constexpr, HEAD_SIZE: tl.constexpr, HEAD_PAD: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """One of n programs for all rows of a sequence and KV head: every n-th segment of the keys."""
    seq = tl.program_id(0)
    kv_head = tl.program_id(1)
    query_start = tl.load(query_start_ptr + seq)
    query_len = tl.load(query_start_ptr + seq + 1) - query_start
    seq_len = tl.load(seq_len_ptr + seq)
    num_segments = tl.cdiv(seq_len, segment_keys)
    if (query_len == 0) | (tl.program_id(2) >= num_segments):
        return

    rows = tl.arange(0, ROWS)
    query_index = rows // GROUP
    token = query_start + query_index
    head = kv_head * GROUP + rows % GROUP
    exists = query_index < query_len
    query = load_rows(
        query_ptr, token, head, exists, query_stride_token, query_stride_head, HEAD_SIZE, HEAD_PAD, UPCAST
    )

    position = seq_len - query_len + query_index
    key_cache_ptr += kv_head.to(tl.int64) * cache_stride_head
    value_cache_ptr += kv_head.to(tl.int64) * cache_stride_head
    block_table_ptr += seq.to(tl.int64) * block_table_stride
    dims = tl.arange(0, HEAD_PAD)
    for segment in range(tl.program_id(2), num_segments, tl.num_programs(2)):
        row_max, row_sum, acc = attend(
            query, position, tl.full([ROWS], float("-inf"), tl.float32), tl.zeros([ROWS], tl.float32),
            tl.zeros([ROWS, HEAD_PAD], tl.float32), key_cache_ptr, value_cache_ptr, block_table_ptr,
            segment * segment_keys, tl.minimum((segment + 1) * segment_keys, seq_len),
            scale_log2, cache_stride_block, cache_stride_slot, BLOCK_SIZE, KEYS, HEAD_SIZE, HEAD_PAD, True, UPCAST,
        )  # fmt: skip
        row = (token.to(tl.int64) * tl.num_programs(1) * GROUP + head) * max_segments + segment
        tl.store(partial_max_ptr + row, row_max, mask=exists)
        tl.store(partial_sum_ptr + row, row_sum, mask=exists)
        tl.store(partial_ptr + row[:, None] * HEAD_PAD + dims[None, :], acc, mask=exists[:, None])


@triton.jit
def join_kernel(
    out_ptr, partial_ptr, partial_max_ptr, partial_sum_ptr, query_start_ptr, seq_len_ptr, segment_keys, max_segments,
    out_stride_token, out_stride_head, HEAD_SIZE: tl.constexpr, HEAD_PAD: tl.constexpr, SEGMENTS: tl.constexpr,
):  # fmt: skip
    """One program: all segments of one row."""
    seq = tl.program_id(0)
    head = tl.program_id(1)
    token = tl.load(query_start_ptr + seq) + tl.program_id(2)
    if token >= tl.load(query_start_ptr + seq + 1):
        return
    segment = tl.arange(0, SEGMENTS)
    dims = tl.arange(0, HEAD_PAD)
    exists = segment < tl.cdiv(tl.load(seq_len_ptr + seq), segment_keys)
    row = (token.to(tl.int64) * tl.num_programs(1) + head) * max_segments + segment
    row_max = tl.load(partial_max_ptr + row, mask=exists, other=float("-inf"))
    row_sum = tl.load(partial_sum_ptr + row, mask=exists, other=0.0)
    partial = tl.load(partial_ptr + row[:, None] * HEAD_PAD + dims[None, :], mask=exists[:, None], other=0.0)

    largest = tl.max(row_max, 0)
    weights = tl.exp2(row_max - tl.where(largest == float("-inf"), 0.0, largest))
    total = tl.sum(row_sum * weights, 0)
    out = tl.sum(partial * weights[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    out_offsets = token.to(tl.int64) * out_stride_token + head * out_stride_head + dims
    tl.store(out_ptr + out_offsets, out.to(out_ptr.dtype.element_ty), mask=dims < HEAD_SIZE)


def split_attention(
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
    """`paged_attention` by segments, for at most as many query tokens per sequence as fit a short tile.

    Allocates tokens * heads * segments * (padded head size + 2) float32.
    """
    tokens, heads, head_size = query.shape
    kv_heads = key_cache.shape[2]
    tile = choose_tile(query, key_cache, short=True)
    context = block_tables.shape[1] * key_cache.shape[1]
    segment_keys = max(SEGMENT_KEYS, triton.cdiv(context, MAX_SEGMENTS * tile.keys) * tile.keys)
    segments = triton.cdiv(context, segment_keys)
    programs = min(segments, triton.cdiv(PROGRAMS, len(seq_lens) * kv_heads))
    partial = torch.empty(tokens, heads, segments, padded(head_size), dtype=torch.float32, device=query.device)
    partial_max, partial_sum = torch.empty(2, tokens, heads, segments, dtype=torch.float32, device=query.device)
    segment_kernel[len(seq_lens), kv_heads, programs](
        partial, partial_max, partial_sum, query, key_cache, value_cache, block_tables, query_start_locs, seq_lens,
        segment_keys, segments, *query.stride()[:2], *key_cache.stride()[:3], block_tables.stride(0),
        **launch_options(tile, query, key_cache, scale),
    )  # fmt: skip
    join_kernel[len(seq_lens), heads, max_query_len](
        out, partial, partial_max, partial_sum, query_start_locs, seq_lens, segment_keys, segments, *out.stride()[:2],
        HEAD_SIZE=head_size, HEAD_PAD=padded(head_size), SEGMENTS=triton.next_power_of_2(segments),
        num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip
