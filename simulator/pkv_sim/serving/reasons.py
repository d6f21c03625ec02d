"""Why the requests of a workload miss: what was computed before them, and what is cached where they cannot use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pkv_sim.fast.prefix_tree import BlockRequest
from pkv_sim.fast.run_tree import BlockRunTree
from pkv_sim.fast.token_tree import TokenTree
from pkv_sim.serving.elsewhere import Cache, Namespaces
from pkv_sim.serving.misses import Misses, misses_of
from pkv_sim.serving.seen import Seen, SeenBlocks, SeenTokens
from pkv_sim.traffic.generated import Replies
from pkv_sim.traffic.workload import TrafficRequest


class Elsewhere(NamedTuple):
    """Blocks of a prompt, from its start, that are cached in another namespace and on another replica."""

    namespace: int = 0
    replica: int = 0


class Reasons:
    """`misses` are by the place of a request in the order of arrival, None for what was not served.

    For each request ask `elsewhere` right before it is admitted, then tell that it was `admitted` and has `ended`.
    """

    def __init__(
        self,
        requests: Sequence[TrafficRequest],
        in_blocks: Sequence[BlockRequest],
        tree: TokenTree | BlockRunTree,
        caches: Sequence[Cache],
        *,
        replies: Replies,
        bounded: bool,
    ) -> None:
        """`caches` are those of the replicas, over the chains of `tree`; `bounded` tells whether they evict."""
        self.misses: list[Misses | None] = [None] * len(requests)
        self._requests = requests
        self._in_blocks = in_blocks
        self._caches = caches
        self._replies = replies
        self._bounded = bounded
        self._block_size = tree.block_size
        self._namespaces: tuple[Namespaces, ...] = ()
        self._seen: Seen
        if isinstance(tree, TokenTree):
            self._seen = SeenTokens(tree.block_size)
            if bounded and len({request.namespace for request in requests}) > 1:
                self._namespaces = tuple(Namespaces(tree, cache, replies) for cache in caches)
        else:
            self._seen = SeenBlocks(tree.block_size)

    def elsewhere(self, at: int, replica: int) -> Elsewhere:
        """What of a prompt is cached where a request to this replica cannot use it."""
        request, blocks = self._requests[at], self._in_blocks[at]
        if not request.reads_cache:
            return Elsewhere()
        others = (cache for number, cache in enumerate(self._caches) if number != replica)
        return Elsewhere(
            max((spaces.cached_blocks(request) for spaces in self._namespaces), default=0),
            max((cache.cached_blocks_of(blocks.segment, blocks.prompt_blocks) for cache in others), default=0),
        )

    def admitted(
        self, at: int, replica: int, num_hit: int, elsewhere: Elsewhere, num_computed: int | None = None
    ) -> None:
        """A request hit `num_hit` blocks of its prompt. `num_computed` were computed before (None: all that it shares
        with earlier requests)."""
        request = self._requests[at]
        shared = self._seen.enter(request)
        namespace = elsewhere.namespace
        if self._namespaces:
            self._namespaces[replica].admitted(request)
        elif not self._bounded and request.reads_cache:
            namespace = shared.any if shared.any > shared.namespace else 0
        seen = shared.namespace if num_computed is None else num_computed
        reads = request.reads_cache
        self.misses[at] = misses_of(
            request.num_prompt_tokens,
            self._block_size,
            hit=num_hit,
            seen=seen if reads else 0,
            diverges=shared.diverges if reads else shared.touched,
            other_namespace=namespace,
            other_replica=elsewhere.replica,
        )

    def ended(self, at: int, replica: int) -> None:
        request = self._requests[at]
        if self._replies.text:
            self._seen.leave(request)
        if self._namespaces:
            self._namespaces[replica].ended(request)
