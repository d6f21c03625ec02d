"""One step as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch


class Share(NamedTuple):
    """What one sequence computes in a step: `token_ids` stand at positions [first_position, first_position + count).
    `block_table` reaches at least to the last of them. `samples`: the logits behind the last token are wanted."""

    token_ids: Sequence[int]
    first_position: int
    block_table: Sequence[int]
    samples: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """The tokens of a step, one sequence after another, padded at the end to a number of rows that suits the device.

    `token_ids` and `positions` [rows] int64, `slot_mapping` [num_tokens] int64 (block times block size plus offset);
    for each of `num_seqs` sequences `query_start_locs` [num_seqs + 1] int32, `seq_lens` [num_seqs] int32 (with the new
    tokens) and `block_tables` [num_seqs, most blocks] int32, padded with the null block; `sampled_rows` int64 are the
    rows whose logits are wanted, padded like the rows. `num_computed` and `num_new` are counts of tokens per sequence.
    """

    num_tokens: int
    token_ids: torch.Tensor
    positions: torch.Tensor
    slot_mapping: torch.Tensor
    query_start_locs: torch.Tensor
    seq_lens: torch.Tensor
    block_tables: torch.Tensor
    sampled_rows: torch.Tensor
    num_sampled: int
    num_computed: tuple[int, ...]
    num_new: tuple[int, ...]

    @property
    def max_query_len(self) -> int:
        return max(self.num_new)

    @classmethod
    def build(cls, shares: Sequence[Share], block_size: int, row_multiple: int = 1) -> Batch:
        """On the CPU; `to` moves it."""
        num_new = [len(share.token_ids) for share in shares]
        starts = [0, *accumulate(num_new)]
        num_tokens = starts[-1]
        rows = padded(num_tokens, row_multiple)
        token_ids, positions = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        slots = np.empty(num_tokens, np.int64)
        tables = np.zeros((len(shares), max(len(share.block_table) for share in shares)), np.int32)
        for index, (share, start, count) in enumerate(zip(shares, starts, num_new, strict=False)):
            tables[index, : len(share.block_table)] = share.block_table
            token_ids[start : start + count] = share.token_ids
            place = np.arange(share.first_position, share.first_position + count)
            positions[start : start + count] = place
            slots[start : start + count] = tables[index, place // block_size] * block_size + place % block_size
        sampled = [end - 1 for end, share in zip(starts[1:], shares, strict=True) if share.samples]
        sampled_rows = np.zeros(padded(len(sampled), row_multiple), np.int64)
        sampled_rows[: len(sampled)] = sampled
        computed = tuple(share.first_position for share in shares)
        return cls(
            num_tokens=num_tokens,
            token_ids=torch.from_numpy(token_ids),
            positions=torch.from_numpy(positions),
            slot_mapping=torch.from_numpy(slots),
            query_start_locs=torch.tensor(starts, dtype=torch.int32),
            seq_lens=torch.tensor([sum(pair) for pair in zip(computed, num_new, strict=True)], dtype=torch.int32),
            block_tables=torch.from_numpy(tables),
            sampled_rows=torch.from_numpy(sampled_rows),
            num_sampled=len(sampled),
            num_computed=computed,
            num_new=tuple(num_new),
        )

    @classmethod
    def padding(cls, num_seqs: int, num_blocks: int) -> Batch:
        """Sequences with one token each that have no keys and are written nowhere (slot -1): the inputs of CUDA graphs,
        before they are filled."""
        rows = torch.arange(num_seqs)
        return cls(
            num_tokens=num_seqs,
            token_ids=torch.zeros(num_seqs, dtype=torch.int64),
            positions=torch.zeros(num_seqs, dtype=torch.int64),
            slot_mapping=torch.full((num_seqs,), -1),
            query_start_locs=torch.arange(num_seqs + 1, dtype=torch.int32),
            seq_lens=torch.zeros(num_seqs, dtype=torch.int32),
            block_tables=torch.zeros(num_seqs, num_blocks, dtype=torch.int32),
            sampled_rows=rows,
            num_sampled=num_seqs,
            num_computed=(0,) * num_seqs,
            num_new=(1,) * num_seqs,
        )

    def to(self, device: torch.device) -> Batch:
        return replace(self, **{name: getattr(self, name).to(device, non_blocking=True) for name in _TENSORS})

    def head(self, num_seqs: int) -> Batch:
        """The first sequences of a batch in which each has one token: views of its tensors."""
        ends = {"query_start_locs": num_seqs + 1}
        views = {name: getattr(self, name)[: ends.get(name, num_seqs)] for name in _TENSORS}
        return replace(
            self,
            **views,
            num_tokens=num_seqs,
            num_sampled=num_seqs,
            num_computed=self.num_computed[:num_seqs],
            num_new=self.num_new[:num_seqs],
        )

    def fill(self, batch: Batch) -> None:
        """Copies a batch that is no larger, and makes what is behind it padding. Both have one token per sequence."""
        count = len(batch.num_new)
        for name in ("token_ids", "positions", "slot_mapping", "seq_lens"):
            getattr(self, name)[:count].copy_(getattr(batch, name)[:count], non_blocking=True)
        self.block_tables[:count, : batch.block_tables.shape[1]].copy_(batch.block_tables, non_blocking=True)
        self.slot_mapping[count:] = -1
        self.seq_lens[count:] = 0


_TENSORS = (
    "token_ids",
    "positions",
    "slot_mapping",
    "query_start_locs",
    "seq_lens",
    "block_tables",
    "sampled_rows",
)


def padded(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
