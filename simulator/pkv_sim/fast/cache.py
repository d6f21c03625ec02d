"""Replay of requests on a KV cache of one capacity."""

from __future__ import annotations

from collections.abc import Iterable

from pkv_sim.exact.profile import DEFAULT_PROFILE, Profile
from pkv_sim.exact.stats import PrefixCacheStats
from pkv_sim.fast.prefix_tree import BlockRequest, PrefixTree
from pkv_sim.fast.stretch_pool import StretchPool
from pkv_sim.fast.stretches import Copy


class Lease:
    """The blocks of a running request: `num_hit` cached ones at the start, `num_registered` with a hash so far."""

    __slots__ = ("copies", "num_hit", "num_registered", "request")

    def __init__(self, request: BlockRequest, num_hit: int) -> None:
        self.request = request
        self.num_hit = num_hit
        self.num_registered = num_hit
        self.copies: list[Copy] = []


class FastCache(StretchPool):
    """Equal to `KVCacheManager` in what each request hits and in how many blocks are cached, at a fraction of the cost.

    `stats` counts admissions in tokens, `num_refused` requests that are larger than the cache.
    """

    def __init__(self, tree: PrefixTree, num_gpu_blocks: int | None, *, profile: Profile = DEFAULT_PROFILE) -> None:
        """`num_gpu_blocks` counts the null block, as vLLM's option does; None is a cache without bounds."""
        super().__init__(tree, num_gpu_blocks, unhashed_first=profile.unhashed_first)
        self.stats = PrefixCacheStats()
        self.num_refused = 0

    def replay(self, requests: Iterable[BlockRequest]) -> list[int | None]:
        """Runs requests one after the other. The cached tokens of each, None for one that is larger than the cache.

        Raises ValueError while other requests are running.
        """
        if self.num_free_blocks != self.num_usable_blocks:
            raise ValueError("requests are running")
        known, parents, starts = self._stretches, self.tree.parents, self.tree.starts
        block_size, record = self.tree.block_size, self.stats.record
        cached_tokens: list[int | None] = []
        for request in requests:
            last, max_hit, _, full, num_blocks, num_prompt_tokens = request
            if num_blocks > self.num_usable_blocks:
                self.num_refused += 1
                cached_tokens.append(None)
                continue
            segment, hit = last, full
            while (stretches := known.get(segment)) is None and segment >= 0:
                hit = starts[segment]
                segment = parents[segment]
            if stretches is not None and stretches[-2] < hit:
                hit = stretches[-2]
            if hit > max_hit:
                # Some hash gets a further block.
                lease = self.admit(request)
                assert lease is not None
                self.finish(lease)
                cached_tokens.append(lease.num_hit * block_size)
                continue

            # Without copies and other users, all stretches of the chain become one in each segment.
            now, depth = self._now, hit
            while depth:
                stretches = known[segment]
                if stretches[0] == depth:
                    stretches[1] = now
                else:
                    index = 0
                    while index < len(stretches) and stretches[index] <= depth:
                        index += 2
                    stretches[:index] = (depth, now)
                depth = starts[segment]
                segment = parents[segment]
            self._num_blank -= num_blocks - hit
            if self._num_blank < 0:
                lacking, self._num_blank = -self._num_blank, 0
                self._evict(lacking)
            segment, depth = last, full
            while depth > hit:
                known[segment] = [depth, now]
                depth = starts[segment]
                segment = parents[segment]
            self.num_cached_hashes += full - hit
            self._close(last, num_blocks - full)
            hit *= block_size
            cached_tokens.append(hit)
            record(num_prompt_tokens, hit, preempted=False)
        return cached_tokens

    def hit_of(self, request: BlockRequest) -> int:
        """How many blocks a request would hit now."""
        return min(self.cached_blocks_of(request.segment, request.prompt_blocks), request.max_hit)

    def admit(self, request: BlockRequest) -> Lease | None:
        """Gives a request all its blocks and makes its prompt findable. None, and nothing has changed, when there are
        not enough."""
        hit = self.hit_of(request)
        new = request.num_blocks - hit
        # What is hit leaves the free queue as well, unless somebody uses it.
        if request.num_blocks > self.num_free_blocks and (
            new + self._num_free_of(request.segment, hit) > self.num_free_blocks
        ):
            return None
        lease = Lease(request, hit)
        self._hold(request.segment, hit)
        self._take(new)
        self._register_up_to(lease, request.prompt_blocks)
        self.stats.record(request.num_prompt_tokens, hit * self.tree.block_size, preempted=False)
        return lease

    def extend(self, lease: Lease, request: BlockRequest) -> bool:
        """Gives a running request the blocks of further tokens, and makes these findable. False, and nothing has
        changed, when there are not enough. `request` is the same one with these tokens."""
        new = request.num_blocks - lease.request.num_blocks
        if new > self.num_free_blocks:
            return False
        self._take(new)
        lease.request = request
        self._register_up_to(lease, request.full_blocks)
        return True

    def finish(self, lease: Lease) -> None:
        """Makes all of a request findable and lets go of its blocks."""
        request = lease.request
        full = request.full_blocks
        self._register_up_to(lease, full)
        self._release(request.segment, full, lease.copies, request.num_blocks - full)

    def _register_up_to(self, lease: Lease, depth: int) -> None:
        if lease.num_registered < depth:
            lease.copies += self._register(lease.request.segment, lease.num_registered, depth)
            lease.num_registered = depth
