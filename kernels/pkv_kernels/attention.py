"""Causal attention over a paged KV cache: prompts, chunks of them behind a cached prefix and decoding alike."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pkv_kernels.attention_tile import attend, choose_tile, launch_options, load_rows
from pkv_kernels.split_attention import SEGMENT_KEYS, split_attention


@triton.jit
def find_sequence(query_start_ptr, tile, num_seqs, QUERIES: tl.constexpr):
    """The sequence that a tile of QUERIES query tokens belongs to.

    Sequence s owns the tiles from query_start[s] // QUERIES + s on: as many as it needs, or one more. So their number
    is known without a look at query_start: tokens // QUERIES + num_seqs.
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
    out_ptr, query_ptr, key_cache_ptr, value_cache_ptr, block_table_ptr, query_start_ptr, seq_len_ptr, num_seqs,
    out_stride_token, out_stride_head, query_stride_token, query_stride_head,
    cache_stride_block, cache_stride_slot, cache_stride_head, block_table_stride, scale_log2,
    GROUP: tl.constexpr, BLOCK_SIZE: tl.constexpr, HEAD_SIZE: tl.constexpr, HEAD_PAD: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """One program: one tile of rows (see attention_tile) against all keys that it sees."""
    QUERIES: tl.constexpr = ROWS // GROUP
    # The last tile of a prompt sees the most keys. It starts first, lest it be left over at the end.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head = tl.program_id(1)
    seq = find_sequence(query_start_ptr, tile, num_seqs, QUERIES)
    query_start = tl.load(query_start_ptr + seq)
    query_len = tl.load(query_start_ptr + seq + 1) - query_start
    first_query = (tile - query_start // QUERIES - seq) * QUERIES
    if first_query >= query_len:
        return

    rows = tl.arange(0, ROWS)
    query_index = first_query + rows // GROUP
    token = query_start + query_index
    head = kv_head * GROUP + rows % GROUP
    exists = (rows < QUERIES * GROUP) & (query_index < query_len)
    query = load_rows(
        query_ptr, token, head, exists, query_stride_token, query_stride_head, HEAD_SIZE, HEAD_PAD, UPCAST
    )

    context_len = tl.load(seq_len_ptr + seq) - query_len
    position = context_len + query_index
    seen_by_all = tl.maximum(context_len + first_query + 1, 0) // KEYS * KEYS
    seen_by_any = context_len + tl.minimum(first_query + QUERIES, query_len)
    row_max = tl.full([ROWS], float("-inf"), tl.float32)
    row_sum = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, HEAD_PAD], tl.float32)
    key_cache_ptr += kv_head.to(tl.int64) * cache_stride_head
    value_cache_ptr += kv_head.to(tl.int64) * cache_stride_head
    block_table_ptr += seq.to(tl.int64) * block_table_stride
    for MASKED in tl.static_range(2):
        row_max, row_sum, acc = attend(
            query, position, row_max, row_sum, acc, key_cache_ptr, value_cache_ptr, block_table_ptr,
            seen_by_all if MASKED else 0, seen_by_any if MASKED else seen_by_all,
            scale_log2, cache_stride_block, cache_stride_slot, BLOCK_SIZE, KEYS, HEAD_SIZE, HEAD_PAD, MASKED, UPCAST,
        )  # fmt: skip

    dims = tl.arange(0, HEAD_PAD)
    out_offsets = (token.to(tl.int64) * out_stride_token + head * out_stride_head)[:, None] + dims[None, :]
    out = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    in_out = exists[:, None] & (dims < HEAD_SIZE)[None, :]
    tl.store(out_ptr + out_offsets, out.to(out_ptr.dtype.element_ty), mask=in_out)


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
    """Writes softmax(scale * query . keys) . values to out, for each query token over the keys up to its position.

    out, query [tokens, heads, head_size], contiguous in head_size; float32, float16 or bfloat16; head_size up to 256.
    key_cache, value_cache [num_blocks, block_size, kv_heads, head_size], contiguous in head_size, with equal strides;
    block_size a power of two; heads a multiple of kv_heads.
    block_tables [seqs, max_blocks] int32: the blocks of each sequence in order; what follows the last is not read.
    query_start_locs [seqs + 1] int32: where the query tokens of each sequence start in query, and their number.
    seq_lens [seqs] int32: keys of each sequence, up to that of its last query token. Sequences without query tokens are
    passed over, and query tokens of sequences without keys get zeros: both may pad the batch of a CUDA graph.
    scale: what scores are multiplied by, usually head_size ** -0.5.
    max_query_len: an upper bound of query tokens per sequence. It decides the tile, and nothing else.

    The keys of all query tokens must be in the cache already (`write_kv`). One kernel takes any mix of sequences. Only
    where no sequence has more query tokens than fit a short tile (16 // group, at least 1), and the block tables hold
    more than SEGMENT_KEYS keys, `split_attention` divides each sequence's keys among several programs.
    """
    tokens, heads, _ = query.shape
    _, block_size, kv_heads, _ = key_cache.shape
    group = heads // kv_heads
    tile = choose_tile(query, key_cache, short=True)
    if max_query_len * group > tile.rows:
        tile = choose_tile(query, key_cache, short=False)
    elif block_tables.shape[1] * block_size > SEGMENT_KEYS:
        split_attention(
            out, query, key_cache, value_cache, block_tables, query_start_locs, seq_lens, scale, max_query_len
        )
        return
    attention_kernel[tokens // (tile.rows // group) + len(seq_lens), kv_heads](
        out, query, key_cache, value_cache, block_tables, query_start_locs, seq_lens, len(seq_lens),
        *out.stride()[:2], *query.stride()[:2], *key_cache.stride()[:3], block_tables.stride(0),
        **launch_options(tile, query, key_cache, scale),
    )  # fmt: skip
