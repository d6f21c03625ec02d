"""Random lives of the cache: equal to a naive model step by step, and sound in what every block really holds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from pkv_sim.exact.cache_group import CacheGroupSpec
from pkv_sim.exact.cache_manager import ComputedBlocks, KVCacheManager
from pkv_sim.exact.hashing import BlockHasher
from pkv_sim.exact.profile import Profile
from pkv_sim.exact.request import Request, RequestStatus
from pkv_sim.exact.scheduler import Scheduler
from pkv_sim.exact.scheduler_config import SchedulerConfig
from pkv_sim.exact.scheduler_output import SchedulerOutput

# Few tokens, salts and lengths, so that prefixes meet, blocks repeat and prompts end on block boundaries.
TOKENS = st.integers(0, 1)
PROMPTS = st.lists(TOKENS, min_size=1, max_size=9)
SALTS = st.sampled_from([None, "a", "b"])

Prefix = tuple[str | None, tuple[int, ...]]


class NaiveCache:
    """The cache as a table of what it is, with lists where the real one has links and maps."""

    def __init__(self, num_blocks: int, block_size: int, *, unhashed_first: bool) -> None:
        self.block_size = block_size
        self.unhashed_first = unhashed_first
        self.free = list(range(1, num_blocks))
        self.refs = [0] * num_blocks
        # (prefix, block) in the order of registration.
        self.registered: list[tuple[Prefix, int]] = []
        self.tables: dict[str, list[int]] = {}

    def lookup(self, prefix: Prefix) -> int | None:
        return next((block for found, block in self.registered if found == prefix), None)

    def hit(self, salt: str | None, tokens: Sequence[int]) -> list[int]:
        blocks: list[int] = []
        for end in range(self.block_size, len(tokens), self.block_size):
            block = self.lookup((salt, tuple(tokens[:end])))
            if block is None:
                break
            blocks.append(block)
        return blocks

    def allocate(self, request_id: str, salt: str | None, tokens: Sequence[int], upto: int, hit: list[int]) -> bool:
        """Slots for tokens[:upto]; False when the free blocks do not suffice."""
        table = self.tables.get(request_id, [])
        new = max(0, -(-upto // self.block_size) - len(table) - len(hit))
        if new + sum(block in self.free for block in hit) > len(self.free):
            return False
        for block in hit:
            if block in self.free:
                self.free.remove(block)
            self.refs[block] += 1
        table = self.tables.setdefault(request_id, table)
        table += hit
        for _ in range(new):
            block = self.free.pop(0)
            self.registered = [entry for entry in self.registered if entry[1] != block]
            self.refs[block] = 1
            table.append(block)
        holders = {block for _, block in self.registered}
        for index, block in enumerate(table[: min(upto, len(tokens)) // self.block_size]):
            if block not in holders:
                self.registered.append(((salt, tuple(tokens[: (index + 1) * self.block_size])), block))
        return True

    def release(self, request_id: str) -> None:
        holders = {block for _, block in self.registered}
        unhashed: list[int] = []
        hashed: list[int] = []
        for block in reversed(self.tables.pop(request_id, [])):
            self.refs[block] -= 1
            if not self.refs[block]:
                (hashed if block in holders or not self.unhashed_first else unhashed).append(block)
        self.free = unhashed + self.free + hashed


class ManagerMachine(RuleBasedStateMachine):
    """KVCacheManager against NaiveCache."""

    live: Bundle[Request] = Bundle("live")

    @initialize(
        num_blocks=st.integers(2, 9),
        block_size=st.integers(1, 3),
        version=st.sampled_from(["0.33.0", "0.24.0", "0.22.0"]),
    )
    def build(self, num_blocks: int, block_size: int, version: str) -> None:
        profile = Profile.for_version(version)
        self.hasher = BlockHasher(block_size, profile=profile)
        self.manager = KVCacheManager(
            num_blocks, [CacheGroupSpec("full_attention", block_size)], max_model_len=1000, profile=profile
        )
        self.naive = NaiveCache(num_blocks, block_size, unhashed_first=profile.unhashed_first)
        self.prefixes: dict[bytes, Prefix] = {}
        self.count = 0

    def _allocate(self, request: Request, count: int, hit: list[int] | None, *, whole: bool = False) -> bool:
        """Allocates on both sides and compares."""
        self._learn(request)
        naive = self.naive
        tokens = list(request.token_ids)
        table = naive.tables.get(request.request_id, [])
        new = -(-len(tokens) // naive.block_size) - len(table) - len(hit or ())
        fits = new + sum(block in naive.free for block in hit or ()) <= len(naive.free)
        upto = request.num_computed_tokens + len(hit or ()) * naive.block_size + count
        expected = (fits or not whole) and naive.allocate(
            request.request_id, request.cache_salt, tokens, upto, hit or []
        )
        computed = None if hit is None else self.manager.get_computed_blocks(request)
        assert self.manager.allocate_slots(request, count, computed, full_sequence_must_fit=whole) == expected
        if expected:
            request.num_computed_tokens = upto
        return expected

    def _learn(self, request: Request) -> None:
        for index, block_hash in enumerate(request.block_hashes):
            end = (index + 1) * self.naive.block_size
            self.prefixes[block_hash] = (request.cache_salt, tuple(request.token_ids[:end]))

    @rule(target=live, prompt=PROMPTS, salt=SALTS, chunk=st.integers(1, 9), whole=st.booleans())
    def start(self, prompt: list[int], salt: str | None, chunk: int, whole: bool) -> Request:
        request = Request(f"r{self.count}", prompt, max_tokens=100, hasher=self.hasher, cache_salt=salt)
        self.count += 1
        hit = self.naive.hit(salt, prompt)
        num_cached = len(hit) * self.naive.block_size
        assert self.manager.get_computed_blocks(request) == ComputedBlocks((hit,), num_cached)
        if not self._allocate(request, min(chunk, len(prompt) - num_cached), hit, whole=whole):
            return multiple()  # type: ignore[return-value]
        request.status = RequestStatus.RUNNING
        return request

    @rule(request=live, token=TOKENS, chunk=st.integers(1, 4))
    def proceed(self, request: Request, token: int, chunk: int) -> None:
        if request.num_computed_tokens == request.num_tokens:
            request.append_output_token(token)
        self._allocate(request, min(chunk, request.num_tokens - request.num_computed_tokens), None)

    @rule(request=consumes(live))
    def release(self, request: Request) -> None:
        self.manager.free(request)
        self.naive.release(request.request_id)

    @rule()
    def reset(self) -> None:
        idle = not any(self.naive.refs)
        assert self.manager.reset_prefix_cache() == idle
        if idle:
            self.naive.registered.clear()

    @invariant()
    def equal(self) -> None:
        if not hasattr(self, "naive"):
            return
        self.manager.check_invariants()
        pool = self.manager.pool
        assert list(pool.free_block_queue) == self.naive.free
        assert pool.ref_counts == self.naive.refs
        assert self.manager.groups[0].tables == self.naive.tables
        expected: dict[Prefix, tuple[int, ...]] = {}
        for prefix, block in self.naive.registered:
            expected[prefix] = (*expected.get(prefix, ()), block)
        assert {self.prefixes[key[0]]: blocks for key, blocks in pool.cached_blocks.items()} == expected
        # A chain is evicted from its tail, so what is cached can be reached.
        for salt, tokens in expected:
            assert len(tokens) == self.naive.block_size or (salt, tokens[: -self.naive.block_size]) in expected


class SchedulerMachine(RuleBasedStateMachine):
    """The scheduler with a memory: every slot remembers the prefix that was last written to it.

    What a request reads in a step, from a hit, an earlier step or a neighbour of the same step, must be its own prefix.
    The tokens that are sampled are a function of the request and the position, so a preempted request repeats itself.
    """

    @initialize(
        num_blocks=st.integers(2, 9),
        block_size=st.integers(1, 3),
        depth=st.integers(1, 3),
        budget=st.sampled_from([1, 3, 100]),
        max_num_seqs=st.sampled_from([1, 2, 100]),
        policy=st.sampled_from(["fcfs", "priority"]),
        watermark=st.sampled_from([0.0, 0.3]),
        threshold=st.sampled_from([0, 2]),
        whole=st.booleans(),
    )
    def build(
        self,
        num_blocks: int,
        block_size: int,
        depth: int,
        budget: int,
        max_num_seqs: int,
        policy: str,
        watermark: float,
        threshold: int,
        whole: bool,
    ) -> None:
        self.depth = depth
        self.config = SchedulerConfig(
            num_gpu_blocks=num_blocks,
            block_size=block_size,
            max_model_len=100,
            max_num_batched_tokens=budget,
            max_num_seqs=max_num_seqs,
            policy=policy,
            watermark=watermark,
            long_prefill_token_threshold=threshold,
            scheduler_reserve_full_isl=whole,
            async_scheduling=depth > 1,
        )
        self.scheduler = Scheduler(self.config)
        self.hasher = BlockHasher(block_size)
        self.memory: dict[tuple[int, int], Prefix] = {}
        self.in_flight: list[SchedulerOutput] = []
        self.requests: list[Request] = []

    @staticmethod
    def true_tokens(request: Request, count: int) -> list[int]:
        """The first `count` tokens as they are or will be."""
        prompt = list(request.token_ids[: request.num_prompt_tokens])
        return (prompt + [(sum(prompt) + index) % 2 for index in range(count)])[:count]

    @rule(prompt=PROMPTS, salt=SALTS, max_tokens=st.integers(1, 6), priority=st.integers(0, 2), stop=st.booleans())
    def add(self, prompt: list[int], salt: str | None, max_tokens: int, priority: int, stop: bool) -> None:
        usable = (self.config.num_gpu_blocks - 1) * self.config.block_size
        prompt = prompt[:usable]
        request = Request(
            f"r{len(self.requests)}",
            prompt,
            max_tokens=min(max_tokens, usable - len(prompt) + 1),
            hasher=self.hasher,
            arrival=len(self.requests) // 2,
            priority=priority,
            cache_salt=salt,
            stop_token_ids=[1] if stop else [],
        )
        self.requests.append(request)
        self.scheduler.add(request)

    @precondition(lambda self: len(self.in_flight) < self.depth)
    @rule()
    def schedule(self) -> None:
        output = self.scheduler.schedule()
        self.in_flight.append(output)
        assert output.num_scheduled_tokens <= self.config.max_num_batched_tokens
        size = self.config.block_size
        for item in output.scheduled:
            end = item.first_position + item.num_new_tokens
            tokens = tuple(self.true_tokens(item.request, end))
            (table,) = item.block_ids
            for position in range(item.first_position, end):
                slot = (table[position // size], position % size)
                self.memory[slot] = (item.request.cache_salt, tokens[: position + 1])
        for item in output.scheduled:
            end = item.first_position + item.num_new_tokens
            tokens = tuple(self.true_tokens(item.request, end))
            (table,) = item.block_ids
            for position in range(end):
                slot = (table[position // size], position % size)
                assert self.memory[slot] == (item.request.cache_salt, tokens[: position + 1])

    @precondition(lambda self: self.in_flight)
    @rule()
    def process(self) -> None:
        output = self.in_flight.pop(0)
        sampled = {
            item.request.request_id: self.true_tokens(item.request, item.first_position + item.num_new_tokens + 1)[-1]
            for item in output.scheduled
            if item.samples
        }
        for item in self.scheduler.update_from_output(output, sampled).outputs:
            request = item.request
            assert list(request.token_ids) == self.true_tokens(request, request.num_tokens)
            done = request.num_output_tokens == request.max_tokens
            stopped = item.token_id in request.stop_token_ids
            assert item.finish_reason == ("stop" if stopped else "length" if done else None)

    @precondition(lambda self: self.scheduler.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.scheduler.requests)))
        self.scheduler.abort([request_id, "nobody"])
        assert request_id not in self.scheduler.requests

    @rule(running=st.booleans())
    def reset(self, running: bool) -> None:
        idle = not self.scheduler.running
        assert self.scheduler.reset(reset_running_requests=running) == (idle or running)
        if idle or running:
            assert not self.scheduler.cache.pool.num_cached_hashes

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "scheduler"):
            self.scheduler.check_invariants()

    def teardown(self) -> None:
        """Everything ends, and leaves all blocks free."""
        if not hasattr(self, "scheduler"):
            return
        for _ in range(2000):
            if not self.scheduler.has_unfinished_requests:
                break
            if len(self.in_flight) < self.depth:
                self.schedule()
            else:
                self.process()
        assert not self.scheduler.has_unfinished_requests
        assert self.scheduler.cache.pool.num_free_blocks == self.config.num_gpu_blocks - 1
        for request in self.requests:
            assert request.finish_reason is not None
            if request.num_preemptions == 0 and request.num_cached_tokens is not None:
                assert request.num_cached_tokens < request.num_prompt_tokens


TestManager = ManagerMachine.TestCase
TestManager.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_the_memory_notices_a_wrong_hit() -> None:
    """The machine is only worth something if it fails when a hit is wrong."""
    machine = SchedulerMachine()
    machine.build(9, 2, 1, 100, 100, "fcfs", 0.0, 0, True)
    machine.add([0, 0, 0, 0, 1], None, 1, 0, False)
    machine.schedule()
    machine.add([1, 1, 0, 0, 1], None, 1, 0, False)
    first, second = machine.requests
    second.block_hashes[0] = first.block_hashes[0]
    with pytest.raises(AssertionError):
        machine.schedule()
