"""The pool and the manager on small cases worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pkv_lint.prompt.errors import InputError
from pkv_sim.exact.block_pool import NULL_BLOCK, BlockPool
from pkv_sim.exact.cache_group import CacheGroup, CacheGroupSpec, FullAttentionGroup, build_cache_groups
from pkv_sim.exact.cache_manager import KVCacheManager
from pkv_sim.exact.events import AllBlocksCleared, BlockRemoved, BlockStored
from pkv_sim.exact.free_queue import FreeKVCacheBlockQueue
from pkv_sim.exact.hashing import BlockHasher
from pkv_sim.exact.profile import DEFAULT_PROFILE, Profile
from pkv_sim.exact.request import Lora, Request, RequestStatus

HASHER = BlockHasher(4, seed="0")


def manager(num_gpu_blocks: int, *, watermark: float = 0.0, profile: Profile = DEFAULT_PROFILE) -> KVCacheManager:
    return KVCacheManager(
        num_gpu_blocks,
        [CacheGroupSpec("full_attention", 4)],
        max_model_len=1000,
        enable_kv_cache_events=True,
        watermark=watermark,
        profile=profile,
    )


def request(name: str, tokens: Sequence[int], *, lora: Lora | None = None) -> Request:
    return Request(name, tokens, max_tokens=10, hasher=HASHER, lora=lora)


def start(cache: KVCacheManager, given: Request) -> int:
    """Admits a whole prompt and returns its hit in tokens."""
    computed = cache.get_computed_blocks(given)
    assert cache.allocate_slots(given, given.num_tokens - computed.num_tokens, computed)
    given.num_computed_tokens = given.num_tokens
    return computed.num_tokens


def test_free_queue() -> None:
    queue = FreeKVCacheBlockQueue(6)
    assert queue.popleft_n(2) == [0, 1]
    queue.remove(3)
    assert list(queue) == [2, 4, 5]
    assert 4 in queue
    assert 3 not in queue
    queue.append_n([1, 0])
    queue.prepend_n([3])
    assert list(queue) == [3, 2, 4, 5, 1, 0]
    queue.check_invariants()
    assert queue.popleft_n(6) == [3, 2, 4, 5, 1, 0]
    assert not queue.num_free_blocks
    queue.append_n([2])
    assert list(queue) == [2]
    queue.check_invariants()


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        # Prompt of 3 full blocks and a part of a fourth, one block for two more outputs: blocks 1 to 5.
        # Since 0.24 blocks without a hash are reused first, and hashed ones last.
        ("0.33.0", [5, 4, 6, 7, 8, 9, 10, 3, 2, 1]),
        ("0.22.0", [6, 7, 8, 9, 10, 5, 4, 3, 2, 1]),
    ],
)
def test_free_order(version: str, expected: list[int]) -> None:
    cache = manager(11, profile=Profile.for_version(version))
    given = request("r", range(15))
    start(cache, given)
    given.append_output_token(15)
    given.num_computed_tokens = 15
    # Two slots ahead of what is known: block 4 becomes full only with a token that is not sampled yet.
    given.block_hashes.pop()
    given.token_ids.pop()
    assert cache.allocate_slots(given, 2)
    assert cache.block_tables("r") == ([1, 2, 3, 4, 5],)
    cache.free(given)
    assert list(cache.pool.free_block_queue) == expected


def test_eviction_is_lazy_and_takes_the_tail_first() -> None:
    cache = manager(4)
    first = request("first", range(9))
    start(cache, first)
    cache.free(first)
    assert cache.pool.num_cached_hashes == 2
    assert cache.pool.num_free_blocks == 3
    assert cache.pool.usage == 0.0
    cache.take_events()

    # Block 3 has no hash and is taken first, then block 2, the tail of the chain.
    second = request("second", [7] * 5)
    assert start(cache, second) == 0
    assert cache.block_tables("second") == ([3, 2],)
    assert cache.pool.num_cached_hashes == 2
    removed, stored = cache.take_events()
    assert removed == BlockRemoved((first.block_hashes[1],))
    assert isinstance(stored, BlockStored)
    cache.free(second)
    assert start(cache, request("third", range(9))) == 4


def test_a_prompt_of_whole_blocks_recomputes_the_last_and_duplicates_it() -> None:
    cache = manager(10)
    first, second = request("first", range(8)), request("second", range(8))
    assert start(cache, first) == 0
    assert start(cache, second) == 4
    assert cache.block_tables("first") == ([1, 2],)
    assert cache.block_tables("second") == ([1, 3],)
    key = (first.block_hashes[1], 0)
    assert cache.pool.cached_blocks[key] == (2, 3)
    cache.free(second)
    cache.free(first)
    # The first holder answers as long as it lives, then the other does.
    longer = request("longer", range(9))
    assert cache.get_computed_blocks(longer).blocks == ([1, 2],)
    cache.pool.free_block_queue.remove(2)
    cache.pool.free_block_queue.prepend_n([2])
    assert cache.pool.get_new_blocks(1) == [2]
    assert cache.get_computed_blocks(longer).blocks == ([1, 3],)


def test_a_refused_admission_changes_nothing() -> None:
    cache = manager(4)
    start(cache, request("running", range(5)))
    cache.take_events()
    # Its first block is in use already, the second is free: three are needed beside it, one is there.
    long = request("long", [*range(4), *[9] * 9])
    computed = cache.get_computed_blocks(long)
    assert computed.num_tokens == 4
    assert not cache.allocate_slots(long, 9, computed)
    assert not cache.allocate_slots(long, 1, computed, full_sequence_must_fit=True)
    assert cache.pool.ref_counts == [0, 1, 1, 0]
    assert list(cache.pool.free_block_queue) == [3]
    assert cache.take_events() == []
    assert cache.allocate_slots(long, 1, computed)


def test_hit_blocks_that_are_free_count_against_admission() -> None:
    cache = manager(4)
    first = request("first", range(9))
    start(cache, first)
    cache.free(first)
    start(cache, request("other", [9]))
    # Two free blocks, both of the hit: adopting them leaves none for the rest.
    again = request("again", range(9))
    computed = cache.get_computed_blocks(again)
    assert computed.num_tokens == 8
    assert cache.pool.num_free_blocks == 2
    assert not cache.allocate_slots(again, 1, computed)


def test_watermark_holds_back_admissions_beside_running_requests() -> None:
    cache = manager(10, watermark=0.2)
    new = request("new", range(32))
    assert not cache.allocate_slots(new, 32, has_running_requests=True)
    assert cache.allocate_slots(new, 31, has_running_requests=False)
    new.status = RequestStatus.RUNNING
    new.num_computed_tokens = 31
    assert cache.allocate_slots(new, 1)


def test_reset_keeps_the_order_of_the_free_queue() -> None:
    cache = manager(5)
    given = request("r", range(5))
    start(cache, given)
    assert not cache.reset_prefix_cache()
    cache.free(given)
    before = list(cache.pool.free_block_queue)
    cache.take_events()
    assert cache.reset_prefix_cache()
    assert list(cache.pool.free_block_queue) == before
    assert cache.take_events() == [AllBlocksCleared()]
    assert start(cache, request("again", range(5))) == 0


def test_skipping_the_lookup_still_fills_the_cache() -> None:
    cache = manager(10)
    given = request("r", range(5))
    given.skip_reading_prefix_cache = True
    for name in ("once", "twice"):
        given.request_id = name
        given.num_computed_tokens = 0
        assert start(cache, given) == 0
    assert cache.stats.requests == 0
    assert start(cache, request("reader", range(5))) == 4


def test_stored_events_tell_whose_blocks_they_are() -> None:
    cache = manager(10)
    given = request("r", range(9), lora=Lora("sql", "/adapters/sql"))
    start(cache, given)
    assert cache.take_events() == [
        BlockStored(
            block_hashes=tuple(given.block_hashes),
            parent_block_hash=None,
            token_ids=given.token_ids[:8],
            block_size=4,
            extra_keys=(("sql",), ("sql",)),
            lora_name="sql",
        )
    ]


def test_without_prefix_caching_nothing_is_found() -> None:
    cache = KVCacheManager(10, [CacheGroupSpec("full_attention", 4)], max_model_len=100, enable_prefix_caching=False)
    for name in ("first", "second"):
        assert start(cache, request(name, range(9))) == 0
    assert not cache.pool.num_cached_hashes
    assert not cache.stats.requests


def test_the_pool_never_hands_out_more_than_it_has() -> None:
    pool = BlockPool(3)
    with pytest.raises(ValueError, match="3 blocks were asked for and 2 are free"):
        pool.get_new_blocks(3)
    assert pool.get_new_blocks(2) == [1, 2]
    assert pool.usage == 1.0
    with pytest.raises(ValueError, match="null block"):
        BlockPool(0)


def test_invariants_are_checked() -> None:
    cache = manager(5)
    start(cache, request("r", range(5)))
    cache.check_invariants()
    cache.pool.ref_counts[1] += 1
    with pytest.raises(AssertionError):
        cache.check_invariants()


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (["sliding_window"], "KV cache groups of the kind sliding_window are not modelled"),
        (["full_attention", "mamba"], "KV cache groups of the kind mamba are not modelled"),
        (["full_attention", "full_attention"], "models with several KV cache groups are not modelled"),
        ([], "models with several KV cache groups"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(kinds: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_cache_groups([CacheGroupSpec(kind, 16) for kind in kinds], BlockPool(10))


def test_mla_blocks_behave_like_full_attention() -> None:
    (group,) = build_cache_groups([CacheGroupSpec("mla_attention", 64)], BlockPool(10))
    assert isinstance(group, FullAttentionGroup)
    assert group.blocks_needed(65) == 2


class LastTwoBlocks(FullAttentionGroup):
    """A toy attention that reads its last two blocks and hashes every second one: what the seam is for."""

    def registrable(self, request: Request, first: int, last: int) -> Sequence[int]:
        return [index for index in range(first, last) if index % 2]

    def skipped(self, num_computed_tokens: int) -> int:
        return max(0, num_computed_tokens - 2 * self.block_size)


def test_another_attention_type_fits_the_seam() -> None:
    cache = manager(10)
    group: CacheGroup = LastTwoBlocks(cache.pool, 0, 4)
    cache.groups = (group,)
    given = request("r", range(12))
    start(cache, given)
    assert cache.pool.num_cached_hashes == 1
    (stored,) = cache.take_events()
    assert isinstance(stored, BlockStored)
    assert stored.block_hashes == (given.block_hashes[1],)
    assert len(stored.token_ids) == 12
    given.append_output_token(1)
    assert cache.allocate_slots(given, 1)
    # The first block is not read any more: it was freed, had no hash and is reused at once.
    assert group.tables["r"] == [NULL_BLOCK, 2, 3, 1]
    given.num_computed_tokens = 20
    group.free_skipped("r", 20)
    assert group.tables["r"] == [NULL_BLOCK, NULL_BLOCK, NULL_BLOCK, 1]
    cache.check_invariants()
    cache.free(given)
    assert cache.pool.num_free_blocks == 9
