"""Attention over the paged KV cache on CPUs.

Queries of one KV head are the rows of a matrix (new token times head of the group), as in the Triton kernels. A row's
result does not depend, bit for bit, on what is computed with it or on how a prompt was cut into steps, as far as the
matrix product allows it (see `is_stable`): rows are padded to a multiple of 8, and weights meet values in stretches of
KEY_TILE, so that every sum has the same terms in the same order.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from pkv_engine.model.batch import Batch, Share, padded
from pkv_engine.model.kv_cache import LayerCache

ROW_MULTIPLE = 8
KEY_TILE = 256
QUERY_ROWS = 512
"""Rows of one matrix in a prefill: enough to fill the units, few enough to stay in the cache."""
GROUP_KEYS = 1 << 15
"""Keys (padding included) that are gathered at once for sequences that decode together."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """`num_tokens` new tokens of each of some sequences: `rows` of the batch, in the order of the sequences. They see
    at most `num_keys` keys (a multiple of KEY_TILE); `hidden` [sequences, 1, num_tokens, 1, num_keys - tail] says which
    of those from `tail` on they do not see."""

    rows: torch.Tensor
    num_tokens: int
    num_keys: int
    tail: int
    hidden: torch.Tensor


@dataclass(frozen=True, slots=True)
class _Group:
    """Sequences whose keys are gathered together: `index` [sequences * num_kv_heads * num_keys] are places in a layer's
    cache, seen as [num_blocks * block_size * num_kv_heads, head_size]."""

    index: torch.Tensor
    num_keys: int
    tiles: tuple[_Tile, ...]


class CpuAttention:
    """The attention of one step: made once, used in every layer."""

    def __init__(self, batch: Batch, num_heads: int, num_kv_heads: int, head_size: int, block_size: int) -> None:
        self._batch = batch
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
        out = torch.zeros_like(query)
        for group in self._groups:
            # [sequences * num_kv_heads, num_keys, head_size]
            keys, values = (
                part.view(-1, self._head_size).index_select(0, group.index).view(-1, group.num_keys, self._head_size)
                for part in (cache.keys, cache.values)
            )
            for tile in group.tiles:
                out.index_copy_(0, tile.rows, self._attend(query.index_select(0, tile.rows), keys, values, tile))
        return out

    def _attend(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, tile: _Tile) -> torch.Tensor:
        shape = (-1, self._num_kv_heads, tile.num_tokens, self._group_size)
        num_rows = tile.num_tokens * self._group_size
        # [sequences, tokens, KV heads, group] to [sequences * KV heads, tokens * group]
        x = query.view(-1, tile.num_tokens, self._num_kv_heads, self._group_size, self._head_size).transpose(1, 2)
        x = x.reshape(-1, num_rows, self._head_size)
        x = torch.nn.functional.pad(x, (0, 0, 0, padded(num_rows, ROW_MULTIPLE) - num_rows))
        scores = x.new_empty(*x.shape[:2], tile.num_keys)
        torch.baddbmm(
            scores,
            x,
            keys[:, : tile.num_keys].transpose(1, 2),
            beta=0,
            alpha=1 / math.sqrt(self._head_size),
            out=scores,
        )
        scores[:, :num_rows].unflatten(1, shape[2:]).unflatten(0, shape[:2])[..., tile.tail :].masked_fill_(
            tile.hidden, -math.inf
        )
        weights = torch.softmax(scores, -1)
        out = torch.bmm(weights[..., :KEY_TILE], values[:, :KEY_TILE])
        for start in range(KEY_TILE, tile.num_keys, KEY_TILE):
            end = start + KEY_TILE
            torch.baddbmm(out, weights[..., start:end], values[:, start:end], out=out)
        return out[:, :num_rows].view(*shape, self._head_size).transpose(1, 2).reshape(query.shape)

    def _plan(self) -> Iterator[_Group]:
        """Sequences with one new token are taken together where they have about as many keys, others one by one."""
        batch = self._batch
        starts = batch.query_start_locs.tolist()
        together: dict[int, list[int]] = defaultdict(list)
        for index, (computed, count) in enumerate(zip(batch.num_computed, batch.num_new, strict=True)):
            num_keys = padded(computed + count, KEY_TILE)
            if count == 1:
                together[KEY_TILE << (num_keys // KEY_TILE - 1).bit_length()].append(index)
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
        return _Group(index.flatten(), num_keys, tiles)

    def _tile(self, members: list[int], starts: list[int], first: int, count: int) -> _Tile:
        """New tokens [first, first + count) of each member."""
        batch = self._batch
        positions = [batch.num_computed[index] + first for index in members]
        num_keys = padded(max(positions) + count, KEY_TILE)
        tail = min(positions)
        seen = torch.tensor(positions).unsqueeze(-1) + torch.arange(count)
        hidden = torch.arange(tail, num_keys) > seen.unsqueeze(-1)
        rows = torch.cat([torch.arange(count) + starts[index] + first for index in members])
        return _Tile(rows, count, num_keys, tail, hidden[:, None, :, None])


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
        step = CpuAttention(Batch.build(shares, block_size), num_heads, num_kv_heads, head_size, block_size)
        return step(query[rows], key[rows], key[rows], cache)

    whole = attend((0, length))
    ends = (1, 7, KEY_TILE, KEY_TILE + 1, length)
    decoded = attend(*((end - 1, end) for end in ends))
    chunk = attend((KEY_TILE - 9, KEY_TILE + 40))
    return torch.equal(decoded, whole[[end - 1 for end in ends]]) and torch.equal(
        chunk, whole[KEY_TILE - 9 : KEY_TILE + 40]
    )
