"""Which rows of a batch attend together on CPUs, and which places of the KV cache they read: alike in all layers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from pkv_engine.model.batch import Batch, padded

ROW_MULTIPLE = 4
KEY_MULTIPLE = 32
"""Of the keys that are looked at: those behind the last one that is seen have a weight of zero."""
KEY_TILE = 128
"""Keys whose weighted values are summed at once."""
QUERY_ROWS = 512
"""Rows of one matrix in a prefill: enough to fill the units, few enough to stay in the processor's cache."""
BY_HEAD_ROWS = 64
"""From as many rows on, heads are computed one by one (see `CpuAttention`)."""
GROUP_KEYS = 1 << 15
"""Keys (padding included) that are gathered at once for sequences that decode together."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What of the model the plan depends on; `group_size` is the number of query heads of one KV head."""

    num_kv_heads: int
    group_size: int
    head_size: int
    block_size: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Tile:
    """`num_tokens` new tokens of each of some sequences: `rows` of the batch, in the order of the sequences. They see
    at most `num_keys` keys (a multiple of KEY_MULTIPLE); `hidden` says which of those from `tail` on they do not see,
    in the form of the scores [sequences * num_kv_heads, padded rows, keys], or one that broadcasts to it."""

    rows: slice | torch.Tensor
    num_tokens: int
    num_keys: int
    tail: int
    hidden: torch.Tensor


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences whose keys are gathered together: `index` [sequences * num_kv_heads * num_keys] are places in a layer's
    cache, seen as [num_blocks * block_size * num_kv_heads, head_size]. `keys` and `values` [sequences * num_kv_heads,
    num_keys, head_size] are where they go, in one layer after another: memory that is new costs more than the copy.
    """

    index: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    tiles: tuple[Tile, ...]
    by_head: bool


def plan_groups(batch: Batch, shape: Shape) -> Iterator[Group]:
    """Sequences with one new token are taken together where they have about as many keys, others one by one."""
    together: dict[int, list[int]] = defaultdict(list)
    for sequence, (computed, count) in enumerate(zip(batch.num_computed, batch.num_new, strict=True)):
        if count == 1:
            together[computed.bit_length()].append(sequence)
            continue
        many = count * shape.group_size >= BY_HEAD_ROWS
        by_head = many and shape.dtype is torch.float32 and torch.backends.mkldnn.is_available()
        multiple = KEY_TILE if by_head else KEY_MULTIPLE
        most = max(1, QUERY_ROWS // shape.group_size)
        tiles = tuple(
            _tile(batch, shape, [sequence], first, min(most, count - first), multiple)
            for first in range(0, count, most)
        )
        yield _group(batch, shape, [sequence], tiles, by_head=by_head)
    for bits, members in sorted(together.items()):
        most = max(1, GROUP_KEYS >> bits)
        for first in range(0, len(members), most):
            part = members[first : first + most]
            yield _group(batch, shape, part, (_tile(batch, shape, part, 0, 1, KEY_MULTIPLE),), by_head=False)


def _tile(batch: Batch, shape: Shape, members: list[int], first: int, count: int, key_multiple: int) -> Tile:
    """New tokens [first, first + count) of each member; members that are several have one each."""
    positions = [batch.num_computed[sequence] + first for sequence in members]
    num_keys, tail = padded(max(positions) + count, key_multiple), min(positions)
    seen = torch.tensor(positions).unsqueeze(-1) + torch.arange(count)
    hidden = torch.arange(tail, num_keys) > seen.unsqueeze(-1)  # [sequences, tokens, keys]
    if count > 1:
        hidden = hidden.repeat_interleave(shape.group_size, 1)
        hidden = F.pad(hidden, (0, 0, 0, padded(hidden.shape[1], ROW_MULTIPLE) - hidden.shape[1]))
    if len(members) > 1:
        hidden = hidden.repeat_interleave(shape.num_kv_heads, 0)
    starts = batch.query_start_locs[members] + first
    if int(starts[-1] - starts[0]) == len(members) - 1:
        begin = int(starts[0])
        return Tile(slice(begin, begin + count * len(members)), count, num_keys, tail, hidden)
    return Tile(starts.long(), count, num_keys, tail, hidden)


def _group(batch: Batch, shape: Shape, members: list[int], tiles: tuple[Tile, ...], *, by_head: bool) -> Group:
    """The keys may go on behind the table: the null block stands there, and no row sees it."""
    num_keys = max(tile.num_keys for tile in tiles)
    width = -(-num_keys // shape.block_size)
    tables = batch.block_tables[members, :width].long()
    tables = F.pad(tables, (0, width - tables.shape[1]))
    slots = (tables.unsqueeze(-1) * shape.block_size + torch.arange(shape.block_size)).flatten(1)[:, :num_keys]
    index = slots.unsqueeze(1) * shape.num_kv_heads + torch.arange(shape.num_kv_heads).unsqueeze(-1)
    size = (len(members) * shape.num_kv_heads, num_keys, shape.head_size)
    return Group(
        index.flatten(), torch.empty(size, dtype=shape.dtype), torch.empty(size, dtype=shape.dtype), tiles, by_head
    )
