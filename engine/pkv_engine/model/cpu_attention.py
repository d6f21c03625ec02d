"""Attention over the paged KV cache on CPUs.

Queries of one KV head are the rows of a matrix (new token times head of the group), as in the Triton kernels. A row's
result does not depend, bit for bit, on what is computed with it or on how a prompt was cut into steps, as far as the
matrix product allows it (see `is_stable`): rows are padded to a multiple of ROW_MULTIPLE, and weights meet values in
stretches of KEY_TILE, so that every sum has the same terms in the same order, and zeros at its end.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from pkv_engine.model.batch import Batch, Share, padded
from pkv_engine.model.kv_cache import LayerCache

ROW_MULTIPLE = 4
KEY_TILE = 128
KEY_MULTIPLE = 32
"""Of the keys that are looked at: those behind the last one that is seen have a weight of zero."""
QUERY_ROWS = 256
"""Rows of one matrix in a prefill: enough to fill the units, few enough to stay in the cache."""
GROUP_KEYS = 1 << 15
"""Keys (padding included) that are gathered at once for sequences that decode together."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """`num_tokens` new tokens of each of some sequences: `rows` of the batch, in the order of the sequences. They see
    at most `num_keys` keys (a multiple of KEY_MULTIPLE); `hidden` says which of those from `tail` on they do not see,
    in the form of the scores, or one that broadcasts to it."""

    rows: slice | torch.Tensor
    num_tokens: int
    num_keys: int
    tail: int
    hidden: torch.Tensor


@dataclass(frozen=True, slots=True)
class _Group:
    """Sequences whose keys are gathered together: `index` [sequences * num_kv_heads * num_keys] are places in a layer's
    cache, seen as [num_blocks * block_size * num_kv_heads, head_size]. `keys` and `values` [sequences * num_kv_heads,
    num_keys, head_size] are where they go, in one layer after another: memory that is new costs more than the copy."""

    index: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    tiles: tuple[_Tile, ...]


class CpuAttention:
    """The attention of one step: made once, used in every layer."""

    def __init__(
        self,
        batch: Batch,
        num_heads: int,
        num_kv_heads: int,
        head_size: int,
        block_size: int,
        dtype: torch.dtype,
    ) -> None:
        self._batch = batch
        self._dtype = dtype
        self._num_kv_heads = num_kv_heads
        self._group_size = num_heads // num_kv_heads
        self._head_size = head_size
        self._block_size = block_size
        self._groups = tuple(self._plan())

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cache: LayerCache) -> torch.Tensor:
        """Writes the new keys and values of the whole batch, then attends.

        `query` [rows, num_heads, head_size], `key` and `value` [rows, num_kv_heads, head_size]; the result has the
        shape of `query`. Rows that pad the batch come out as zeros.
        """
        new = self._batch.num_tokens
        cache.keys.flatten(0, 1).index_copy_(0, self._batch.slot_mapping, key[:new])
        cache.values.flatten(0, 1).index_copy_(0, self._batch.slot_mapping, value[:new])
        out = torch.zeros_like(query, memory_format=torch.contiguous_format)
        for group in self._groups:
            # [sequences * num_kv_heads, num_keys, head_size]
            for part, gathered in ((cache.keys, group.keys), (cache.values, group.values)):
                torch.index_select(
                    part.view(-1, self._head_size), 0, group.index, out=gathered.view(-1, self._head_size)
                )
            for tile in group.tiles:
                out[tile.rows] = self._attend(query[tile.rows], group.keys, group.values, tile)
        return out

    def _attend(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, tile: _Tile) -> torch.Tensor:
        num_rows = tile.num_tokens * self._group_size
        # [sequences, tokens, KV heads, group] to [sequences * KV heads, tokens * group]
        x = query.unflatten(0, (-1, tile.num_tokens)).unflatten(2, (self._num_kv_heads, self._group_size))
        x = x.transpose(1, 2).reshape(-1, num_rows, self._head_size)
        x = torch.nn.functional.pad(x, (0, 0, 0, padded(num_rows, ROW_MULTIPLE) - num_rows))
        scores = torch.baddbmm(
            x.new_empty(1, 1, 1),
            x,
            keys[:, : tile.num_keys].transpose(1, 2),
            beta=0,
            alpha=1 / math.sqrt(self._head_size),
        )
        scores[..., tile.tail :].masked_fill_(tile.hidden, -math.inf)
        weights = torch.softmax(scores, -1)
        first, *more = zip(weights.split(KEY_TILE, -1), values[:, : tile.num_keys].split(KEY_TILE, 1), strict=True)
        out = torch.bmm(*first)
        for weight, value in more:
            torch.baddbmm(out, weight, value, out=out)
        out = out[:, :num_rows].unflatten(1, (tile.num_tokens, -1)).unflatten(0, (-1, self._num_kv_heads))
        return out.transpose(1, 2).reshape(query.shape)

    def _plan(self) -> Iterator[_Group]:
        """Sequences with one new token are taken together where they have about as many keys, others one by one."""
        batch = self._batch
        starts = batch.query_start_locs.tolist()
        together: dict[int, list[int]] = defaultdict(list)
        for index, (computed, count) in enumerate(zip(batch.num_computed, batch.num_new, strict=True)):
            num_keys = padded(computed + count, KEY_MULTIPLE)
            if count == 1:
                together[1 << (num_keys - 1).bit_length()].append(index)
            else:
                tokens = max(1, QUERY_ROWS // self._group_size)
                tiles = tuple(
                    self._tile([index], starts, first, min(tokens, count - first)) for first in range(0, count, tokens)
                )
                yield self._group([index], num_keys, tiles)
        for bound, members in sorted(together.items()):
            most = max(1, GROUP_KEYS // bound)
            for first in range(0, len(members), most):
                part = members[first : first + most]
                tile = self._tile(part, starts, 0, 1)
                yield self._group(part, tile.num_keys, (tile,))

    def _group(self, members: list[int], num_keys: int, tiles: tuple[_Tile, ...]) -> _Group:
        """`num_keys` may go beyond the table: the null block stands there, and no row sees it."""
        width = -(-num_keys // self._block_size)
        tables = self._batch.block_tables[members, :width].long()
        tables = torch.nn.functional.pad(tables, (0, width - tables.shape[1]))
        slots = (tables.unsqueeze(-1) * self._block_size + torch.arange(self._block_size)).flatten(1)[:, :num_keys]
        index = slots.unsqueeze(1) * self._num_kv_heads + torch.arange(self._num_kv_heads).unsqueeze(-1)
        shape = (len(members) * self._num_kv_heads, num_keys, self._head_size)
        keys, values = torch.empty(shape, dtype=self._dtype), torch.empty(shape, dtype=self._dtype)
        return _Group(index.flatten(), keys, values, tiles)

    def _tile(self, members: list[int], starts: list[int], first: int, count: int) -> _Tile:
        """New tokens [first, first + count) of each member."""
        batch = self._batch
        positions = [batch.num_computed[index] + first for index in members]
        num_keys = padded(max(positions) + count, KEY_MULTIPLE)
        tail = min(positions)
        seen = torch.tensor(positions).unsqueeze(-1) + torch.arange(count)
        hidden = torch.arange(tail, num_keys) > seen.unsqueeze(-1)  # [sequences, tokens, keys]
        if count > 1:
            hidden = hidden.repeat_interleave(self._group_size, 1)
            hidden = torch.nn.functional.pad(hidden, (0, 0, 0, padded(hidden.shape[1], ROW_MULTIPLE) - hidden.shape[1]))
        if len(members) > 1:
            hidden = hidden.repeat_interleave(self._num_kv_heads, 0)
        begin = starts[members[0]] + first
        if len(members) == 1 or members == list(range(members[0], members[0] + len(members))):
            # Sequences that follow each other in the batch have one new token each.
            return _Tile(slice(begin, begin + count * len(members)), count, num_keys, tail, hidden)
        return _Tile(torch.tensor([starts[index] for index in members]), count, num_keys, tail, hidden)


def is_stable(num_heads: int, num_kv_heads: int, head_size: int, dtype: torch.dtype) -> bool:
    """Whether rows come out the same, bit for bit, computed token by token beside others or all at once."""
    random = torch.Generator().manual_seed(0)
    length, block_size, table = 2 * KEY_TILE + 44, 32, list(range(1, 19))
    query = torch.randn(length, num_heads, head_size, generator=random).to(dtype)
    key = torch.randn(length, num_kv_heads, head_size, generator=random).to(dtype)
    cache = LayerCache(*(torch.zeros(19, block_size, num_kv_heads, head_size, dtype=dtype) for _ in range(2)))

    def attend(*chunks: tuple[int, int]) -> torch.Tensor:
        shares = [Share([0] * (end - start), start, table, False) for start, end in chunks]
        rows = torch.cat([torch.arange(*chunk) for chunk in chunks])
        step = CpuAttention(Batch.build(shares, block_size), num_heads, num_kv_heads, head_size, block_size, dtype)
        return step(query[rows], key[rows], key[rows], cache)

    whole = attend((0, length))
    ends = (1, 7, KEY_TILE, KEY_TILE + 1, length)
    decoded = attend(*((end - 1, end) for end in ends))
    chunk = attend((KEY_TILE - 9, KEY_TILE + 40))
    return torch.equal(decoded, whole[[end - 1 for end in ends]]) and torch.equal(
        chunk, whole[KEY_TILE - 9 : KEY_TILE + 40]
    )
