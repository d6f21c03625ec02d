"""One KV cache group: the layers that share a block table, and what their attention needs of it.

vLLM's `v1/core/single_type_kv_cache_manager.py`. The four abstract methods are what tells one attention type from
another; block tables, adoption of hits, registration and freeing are the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from pkv_lint.prompt.errors import InputError
from pkv_sim.exact.block_pool import NULL_BLOCK, BlockPool
from pkv_sim.exact.request import Request


@dataclass(frozen=True, slots=True)
class CacheGroupSpec:
    """A group as vLLM names it (`kv_cache_spec_kind` in its KV events) and its block size in tokens."""

    kind: str
    block_size: int


class CacheGroup(ABC):
    """Block tables by request id. A table only grows until its request is freed; the next one gets a fresh list."""

    def __init__(self, pool: BlockPool, group_id: int, block_size: int) -> None:
        self.pool = pool
        self.group_id = group_id
        self.block_size = block_size
        self.tables: dict[str, list[int]] = {}
        self._num_cached_blocks: dict[str, int] = {}

    @abstractmethod
    def find_hit(self, block_hashes: Sequence[bytes], max_tokens: int) -> list[int]:
        """The cached blocks that serve the longest prefix of at most `max_tokens`, as the start of a block table."""

    @abstractmethod
    def blocks_needed(self, num_tokens: int) -> int:
        """The length of a block table that holds `num_tokens`."""

    @abstractmethod
    def registrable(self, request: Request, first: int, last: int) -> Sequence[int]:
        """Which of the full blocks [first, last) of a request get a hash."""

    @abstractmethod
    def skipped(self, num_computed_tokens: int) -> int:
        """How many tokens at the start are not read any more once `num_computed_tokens` are computed."""

    def blocks_to_allocate(self, request_id: str, num_tokens: int, hit: Sequence[int]) -> int:
        """The free blocks that a request takes to hold `num_tokens`: new ones, and those of its hit that are free now
        (they leave the free queue when they are adopted)."""
        new = max(0, self.blocks_needed(num_tokens) - len(hit) - len(self.tables.get(request_id, ())))
        if not hit:
            return new
        refs = self.pool.ref_counts
        return new + sum(1 for block in hit if not refs[block] and block != NULL_BLOCK)

    def adopt(self, request_id: str, hit: Sequence[int]) -> None:
        """Starts the block table of a request with a hit."""
        self.pool.touch(hit)
        self.tables[request_id] = list(hit)
        self._num_cached_blocks[request_id] = len(hit)

    def extend(self, request_id: str, num_tokens: int) -> None:
        """Takes new blocks until the table holds `num_tokens`."""
        table = self.tables[request_id]
        missing = self.blocks_needed(num_tokens) - len(table)
        if missing > 0:
            table += self.pool.get_new_blocks(missing)

    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        """Registers the blocks that are full with the first `num_tokens` tokens and were not registered yet."""
        cached = self._num_cached_blocks[request.request_id]
        full = num_tokens // self.block_size
        if cached >= full:
            return
        self.pool.cache_full_blocks(
            request,
            self.tables[request.request_id],
            cached,
            full,
            block_size=self.block_size,
            group_id=self.group_id,
            registrable=self.registrable(request, cached, full),
        )
        self._num_cached_blocks[request.request_id] = full

    def free_skipped(self, request_id: str, num_computed_tokens: int) -> None:
        """Lets go of the blocks that hold only tokens that are not read any more; the null block takes their place."""
        count = self.skipped(num_computed_tokens) // self.block_size
        if not count:
            return
        table = self.tables.get(request_id, [])
        freed = []
        for index in range(min(count, len(table)) - 1, -1, -1):
            if table[index] == NULL_BLOCK:
                break
            freed.append(table[index])
            table[index] = NULL_BLOCK
        self.pool.free_blocks(freed)

    def free(self, request_id: str) -> None:
        """Lets go of all blocks of a request, last one first: the tail of a chain is evicted before its head."""
        self._num_cached_blocks.pop(request_id, None)
        self.pool.free_blocks(reversed(self.tables.pop(request_id, [])))


class FullAttentionGroup(CacheGroup):
    """Every token is read until the request ends, so every full block is kept and worth a hash."""

    def find_hit(self, block_hashes: Sequence[bytes], max_tokens: int) -> list[int]:
        blocks = []
        lookup = self.pool.get_cached_block
        for block_hash in islice(block_hashes, max_tokens // self.block_size):
            block = lookup(block_hash, self.group_id)
            if block is None:
                # Hashes are chained: what follows a missing block cannot be used.
                break
            blocks.append(block)
        return blocks

    def blocks_needed(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def registrable(self, request: Request, first: int, last: int) -> Sequence[int]:
        return range(first, last)

    def skipped(self, num_computed_tokens: int) -> int:
        return 0


# MLA layers store one latent vector instead of keys and values; their blocks behave alike.
_GROUPS: dict[str, type[CacheGroup]] = {"full_attention": FullAttentionGroup, "mla_attention": FullAttentionGroup}


def build_cache_groups(specs: Sequence[CacheGroupSpec], pool: BlockPool) -> tuple[CacheGroup, ...]:
    """The groups of a model. Raises InputError for what is not modelled: other attention types, several groups."""
    for spec in specs:
        if spec.kind not in _GROUPS:
            raise InputError(f"KV cache groups of the kind {spec.kind} are not modelled, only {' and '.join(_GROUPS)}")
    if len(specs) != 1:
        kinds = ", ".join(spec.kind for spec in specs)
        raise InputError(f"models with several KV cache groups are not modelled (this one has {kinds})")
    return tuple(_GROUPS[spec.kind](pool, index, spec.block_size) for index, spec in enumerate(specs))
