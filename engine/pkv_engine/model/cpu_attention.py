"""Attention over the paged KV cache on CPUs.

Queries of one KV head are the rows of a matrix (new token times head of the group), as in the Triton kernels. A row's
result does not depend, bit for bit, on what is computed with it or on how a prompt was cut into steps, as far as the
matrix products allow it (see `is_stable`): rows are padded to a multiple of ROW_MULTIPLE, and weights meet values in
stretches of KEY_TILE, so that every sum has the same terms in the same order, and zeros at its end.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from pkv_engine.model.attention_plan import KEY_TILE, ROW_MULTIPLE, Shape, Tile, plan_groups
from pkv_engine.model.batch import Batch, Share, padded
from pkv_engine.model.kv_cache import LayerCache
from pkv_engine.model.linear import linear_pointwise


class CpuAttention:
    """The attention of one step: planned once, used in every layer."""

    def __init__(self, batch: Batch, shape: Shape) -> None:
        self._batch = batch
        self._shape = shape
        self._scale = 1 / math.sqrt(shape.head_size)
        self._groups = tuple(plan_groups(batch, shape))

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cache: LayerCache) -> torch.Tensor:
        """Writes the new keys and values of the whole batch, then attends.

        `query` [rows, num_heads, head_size], `key` and `value` [rows, num_kv_heads, head_size]; the result has the
        shape of `query`. Rows that pad the batch come out as zeros.
        """
        new = self._batch.num_tokens
        cache.keys.flatten(0, 1).index_copy_(0, self._batch.slot_mapping, key[:new])
        cache.values.flatten(0, 1).index_copy_(0, self._batch.slot_mapping, value[:new])
        out = torch.zeros_like(query, memory_format=torch.contiguous_format)
        # Not as a factor of the product: libraries disagree about when to multiply.
        query = query * self._scale
        size = self._shape.head_size
        for group in self._groups:
            for part, gathered in ((cache.keys, group.keys), (cache.values, group.values)):
                torch.index_select(part.view(-1, size), 0, group.index, out=gathered.view(-1, size))
            if group.by_head:
                # [KV heads, stretches, head_size, KEY_TILE]: what is summed over comes last in a linear layer's weight.
                values = group.values.unflatten(1, (-1, KEY_TILE)).transpose(2, 3).contiguous()
                for tile in group.tiles:
                    out[tile.rows] = self._attend_by_head(query[tile.rows], group.keys, values, tile)
            else:
                for tile in group.tiles:
                    out[tile.rows] = self._attend(query[tile.rows], group.keys, group.values, tile)
        return out

    def _attend(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, tile: Tile) -> torch.Tensor:
        """All sequences and heads of a tile at once."""
        shape = self._shape
        form = (-1, shape.num_kv_heads, tile.num_tokens, shape.group_size, shape.head_size)
        num_rows = tile.num_tokens * shape.group_size
        x = query.view(-1, tile.num_tokens, shape.num_kv_heads, shape.group_size, shape.head_size).transpose(1, 2)
        x = x.reshape(-1, num_rows, shape.head_size)
        x = F.pad(x, (0, 0, 0, padded(num_rows, ROW_MULTIPLE) - num_rows))
        scores = torch.bmm(x, keys[:, : tile.num_keys].transpose(1, 2))
        scores[..., tile.tail :].masked_fill_(tile.hidden, -math.inf)
        weights = torch.softmax(scores, -1).split(KEY_TILE, -1)
        first, *more = zip(weights, values[:, : tile.num_keys].split(KEY_TILE, 1), strict=True)
        out = torch.bmm(*first)
        for weight, value in more:
            torch.baddbmm(out, weight, value, out=out)
        return out[:, :num_rows].view(form).transpose(1, 2).reshape(query.shape)

    def _attend_by_head(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, tile: Tile
    ) -> torch.Tensor:
        """The same for one sequence with many rows, in float32: oneDNN's product of two matrices beats torch.bmm, whose
        batches pay where there are few rows (measured on an AMD EPYC: two thirds of the time)."""
        x = query.unflatten(1, (self._shape.num_kv_heads, -1)).transpose(0, 1)
        heads = []
        for rows, head_keys, head_values in zip(x.flatten(1, 2), keys, values, strict=True):
            scores = linear_pointwise(rows, head_keys[: tile.num_keys])
            scores[:, tile.tail :].masked_fill_(tile.hidden[0, : len(rows)], -math.inf)
            weights = torch.softmax(scores, -1).split(KEY_TILE, -1)
            head = linear_pointwise(weights[0], head_values[0])
            for weight, value in zip(weights[1:], head_values[1 : len(weights)], strict=True):
                head += linear_pointwise(weight, value)
            heads.append(head)
        return torch.stack(heads).view(x.shape).transpose(0, 1).reshape(query.shape)


def is_stable(shape: Shape) -> bool:
    """Whether rows come out the same, bit for bit, computed token by token beside others or all at once."""
    random = torch.Generator().manual_seed(0)
    length, table = 2 * KEY_TILE + 44, list(range(1, -(-(2 * KEY_TILE + 44) // shape.block_size) + 1))
    size = (len(table) + 1, shape.block_size, shape.num_kv_heads, shape.head_size)
    query = torch.randn(length, shape.num_kv_heads * shape.group_size, shape.head_size, generator=random)
    key = torch.randn(length, shape.num_kv_heads, shape.head_size, generator=random).to(shape.dtype)
    cache = LayerCache(torch.zeros(size, dtype=shape.dtype), torch.zeros(size, dtype=shape.dtype))

    def attend(*chunks: tuple[int, int]) -> torch.Tensor:
        shares = [Share([0] * (end - start), start, table, False) for start, end in chunks]
        rows = torch.cat([torch.arange(*chunk) for chunk in chunks])
        step = CpuAttention(Batch.build(shares, shape.block_size), shape)
        return step(query[rows].to(shape.dtype), key[rows], key[rows], cache)

    whole = attend((0, length))
    ends = (1, 7, KEY_TILE, KEY_TILE + 1, length)
    decoded = attend(*((end - 1, end) for end in ends))
    start, end = KEY_TILE - 9, KEY_TILE + 40
    return torch.equal(decoded, whole[[end - 1 for end in ends]]) and torch.equal(
        attend((start, end)), whole[start:end]
    )
