"""What was computed before, whether it is still cached or not."""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from typing import NamedTuple, Protocol

from pkv_lint.prompt.prefix_tree import PrefixTree
from pkv_sim.fast.run_tree import BlockRunTree
from pkv_sim.traffic.runs import pairs
from pkv_sim.traffic.workload import TrafficRequest


class Shared(NamedTuple):
    """What a prompt shares with requests before it, in full blocks from its start: with those of its own `namespace`,
    and with `any`. `diverges`: one of those that share the most goes on otherwise behind that; `touched`: something is
    shared, be it less than a block."""

    namespace: int
    any: int
    diverges: bool
    touched: bool


class Seen(Protocol):
    def enter(self, request: TrafficRequest) -> Shared:
        """What the prompt shares with what is known, which it then belongs to."""

    def leave(self, request: TrafficRequest) -> None:
        """The reply is known from now on as well."""


class SeenTokens:
    """Requests known by their token ids."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._spaces: dict[Hashable, PrefixTree] = {}
        self._all: PrefixTree | None = None

    def enter(self, request: TrafficRequest) -> Shared:
        assert request.ids is not None
        own, everything = self._trees(request.namespace)
        shared, diverges = everything.look(request.ids)
        shared_here = shared
        if everything is not own:
            shared_here = own.insert(request.ids)
        everything.insert(request.ids)
        size = self.block_size
        return Shared(shared_here // size, shared // size, diverges and shared > 0, shared > 0)

    def leave(self, request: TrafficRequest) -> None:
        if request.generated:
            assert request.ids is not None
            ids = request.ids + request.generated
            for tree in set(self._trees(request.namespace)):
                tree.insert(ids)

    def _trees(self, namespace: Hashable) -> tuple[PrefixTree, PrefixTree]:
        """The tree of a namespace and that of all; one tree is both as long as there is one namespace."""
        own = self._spaces.get(namespace)
        if own is None:
            if len(self._spaces) == 1:
                self._all = next(iter(self._spaces.values())).copy()
            own = self._spaces[namespace] = PrefixTree()
        return own, self._all or own


class SeenBlocks:
    """Requests known by the ids of their blocks; these share one namespace."""

    def __init__(self, block_size: int) -> None:
        self._tree = BlockRunTree(block_size)
        self._ends: dict[int, int] = {}

    def enter(self, request: TrafficRequest) -> Shared:
        assert request.runs is not None
        shared, diverges = self._add(request.runs, request.num_prompt_tokens)
        return Shared(shared, shared, diverges, shared > 0)

    def leave(self, request: TrafficRequest) -> None:
        if request.generated_runs:
            assert request.runs is not None
            tokens = request.num_prompt_tokens + (request.num_generated_tokens or 1) - 1
            self._add(request.runs + request.generated_runs, tokens)

    def _add(self, runs: array[int], num_tokens: int) -> tuple[int, bool]:
        tree = self._tree
        known = len(tree.starts)
        added = tree.request(pairs(runs), num_tokens)
        segment, depth = added.segment, added.prompt_blocks
        if not depth:
            return 0, False
        if segment == known:
            # A branch is where a chain leaves a segment, which goes on there.
            self._ends[segment] = depth
            return tree.starts[segment], tree.starts[segment] > 0
        shared = min(self._ends[segment], depth)
        self._ends[segment] = max(self._ends[segment], depth)
        return shared, False
