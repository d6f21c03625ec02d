"""The fast core against the exact one: what each request hits, and how many blocks are cached after it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkv_sim.exact.cache_group import CacheGroupSpec
from pkv_sim.exact.cache_manager import KVCacheManager
from pkv_sim.exact.hashing import BlockHasher
from pkv_sim.exact.profile import DEFAULT_PROFILE, Profile
from pkv_sim.exact.request import Request
from pkv_sim.fast.cache import FastCache, Lease
from pkv_sim.fast.prefix_tree import BlockRequest
from pkv_sim.fast.recorded import RecordedReplay
from pkv_sim.fast.token_tree import TokenTree


@dataclass(frozen=True, slots=True)
class Call:
    prompt: tuple[int, ...]
    output: tuple[int, ...] = ()
    salt: str | None = None
    output_known: bool = True
    start: int = 0
    duration: int = 0

    def num_blocks(self, block_size: int) -> int:
        return -(-(len(self.prompt) + max(0, len(self.output) - 1)) // block_size)

    def in_blocks(self, tree: TokenTree) -> BlockRequest:
        output = self.output if self.output_known else ()
        return tree.request(self.prompt, output, num_output_tokens=len(self.output), namespace=self.salt)


class Exact:
    """The exact core with requests admitted whole: blocks for all tokens at once, or token by token as vLLM does."""

    def __init__(self, num_gpu_blocks: int, block_size: int, profile: Profile = DEFAULT_PROFILE) -> None:
        self.block_size = block_size
        self.usable = num_gpu_blocks - 1
        group = CacheGroupSpec("full_attention", block_size)
        self.manager = KVCacheManager(num_gpu_blocks, [group], max_model_len=1 << 20, profile=profile)
        self.hasher = BlockHasher(block_size, "sha256_cbor", seed="0")
        self.number = 0

    @property
    def cached(self) -> tuple[int, int]:
        pool = self.manager.pool
        return pool.num_cached_hashes, sum(len(held) for held in pool.cached_blocks.values())

    def start(self, call: Call, *, reserve: bool) -> tuple[Request, int] | None:
        self.number += 1
        request = Request(str(self.number), call.prompt, max_tokens=1 << 20, hasher=self.hasher, cache_salt=call.salt)
        computed = self.manager.get_computed_blocks(request)
        new = len(call.prompt) - computed.num_tokens + (max(0, len(call.output) - 1) if reserve else 0)
        if not self.manager.allocate_slots(request, new, computed):
            return None
        request.num_computed_tokens = computed.num_tokens + new
        return request, computed.num_tokens

    def run(self, call: Call) -> int | None:
        """One request alone, its output token by token."""
        if call.num_blocks(self.block_size) > self.usable:
            return None
        started = self.start(call, reserve=False)
        assert started is not None
        request, hit = started
        for token in call.output:
            if request.num_computed_tokens < request.num_tokens:
                assert self.manager.allocate_slots(request, 1)
                request.num_computed_tokens += 1
            request.append_output_token(token)
        self.manager.free(request)
        return hit

    def end(self, request: Request, call: Call) -> None:
        for token in call.output:
            request.append_output_token(token)
        self.manager.cache_blocks(request, len(call.prompt) + max(0, len(call.output) - 1))
        self.manager.free(request)


def cached(cache: FastCache) -> tuple[int, int]:
    return cache.num_cached_hashes, cache.num_cached_blocks


TOKENS = st.integers(0, 1)
PROFILES = st.sampled_from([DEFAULT_PROFILE, Profile.for_version("0.22.0")])
SALTS = st.sampled_from([None, None, None, "a"])


@st.composite
def traffics(draw: st.DrawFn, *, overlapping: bool = False) -> tuple[int, int, list[Call]]:
    """Block size, capacity and requests that often continue, repeat or cut earlier ones."""
    block_size = draw(st.integers(1, 3))
    calls: list[Call] = []
    start, unique = 0, 100
    for _ in range(draw(st.integers(1, 25))):
        base: tuple[int, ...] = ()
        if draw(st.booleans()) and calls:
            earlier = draw(st.sampled_from(calls))
            base = earlier.prompt + (earlier.output if earlier.output_known else ())
            base = base[: draw(st.integers(0, len(base)))] if draw(st.booleans()) else base
        prompt = base + tuple(draw(st.lists(TOKENS, min_size=0 if base else 1, max_size=6)))
        output = tuple(draw(st.lists(TOKENS, max_size=6)))
        output_known = draw(st.booleans())
        if not output_known:
            output = tuple(range(unique, unique := unique + len(output)))
        start += draw(st.integers(0, 2)) if overlapping else 0
        duration = draw(st.integers(0, 8)) if overlapping else 0
        calls.append(Call(prompt, output, draw(SALTS), output_known, start, duration))
    return block_size, draw(st.integers(1, 30)), calls


@settings(max_examples=150, deadline=None)
@given(traffics(), PROFILES)
def test_sequential_equals_the_exact_core(traffic: tuple[int, int, list[Call]], profile: Profile) -> None:
    block_size, num_gpu_blocks, calls = traffic
    tree = TokenTree(block_size)
    exact, fast = Exact(num_gpu_blocks, block_size, profile), FastCache(tree, num_gpu_blocks, profile=profile)
    for call in calls:
        assert fast.replay([call.in_blocks(tree)]) == [exact.run(call)]
        assert cached(fast) == exact.cached
        fast.check_invariants()


@settings(max_examples=50, deadline=None)
@given(traffics())
def test_without_bounds(traffic: tuple[int, int, list[Call]]) -> None:
    block_size, _, calls = traffic
    tree = TokenTree(block_size)
    fast, large = FastCache(tree, None), FastCache(tree, 1000)
    requests = [call.in_blocks(tree) for call in calls]
    assert fast.replay(requests) == large.replay(requests)
    assert cached(fast) == cached(large)
    fast.check_invariants()


def exact_recorded(exact: Exact, calls: Sequence[Call]) -> tuple[list[int | None], int, int]:
    """Cached tokens, how many requests waited, and for how long."""
    hits: list[int | None] = [None] * len(calls)
    running: dict[int, Request] = {}
    waiting: list[int] = []
    waited = time_waited = 0
    # At equal times ends (0) come before starts (1).
    events = [(call.start, 1, index) for index, call in enumerate(calls)]
    heapify(events)

    def admit(index: int, now: int) -> bool:
        if (started := exact.start(calls[index], reserve=True)) is None:
            return False
        running[index], hits[index] = started
        heappush(events, (now + calls[index].duration, 0, index))
        return True

    while events:
        now, kind, index = heappop(events)
        if kind:
            if calls[index].num_blocks(exact.block_size) <= exact.usable and (waiting or not admit(index, now)):
                waiting.append(index)
            continue
        exact.end(running.pop(index), calls[index])
        while waiting and not (events and events[0][:2] == (now, 0)) and admit(waiting[0], now):
            waited += 1
            time_waited += now - calls[waiting.pop(0)].start
    return hits, waited, time_waited


@settings(max_examples=150, deadline=None)
@given(traffics(overlapping=True), PROFILES)
def test_recorded_equals_the_exact_core(traffic: tuple[int, int, list[Call]], profile: Profile) -> None:
    block_size, num_gpu_blocks, calls = traffic
    tree = TokenTree(block_size)
    exact, fast = Exact(num_gpu_blocks, block_size, profile), FastCache(tree, num_gpu_blocks, profile=profile)
    replay = RecordedReplay(fast)
    for call in calls:
        replay.add(call.in_blocks(tree), call.start, call.start + call.duration)
        fast.check_invariants()
    replay.finish()
    hits, waited, time_waited = exact_recorded(exact, calls)
    assert replay.cached_tokens == hits
    assert (replay.num_waited, replay.time_waited) == (waited, time_waited)
    assert cached(fast) == exact.cached
    assert fast.num_free_blocks == exact.usable
    fast.check_invariants()


def load(shared: Path, name: str) -> dict[str, Any]:
    trace: dict[str, Any] = json.loads((shared / "golden" / f"{name}.json").read_text())
    return trace


@pytest.mark.parametrize(
    "name",
    [
        "legacy_022_trace_manager_overlap_random",
        "legacy_022_trace_manager_sequential_small",
        "trace_manager_overlap_duplicates",
        "trace_manager_overlap_random",
        "trace_manager_sequential_large",
        "trace_manager_sequential_small",
    ],
)
def test_manager_trace(shared: Path, name: str) -> None:
    trace = load(shared, name)
    tree = TokenTree(trace["block_size"])
    cache = FastCache(tree, trace["num_gpu_blocks"], profile=Profile.for_version(trace["vllm_version"]))
    leases: dict[str, Lease] = {}
    tokens: dict[str, tuple[list[int], list[int]]] = {}
    for op in trace["ops"]:
        kind, key = op["op"], op.get("id")
        if kind == "reset":
            assert cache.reset() == op["ok"]
            continue
        if kind == "start":
            given = trace["requests"][key]
            prompt, salt = given["prompt"], given.get("cache_salt")
            tokens[key] = prompt[: op["cached"] + op["new_tokens"]], []
            whole = tree.request(prompt, namespace=salt)
            lease = cache.admit(tree.request(tokens[key][0], namespace=salt)._replace(max_hit=whole.max_hit))
            assert lease is not None
            assert lease.num_hit * tree.block_size == op["cached"]
            leases[key] = lease
        elif kind == "free":
            cache.finish(leases.pop(key))
        else:
            given = trace["requests"][key]
            prompt, output = tokens[key]
            if kind == "more":
                prompt += given["prompt"][len(prompt) : len(prompt) + op["new_tokens"]]
            else:
                output += op["tokens"]
            assert cache.extend(leases[key], tree.request(prompt, output, namespace=given.get("cache_salt")))
        assert cache.num_free_blocks == op["free"], op
        cache.check_invariants()
    assert cache.num_cached_hashes == trace["final"]["num_cached_hashes"]
    assert cache.num_cached_blocks == sum(key is not None for _, key in trace["final"]["free_queue_front_first"])
    # The trace counts whole prompts, also where their first step was shorter.
    assert (cache.stats.requests, cache.stats.hits) == (trace["stats"]["requests"], trace["stats"]["hits"])


def test_server_trace(shared: Path) -> None:
    trace = load(shared, "trace_server_sequential")
    tree = TokenTree(trace["block_size"])
    cache = FastCache(tree, trace["num_gpu_blocks"])
    requests = [
        tree.request(given["prompt"], given["output"], namespace=given.get("cache_salt")) for given in trace["requests"]
    ]
    assert cache.replay(requests) == [given["cached"] for given in trace["requests"]]
    stored = sum(len(event["hashes"]) for event in trace["events"] if event["t"] == "stored")
    removed = sum(len(event["hashes"]) for event in trace["events"] if event["t"] == "removed")
    assert cache.num_cached_blocks == stored - removed


def test_a_request_larger_than_the_cache_is_refused() -> None:
    tree = TokenTree(4)
    cache = FastCache(tree, 4)
    fits, too_large = tree.request(range(12)), tree.request(range(12), num_output_tokens=2)
    assert cache.replay([too_large, fits, too_large]) == [None, 0, None]
    assert cache.num_refused == 2
    assert cache.stats.requests == 1
    replay = RecordedReplay(FastCache(tree, 4))
    replay.add(too_large, 0, 5)
    replay.add(fits, 1, 5)
    assert replay.cached_tokens == [None, 0]
    assert replay.cache.num_refused == 1


def test_recorded_waits_in_the_order_of_arrival() -> None:
    tree = TokenTree(4)
    replay = RecordedReplay(FastCache(tree, 4))
    replay.add(tree.request(range(8)), 0, 10)
    replay.add(tree.request(range(100, 108)), 2, 3)
    # It would fit, but is behind one that does not.
    replay.add(tree.request(range(4)), 4, 6)
    assert replay.cached_tokens == [0, None, None]
    replay.finish()
    assert replay.cached_tokens == [0, 0, 0]
    assert (replay.num_waited, replay.time_waited) == (2, 14)
    with pytest.raises(ValueError, match="cannot follow"):
        replay.add(tree.request(range(4)), 3, 6)


def test_no_replay_beside_running_requests() -> None:
    tree = TokenTree(4)
    cache = FastCache(tree, 10)
    lease = cache.admit(tree.request(range(8)))
    assert lease is not None and not cache.reset()
    with pytest.raises(ValueError, match="requests are running"):
        cache.replay([])
    cache.finish(lease)
    assert cache.replay([tree.request(range(9))]) == [8]
    assert cache.reset() and cache.num_cached_blocks == 0
    with pytest.raises(ValueError, match="null block"):
        FastCache(tree, 0)
