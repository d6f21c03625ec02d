"""Prompts in the other namespaces of a cache: what would be hit there."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from pkv_sim.fast.token_tree import TokenTree
from pkv_sim.workload import TrafficRequest


class Cache(Protocol):
    @property
    def num_cached_blocks(self) -> int:
        """Blocks with a hash. Several may hold the same one."""

    def cached_blocks_of(self, segment: int, depth: int) -> int:
        """How many of the first `depth` blocks of a chain through `segment` of the tree are cached."""


class Namespaces:
    """Which namespaces have used a prompt's first block, the one that did so last at the end."""

    def __init__(self, tree: TokenTree, cache: Cache) -> None:
        self._tree = tree
        self._cache = cache
        self._users: dict[bytes, dict[Hashable, None]] = {}

    def use(self, request: TrafficRequest) -> None:
        users = self._users.setdefault(self._first_block(request), {})
        users.pop(request.namespace, None)
        users[request.namespace] = None

    def cached_blocks(self, request: TrafficRequest) -> int:
        """The longest prefix of a prompt, in blocks, that is cached in another namespace now."""
        assert request.ids is not None
        best = 0
        for namespace in reversed(self._users.get(self._first_block(request), {})):
            if namespace != request.namespace:
                found = self._cache.cached_blocks_of(*self._tree.known_prefix(request.ids, namespace))
                if not found:
                    break  # first blocks are evicted in the order of their last use
                best = max(best, found)
        return best

    def _first_block(self, request: TrafficRequest) -> bytes:
        assert request.ids is not None
        return request.ids[: self._tree.block_size].tobytes()
