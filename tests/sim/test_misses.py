"""Each prompt token is hit or has one reason: against the rules spelled out block by block."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkv_sim.exact.cache_group import CacheGroupSpec
from pkv_sim.exact.cache_manager import KVCacheManager
from pkv_sim.exact.hashing import BlockHasher
from pkv_sim.exact.request import Request
from pkv_sim.serving.misses import Misses, misses_of, total
from pkv_sim.serving.settings import Settings
from pkv_sim.simulation import simulate
from pkv_sim.traffic.workload import Blame, TrafficRequest, Workload

SIZE = 4


def request(index: int, ids: list[int], salt: str = "", generated: list[int] | None = None) -> TrafficRequest:
    """`generated` is the whole reply; its last token leaves nothing in the cache."""
    return TrafficRequest(
        index,
        "f",
        index + 1,
        len(ids),
        ids=array("i", ids),
        namespace=salt,
        generated=array("i", generated[:-1]) if generated and len(generated) > 1 else None,
        num_generated_tokens=len(generated) if generated and len(generated) > 1 else None,
    )


def workload(*requests: TrafficRequest, blames: dict[int, tuple[Blame, ...]] | None = None) -> Workload:
    return Workload("f", "requests", SIZE, requests, blames=blames)


def reasons(*requests: TrafficRequest, blocks: int | None = None) -> list[dict[str, int]]:
    """What each request hit and missed, zeros left out."""
    simulation = simulate(workload(*requests), Settings(num_gpu_blocks=blocks))
    found = []
    for item in simulation.served:
        parts = {"cached": item.cached_tokens, **item.misses._asdict()}
        assert sum(parts.values()) == item.request.num_prompt_tokens
        found.append({name: tokens for name, tokens in parts.items() if tokens})
    return found


def numbers(start: int, count: int) -> list[int]:
    return list(range(start, start + count))


def test_a_prompt_that_was_never_seen_is_new() -> None:
    assert reasons(request(0, numbers(0, 10)))[0] == {"first_seen": 8, "partial_block": 2}


def test_the_same_prompt_again_loses_its_last_block_to_the_cap() -> None:
    prompt = numbers(0, 12)
    assert reasons(request(0, prompt), request(1, prompt))[1] == {"cached": 8, "last_block": 4}
    longer = [*prompt, 99]
    assert reasons(request(0, prompt), request(1, longer))[1] == {"cached": 12, "partial_block": 1}


def test_the_cap_takes_nothing_that_was_not_there() -> None:
    assert reasons(request(0, numbers(0, 8)))[0] == {"first_seen": 8}


def test_a_change_makes_all_behind_it_diverge() -> None:
    first = numbers(0, 20)
    second = [*first[:10], 99, *first[11:]]
    assert reasons(request(0, first), request(1, second))[1] == {"cached": 8, "diverged": 12}


def test_a_change_at_the_border_of_a_block_diverges_too() -> None:
    first = numbers(0, 20)
    assert reasons(request(0, first), request(1, [*first[:8], *numbers(50, 12)]))[1] == {"cached": 8, "diverged": 12}


def test_a_conversation_that_grows_does_not_diverge() -> None:
    first = numbers(0, 10)
    assert reasons(request(0, first), request(1, numbers(0, 20)))[1] == {"cached": 8, "first_seen": 12}


def test_another_reply_in_the_cache_diverges() -> None:
    first = request(0, numbers(0, 8), generated=numbers(100, 9))
    assert reasons(first, request(1, [*numbers(0, 8), *numbers(100, 8), 1]))[1] == {"cached": 16, "partial_block": 1}
    changed = [*numbers(0, 8), 100, *numbers(200, 8)]
    assert reasons(first, request(1, changed))[1] == {"cached": 8, "diverged": 8, "partial_block": 1}


def test_other_text_from_the_first_token_on_is_new() -> None:
    assert reasons(request(0, numbers(0, 8)), request(1, numbers(50, 8)))[1] == {"first_seen": 8}


def test_a_short_prompt_is_below_a_block() -> None:
    assert reasons(request(0, [1, 2, 3]), request(1, [1, 2, 3]))[1] == {"below_block": 3}


def test_another_salt_has_it() -> None:
    prompt = numbers(0, 10)
    found = reasons(request(0, prompt, "a"), request(1, prompt, "b"), request(2, prompt, "b"))
    assert found[1:] == [{"other_namespace": 8, "partial_block": 2}, {"cached": 8, "partial_block": 2}]


def test_what_had_to_go_is_evicted() -> None:
    one, two = numbers(0, 12), numbers(50, 12)
    assert reasons(request(0, one), request(1, two), request(2, one), blocks=5)[2] == {"cached": 4, "evicted": 4} | {
        "last_block": 4
    }


def test_evicted_here_and_cached_there_is_the_other_namespace() -> None:
    shared = numbers(0, 8)
    calls = [
        request(0, [*shared, 1], "a"),
        request(1, [*shared, 2], "b"),
        request(2, numbers(50, 9), "b"),
        request(3, [*shared, 3], "a"),
    ]
    assert reasons(*calls, blocks=6)[3] == {"other_namespace": 8, "partial_block": 1}
    assert reasons(*calls, blocks=7)[3] == {"cached": 4, "other_namespace": 4, "partial_block": 1}


def test_a_request_that_does_not_look_diverges_from_what_it_could_have_had() -> None:
    prompt = numbers(0, 10)
    blind = replace(request(1, prompt), reads_cache=False)
    assert reasons(request(0, prompt), blind)[1] == {"diverged": 8, "partial_block": 2}
    assert reasons(blind, request(1, prompt))[1] == {"cached": 8, "partial_block": 2}


def test_a_prompt_larger_than_the_cache_is_refused_and_named() -> None:
    calls = [request(0, numbers(0, 8)), request(1, numbers(0, 30)), request(2, numbers(0, 9))]
    simulation = simulate(workload(*calls), Settings(num_gpu_blocks=6))
    assert [item.request.index for item in simulation.served] == [0, 2]
    assert [(item.index, item.line, item.reason) for item in simulation.refused] == [
        (1, 2, "needs more than the 5 usable blocks of the cache")
    ]
    assert simulation.prompt_tokens == 17


def test_blames_never_exceed_what_was_missed() -> None:
    prompt = numbers(0, 20)
    calls = [request(0, prompt), request(1, [*prompt[:10], *numbers(90, 10)])]
    given = (Blame("PKV101", "n", "p", "diverged", 8), Blame("PKV103", "n", "q", "diverged", 8))
    simulation = simulate(workload(*calls, blames={1: given}), Settings())
    assert [(blame.code, blame.tokens) for blame in simulation.served[1].blames] == [("PKV101", 8), ("PKV103", 4)]


def test_a_block_that_a_reply_filled_is_seen_from_other_namespaces() -> None:
    calls = [request(0, numbers(0, 3), "a", [3, 9]), request(1, numbers(0, 5), "b")]
    assert reasons(*calls, blocks=6)[1] == {"other_namespace": 4, "partial_block": 1}


def test_other_replicas_come_first() -> None:
    found = misses_of(40, SIZE, hit=2, seen=8, diverges=True, other_replica=4, other_namespace=6)
    assert found == Misses(other_replica=8, other_namespace=8, evicted=8, diverged=8)
    capped = misses_of(40, SIZE, hit=9, seen=10, diverges=False, other_replica=10)
    assert capped == Misses(last_block=4)
    assert total([found, capped]) == found._replace(last_block=4)


# Any traffic.


@dataclass
class Rules:
    """The rules, token by token: what was computed before, and vLLM's own manager for what is cached."""

    blocks: int

    def __post_init__(self) -> None:
        self.manager = KVCacheManager(self.blocks, [CacheGroupSpec("full_attention", SIZE)], max_model_len=1 << 20)
        self.hasher = BlockHasher(SIZE)
        self.known: list[tuple[str, list[int]]] = []

    def cached(self, ids: list[int], salt: str) -> int:
        """The blocks of a prompt that are findable under a salt, the last one included."""
        asked = Request("probe", ids, max_tokens=1, hasher=self.hasher, cache_salt=salt)
        found = 0
        for digest in asked.block_hashes:
            if self.manager.pool.get_cached_block(digest, 0) is None:
                break
            found += 1
        return found

    def serve(self, number: int, call: TrafficRequest) -> Misses | None:
        ids, salt = list(call.ids or ()), str(call.namespace)
        output = list(call.generated or ())
        if -(-(len(ids) + len(output)) // SIZE) > self.blocks - 1:
            return None
        reasons = self.reasons(ids, salt)
        served = Request(str(number), ids, max_tokens=1 + len(output), hasher=self.hasher, cache_salt=salt)
        hit = self.manager.get_computed_blocks(served)
        assert self.manager.allocate_slots(served, len(ids) - hit.num_tokens, hit)
        served.num_computed_tokens = len(ids)
        for token in output:
            served.append_output_token(token)
            assert self.manager.allocate_slots(served, 1)
            served.num_computed_tokens += 1
        self.manager.free(served)
        self.known.append((salt, ids + output))
        return reasons

    def reasons(self, ids: list[int], salt: str) -> Misses:
        def shared(other: list[int]) -> int:
            return next(
                (at for at, (a, b) in enumerate(zip(ids, other, strict=False)) if a != b), min(len(ids), len(other))
            )

        full = len(ids) // SIZE
        if not full:
            return Misses(below_block=len(ids))
        usable = (len(ids) - 1) // SIZE
        own = min(self.cached(ids, salt), usable)
        others = {name for name, _ in self.known} - {salt}
        there = max((self.cached(ids, name) for name in others), default=0)
        before = max((shared(known) for name, known in self.known if name == salt), default=0) // SIZE
        most = max((shared(known) for _, known in self.known), default=0)
        parted = most > 0 and any(shared(known) == most < len(known) for _, known in self.known)
        counts = dict.fromkeys(Misses._fields, 0)
        for block in range(own, full):
            if block >= usable and max(there, before) >= full:
                reason = "last_block"
            elif block < min(there, usable):
                reason = "other_namespace"
            elif block < min(before, usable):
                reason = "evicted"
            else:
                reason = "diverged" if parted else "first_seen"
            counts[reason] += SIZE
        return Misses(**counts)._replace(partial_block=len(ids) % SIZE)


STEMS = (numbers(0, 30), [*numbers(0, 9), *numbers(40, 21)], [*numbers(0, 16), *numbers(70, 14)], numbers(100, 30))


@st.composite
def calls(draw: st.DrawFn) -> list[TrafficRequest]:
    found = []
    for index in range(draw(st.integers(1, 12))):
        prompt = draw(st.sampled_from(STEMS))[: draw(st.integers(1, 30))]
        prompt = prompt + draw(st.lists(st.integers(0, 3), max_size=6))
        reply = draw(st.one_of(st.none(), st.just(numbers(30, 7)), st.lists(st.integers(0, 3), min_size=2, max_size=9)))
        found.append(request(index, prompt, draw(st.sampled_from(["", "a", "b"])), reply))
    return found


@settings(max_examples=300, deadline=None)
@given(calls(), st.integers(6, 40))
def test_reasons_equal_the_rules(traffic: list[TrafficRequest], blocks: int) -> None:
    rules = Rules(blocks)
    expected = [rules.serve(number, call) for number, call in enumerate(traffic)]
    simulation = simulate(workload(*traffic), Settings(num_gpu_blocks=blocks))
    assert [item.misses for item in simulation.served] == [misses for misses in expected if misses is not None]
    assert len(simulation.refused) == expected.count(None)


@settings(max_examples=100, deadline=None)
@given(calls())
def test_nothing_is_evicted_without_a_limit(traffic: list[TrafficRequest]) -> None:
    rules = Rules(1000)
    expected = [rules.serve(number, call) for number, call in enumerate(traffic)]
    simulation = simulate(workload(*traffic), Settings())
    assert [item.misses for item in simulation.served] == expected
    assert not simulation.misses.evicted


@pytest.mark.parametrize("blocks", [None, 12])
def test_block_ids_give_the_same_as_tokens(blocks: int | None) -> None:
    """Prompts of whole blocks, known by their tokens and by the ids of their blocks."""
    chains = [[0, 1, 2, 3], [0, 1, 2, 3, 4, 5], [0, 1, 7, 8], [9, 10], [0, 1, 2, 3], [0, 1, 7, 8, 9]]
    tokens = [request(at, [b * SIZE + i for b in chain for i in range(SIZE)]) for at, chain in enumerate(chains)]
    ids = [
        TrafficRequest(at, "f", at + 1, len(chain) * SIZE, runs=array("q", [b for b in chain for _ in range(2)]))
        for at, chain in enumerate(chains)
    ]
    assert reasons(*ids, blocks=blocks) == reasons(*tokens, blocks=blocks)
