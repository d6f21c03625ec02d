"""Lookup, admission, allocation and freeing of KV cache blocks (vLLM: `v1/core/kv_cache_manager.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pkv_sim.exact.block_pool import BlockPool
from pkv_sim.exact.cache_group import CacheGroupSpec, build_cache_groups
from pkv_sim.exact.events import KVCacheEvent
from pkv_sim.exact.profile import DEFAULT_PROFILE, Profile
from pkv_sim.exact.request import Request, RequestStatus
from pkv_sim.exact.stats import PrefixCacheStats


class ComputedBlocks(NamedTuple):
    """What a lookup found: the start of a block table for each group, and the tokens that it serves."""

    blocks: tuple[list[int], ...]
    num_tokens: int


class KVCacheManager:
    """Owns the block pool and the requests' block tables. Knows nothing of budgets, queues or time."""

    def __init__(
        self,
        num_gpu_blocks: int,
        groups: Sequence[CacheGroupSpec],
        *,
        max_model_len: int,
        enable_prefix_caching: bool = True,
        enable_kv_cache_events: bool = False,
        watermark: float = 0.0,
        profile: Profile = DEFAULT_PROFILE,
    ) -> None:
        """`watermark` is the share of blocks to keep free when requests are admitted beside running ones.

        Raises InputError for groups that are not modelled.
        """
        self.pool = BlockPool(num_gpu_blocks, enable_kv_cache_events=enable_kv_cache_events, profile=profile)
        self.groups = build_cache_groups(groups, self.pool)
        self.max_model_len = max_model_len
        self.enable_prefix_caching = enable_prefix_caching
        self.profile = profile
        self.stats = PrefixCacheStats()
        self._watermark_blocks = int(watermark * num_gpu_blocks)
        self._nothing = ComputedBlocks(tuple([] for _ in self.groups), 0)

    def get_computed_blocks(self, request: Request) -> ComputedBlocks:
        """The cached prefix of a request that is about to be admitted. Changes nothing (in older releases, the stats).

        At most all tokens but the last, which must be computed for its logits; as hits are whole blocks, a prompt of an
        exact number of blocks recomputes its whole last block.
        """
        if not self.enable_prefix_caching or request.skip_reading_prefix_cache:
            return self._nothing
        (group,) = self.groups
        hit = group.find_hit(request.block_hashes, request.num_tokens - 1)
        computed = ComputedBlocks((hit,), len(hit) * group.block_size)
        if not self.profile.stats_at_admission:
            self._record(request, computed)
        return computed

    def record_admission(self, request: Request, computed: ComputedBlocks) -> None:
        """Counts the lookup of a request that was admitted."""
        if self.profile.stats_at_admission and self.enable_prefix_caching and not request.skip_reading_prefix_cache:
            self._record(request, computed)

    def _record(self, request: Request, computed: ComputedBlocks) -> None:
        preempted = self.profile.preempted_stats_apart and request.num_preemptions > 0
        self.stats.record(request.num_tokens, computed.num_tokens, preempted=preempted)

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        computed: ComputedBlocks | None = None,
        *,
        full_sequence_must_fit: bool = False,
        has_running_requests: bool = True,
    ) -> bool:
        """Gives a request the blocks for its next `num_new_tokens`, behind its computed tokens and a new hit.

        False, and nothing has changed, when there are not enough free blocks: for this step, or with
        `full_sequence_must_fit` for all its tokens, and above the watermark when it is to be admitted beside running
        requests. What becomes full is findable at once, before it is computed, so the next request of the same step
        already hits it.
        """
        computed = computed or self._nothing
        request_id = request.request_id
        total_computed = min(request.num_computed_tokens + computed.num_tokens, self.max_model_len)
        available = self.pool.num_free_blocks
        if has_running_requests and request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED):
            available -= self._watermark_blocks

        if full_sequence_must_fit:
            full = min(request.num_tokens, self.max_model_len)
            if self._blocks_to_allocate(request_id, full, computed) > available:
                return False
        num_slots = min(total_computed + num_new_tokens, self.max_model_len)
        for group in self.groups:
            # Tokens in flight may still be read by the step that computes them.
            group.free_skipped(request_id, max(0, total_computed - request.num_in_flight_tokens))
        needed = self._blocks_to_allocate(request_id, num_slots, computed)
        if needed > available:
            return False

        for group, hit in zip(self.groups, computed.blocks, strict=True):
            if request_id not in group.tables:
                group.adopt(request_id, hit)
        # All hits are adopted before any new block is taken, lest one group take what another has hit.
        if needed:
            for group in self.groups:
                group.extend(request_id, num_slots)
        # Tokens that are still to be sampled have no hash yet.
        self.cache_blocks(request, min(total_computed + num_new_tokens, request.num_tokens))
        return True

    def _blocks_to_allocate(self, request_id: str, num_tokens: int, computed: ComputedBlocks) -> int:
        needed = 0
        for group, hit in zip(self.groups, computed.blocks, strict=True):
            needed += group.blocks_to_allocate(request_id, num_tokens, hit)
        return needed

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Makes the full blocks among a request's first `num_computed_tokens` findable."""
        if self.enable_prefix_caching:
            for group in self.groups:
                group.cache_blocks(request, num_computed_tokens)

    def free(self, request: Request) -> None:
        """Lets go of a request's blocks. Those with a hash stay findable until they are taken for other content."""
        for group in self.groups:
            group.free(request.request_id)

    def block_tables(self, request_id: str) -> tuple[list[int], ...]:
        """A request's block table in each group: live, grows in place, not to be changed. Empty when it has none."""
        return tuple(group.tables.get(request_id, []) for group in self.groups)

    def reset_prefix_cache(self) -> bool:
        """Forgets all cached blocks. Refused (False) while any block is in use."""
        return self.pool.reset_prefix_cache()

    def take_events(self) -> list[KVCacheEvent]:
        """The KV cache events since the last call, in order."""
        return self.pool.take_events()

    def check_invariants(self) -> None:
        """Raises AssertionError when tables and pool contradict each other. Costs time in proportion to the pool."""
        self.pool.check_invariants()
        refs = [0] * self.pool.num_gpu_blocks
        for group in self.groups:
            for table in group.tables.values():
                for block in table:
                    if block:
                        refs[block] += 1
        assert refs == self.pool.ref_counts
