"""Prompts in the other namespaces of a cache: what would be hit there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable
from typing import Protocol

from pkv_sim.fast.token_tree import TokenTree
from pkv_sim.traffic.generated import Replies
from pkv_sim.traffic.workload import TrafficRequest


class Cache(Protocol):
    @property
    def num_cached_blocks(self) -> int:
        """Blocks with a hash. Several may hold the same one."""

    def cached_blocks_of(self, segment: int, depth: int) -> int:
        """How many of the first `depth` blocks of a chain through `segment` of the tree are cached."""


class Namespaces:
    """Which namespaces have used a prompt's first block (or what a short one and its reply fill): those that a request
    runs in, and those that none runs in any more, the one that ended last at the end."""

    def __init__(self, tree: TokenTree, cache: Cache, replies: Replies) -> None:
        self._tree = tree
        self._cache = cache
        self._replies = replies
        self._running: defaultdict[bytes, Counter[Hashable]] = defaultdict(Counter)
        self._ended: defaultdict[bytes, dict[Hashable, None]] = defaultdict(dict)

    def admitted(self, request: TrafficRequest) -> None:
        self._running[self._first_block(request)][request.namespace] += 1

    def ended(self, request: TrafficRequest) -> None:
        block, namespace = self._first_block(request), request.namespace
        self._running[block][namespace] -= 1
        self._ended[block].pop(namespace, None)
        if self._running[block][namespace]:
            return
        del self._running[block][namespace]
        self._ended[block][namespace] = None

    def cached_blocks(self, request: TrafficRequest) -> int:
        """The longest prefix of a prompt, in blocks, that is cached in another namespace now."""
        block = self._first_block(request)
        found = [self._cached_in(other, request) for other in self._running[block] if other != request.namespace]
        for other in reversed(self._ended[block]):
            if other != request.namespace:
                found.append(self._cached_in(other, request))
                if not found[-1]:
                    break  # first blocks are evicted in the order of their last use
        return max(found, default=0)

    def _cached_in(self, namespace: Hashable, request: TrafficRequest) -> int:
        assert request.ids is not None
        return self._cache.cached_blocks_of(*self._tree.known_prefix(request.ids, namespace))

    def _first_block(self, request: TrafficRequest) -> bytes:
        assert request.ids is not None
        content, size = request.ids, self._tree.block_size
        if len(content) < size and self._replies.text and request.generated:
            content = content + request.generated
        return content[:size].tobytes()
