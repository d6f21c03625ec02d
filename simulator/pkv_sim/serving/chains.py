"""Blocks named by their place in a prefix tree, for the exact core.

A segment of the tree and a depth name a chain of blocks, as a block hash does: they are equal where all tokens up to
there (or the ids of all blocks) and the namespace are equal, and never elsewhere. So the scheduler can be given any
traffic, also one that is known by the ids of its blocks alone, and nothing is hashed.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from pkv_sim.exact.request import Request
from pkv_sim.exact.scheduler import Scheduler
from pkv_sim.fast.prefix_tree import BlockRequest, PrefixTree


def chain_names(tree: PrefixTree, segment: int, depth: int) -> list[bytes]:
    """A name for each of the first `depth` blocks of a chain through `segment`, in the place of their hashes."""
    parts = []
    while depth:
        start = tree.starts[segment]
        if start < depth:
            parts.append((segment << 32, start, depth))
            depth = start
        segment = tree.parents[segment]
    return [(base + block).to_bytes(8) for base, start, end in reversed(parts) for block in range(start, end)]


class ChainHasher:
    """Hands out the names of one request's blocks as they become full, in the place of a `BlockHasher`."""

    def __init__(self, names: Sequence[bytes], block_size: int) -> None:
        self._names = names
        self._block_size = block_size

    def extend(self, request: Request) -> None:
        known = len(request.block_hashes)
        request.block_hashes += self._names[known : request.num_tokens // self._block_size]


def prompt_without_content(num_tokens: int) -> array[int]:
    """Token ids for a request whose blocks are named otherwise: how many there are is all that the scheduler needs."""
    return array("i", bytes(num_tokens * array("i").itemsize))


class SchedulerCache:
    """The prefix cache of a scheduler whose requests name their blocks by chains."""

    def __init__(self, tree: PrefixTree, scheduler: Scheduler) -> None:
        self.tree = tree
        self._pool = scheduler.cache.pool

    @property
    def num_cached_blocks(self) -> int:
        """Blocks with a hash. Several may hold the same one."""
        pool = self._pool
        return sum(pool.block_key(block) is not None for block in range(pool.num_gpu_blocks))

    def cached_blocks_of(self, segment: int, depth: int) -> int:
        names = chain_names(self.tree, segment, depth)
        found = (at for at, name in enumerate(names) if self._pool.get_cached_block(name, 0) is None)
        return next(found, depth)

    def hit_of(self, request: BlockRequest) -> int:
        """How many blocks a request would hit now."""
        return min(self.cached_blocks_of(request.segment, request.prompt_blocks), request.max_hit)
