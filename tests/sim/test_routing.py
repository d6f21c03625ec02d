"""Replicas and routers: who serves a request, what it finds there, and what the others would have had."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkv_lint.prompt.renderer import Renderer
from pkv_sim.balance import imbalance, replica_totals
from pkv_sim.serving.routing import ROUTERS, RouterName
from pkv_sim.serving.settings import Schedule, Settings
from pkv_sim.simulation import Simulation, cached_tokens, simulate
from pkv_sim.timing.timing_profile import Coefficients, TimingProfile
from pkv_sim.traffic.intake import Reading
from pkv_sim.traffic.loading import load_workload
from pkv_sim.traffic.workload import TrafficRequest, Workload

SIZE = 4
ROUTER_NAMES: tuple[RouterName, ...] = get_args(RouterName)
TIMING = TimingProfile("fitted", "m", "d", Coefficients(1.0, 0.0, 0.0, 0.0, 0.0))


def request(index: int, tokens: Sequence[int], **members: object) -> TrafficRequest:
    return TrafficRequest(index, "traffic", index + 1, len(tokens), ids=array("i", tokens), **members)  # type: ignore[arg-type]


def workload(*requests: TrafficRequest) -> Workload:
    return Workload("traffic", "native", SIZE, requests)


def run(
    work: Workload, router: RouterName, replicas: int, schedule: Schedule = "sequential", **given: int
) -> Simulation:
    timing = TIMING if schedule == "simulated" else None
    chosen = Settings(schedule=schedule, replicas=replicas, router=router, timing=timing, **given)  # type: ignore[arg-type]
    return simulate(work, chosen)


def nothing(replica: int) -> int:
    return 0


class TestRouters:
    def test_all_names_have_a_router(self) -> None:
        assert tuple(ROUTERS) == ROUTER_NAMES

    def test_round_robin(self) -> None:
        router = ROUTERS["round-robin"](3)
        assert [router.route(request(n, [0]), nothing) for n in range(7)] == [0, 1, 2, 0, 1, 2, 0]

    def test_least_loaded_counts_requests_in_flight_then_tokens_so_far(self) -> None:
        router = ROUTERS["least-loaded"](3)
        calls = [request(n, range(length)) for n, length in enumerate((9, 5, 7, 2, 1))]
        assert [router.route(call, nothing) for call in calls[:3]] == [0, 1, 2]
        router.ended(calls[0], 0)
        assert router.route(calls[3], nothing) == 0
        for call, replica in zip(calls[1:4], (1, 2, 0), strict=True):
            router.ended(call, replica)
        # Nothing is in flight: 11, 5 and 7 prompt tokens went there.
        assert router.route(calls[4], nothing) == 1
        assert [load.sent for load in router.loads] == [11, 6, 7]

    def test_sticky_sessions_start_at_the_least_loaded_and_stay(self) -> None:
        router = ROUTERS["sticky"](2)
        sessions = ["a", "b", "a", None, "b", "c"]
        calls = [request(n, [0] * 10, session_id=session) for n, session in enumerate(sessions)]
        assert [router.route(call, nothing) for call in calls] == [0, 1, 0, 1, 1, 0]

    def test_prefix_aware_goes_where_the_least_is_left_to_compute(self) -> None:
        router = ROUTERS["prefix-aware"](2)
        first = request(0, range(100))
        assert router.route(first, nothing) == 0
        # 80 tokens are cached at replica 0, and 100 wait to be computed there: 120 against 100.
        assert router.route(request(1, range(100)), lambda replica: 80 * (replica == 0)) == 1
        router.answered(first, 0)
        assert router.route(request(2, range(100)), lambda replica: 80 * (replica == 0)) == 0
        assert [load.backlog for load in router.loads] == [20, 100]

    def test_prefix_aware_breaks_ties_by_load(self) -> None:
        router = ROUTERS["prefix-aware"](3)
        calls = [request(n, [0] * 8) for n in range(4)]
        for n in range(3):
            assert router.route(calls[n], nothing) == n
            router.ended(calls[n], n)
        assert router.route(calls[3], lambda replica: 8 * (replica > 0)) == 1


def test_a_turn_behind_is_not_half_the_hits() -> None:
    """Each replica of two lags one turn behind; sticky sessions lose nothing."""
    turns = [request(n, range(40 + 8 * n), session_id="s") for n in range(4)]
    round_robin = run(workload(*turns), "round-robin", 2)
    assert [item.cached_tokens for item in round_robin.served] == [0, 0, 40, 48]
    assert round_robin.misses.other_replica == 40 + 8 + 8
    sticky = run(workload(*turns), "sticky", 2)
    assert [item.cached_tokens for item in sticky.served] == [0, 40, 48, 56]
    assert sticky.misses.other_replica == 0
    assert {item.replica for item in sticky.served} == {0}


def test_what_no_replica_has_any_more_was_evicted() -> None:
    calls = [
        request(0, range(12)),  # to replica 0
        request(1, range(100, 112)),
        request(2, range(200, 216)),  # evicts the first one
        request(3, range(12)),
    ]
    (*_, last) = run(workload(*calls), "round-robin", 2, num_gpu_blocks=5).served
    assert last.replica == 1 and last.misses.evicted == 8 and last.misses.other_replica == 0


def test_other_replicas_come_before_other_namespaces() -> None:
    calls = [request(n, range(12), namespace=namespace) for n, namespace in enumerate("abb")]
    first, second, third = run(workload(*calls), "round-robin", 2, num_gpu_blocks=50).served
    assert first.misses.other_namespace == 0
    assert second.misses.other_namespace == 8
    assert third.misses.other_replica == 8 and third.misses.other_namespace == 0


def test_recorded_requests_on_two_replicas() -> None:
    calls = [
        request(0, range(8), start=0.0, end=10.0),
        request(1, range(100, 108), start=1.0, end=2.0),
        request(2, range(200, 208), start=3.0, end=4.0),
        request(3, range(12), start=5.0, end=6.0),
    ]
    work = workload(*calls)
    found = run(work, "least-loaded", 2, "recorded")
    # The second one goes to the idle replica, and has left it when the third one comes.
    assert [item.replica for item in found.served] == [0, 1, 1, 1]
    assert found.served[3].misses.other_replica == 8
    # Replica 0 has 8 of 12 tokens cached; the 8 of the request that still runs there count against it.
    assert run(work, "prefix-aware", 2, "recorded").served[3].replica == 1
    shorter = workload(replace(calls[0], end=4.5), *calls[1:])
    assert run(shorter, "prefix-aware", 2, "recorded").served[3].cached_tokens == 8


def test_waits_are_counted_on_every_replica() -> None:
    calls = [request(n, range(100 * n, 100 * n + 16), start=float(n // 2), end=float(n // 2) + 3) for n in range(4)]
    found = run(workload(*calls), "round-robin", 2, "recorded", num_gpu_blocks=6)
    assert found.waits is not None and (found.waits.requests, found.waits.seconds) == (2, 4.0)


calls_of_sessions = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 30), st.sampled_from([0, 0, 50]), st.floats(0, 3)), max_size=12
)


@given(
    calls=calls_of_sessions,
    router=st.sampled_from(ROUTER_NAMES),
    schedule=st.sampled_from(get_args(Schedule)),
    replicas=st.integers(1, 4),
    blocks=st.sampled_from([9, 14, None]),
)
@settings(max_examples=200, deadline=None)
def test_properties(
    calls: list[tuple[str, int, int, float]], router: RouterName, schedule: Schedule, replicas: int, blocks: int | None
) -> None:
    time = 0.0
    requests = []
    for index, (session, length, start, gap) in enumerate(calls):
        time += gap
        ids = range(start, start + length)
        requests.append(request(index, ids, session_id=session, namespace=session == "c", start=time, end=time + gap))
    work = workload(*requests)
    given = Settings(
        num_gpu_blocks=blocks,
        schedule=schedule,
        replicas=replicas,
        router=router,
        timing=TIMING if schedule == "simulated" else None,
    )
    found = simulate(work, given)
    assert found == simulate(work, given)
    assert [item.cached_tokens for item in found.served] == cached_tokens(work, given)
    for item in found.served:
        assert item.cached_tokens + item.misses.tokens == item.request.num_prompt_tokens
        assert min(item.misses) >= 0 and 0 <= item.replica < replicas
    totals = replica_totals(found)
    assert sum(total.requests for total in totals) == len(found.served)
    assert sum(total.prompt_tokens for total in totals) == found.prompt_tokens
    assert sum(total.cached_tokens for total in totals) == found.cached_tokens
    if blocks is None:
        assert found.misses.evicted == 0
    if replicas == 1:
        # One replica is no router at all.
        alone = simulate(work, Settings(num_gpu_blocks=blocks, schedule=schedule, timing=given.timing))
        assert [item.misses for item in found.served] == [item.misses for item in alone.served]
        assert found.misses.other_replica == 0
    if router == "sticky":
        homes = {(item.request.session_id, item.replica) for item in found.served}
        assert len(homes) == len({session for session, _ in homes})
    if router == "prefix-aware" and schedule == "sequential" and blocks is None:
        # Nothing is ever in the way of the longest prefix.
        assert found.misses.other_replica == 0


def test_imbalance() -> None:
    assert imbalance([5, 5, 5]) == 1
    assert imbalance([12, 0, 0]) == 3
    assert imbalance([0, 0]) == 0


CASE_21: list[tuple[RouterName, int, list[int]]] = [
    ("round-robin", 1, [0, 1232, 1280, 1312]),
    ("sticky", 2, [0, 1232, 1280, 1312]),
    ("prefix-aware", 2, [0, 1232, 1280, 1312]),
    ("round-robin", 2, [0, 0, 1232, 1280]),
    ("least-loaded", 2, [0, 0, 1232, 1280]),
]


@pytest.fixture(scope="module")
def case_21(shared: Path) -> tuple[Workload, list[int]]:
    (folder,) = (shared / "cases").glob("21-*")
    expected = json.loads((folder / "expected.json").read_text())["traffic"]
    template, tokenizer = shared / "data/templates/Qwen-Qwen3-0.6B.jinja", shared / "data/tokenizers/qwen3"
    renderer = Renderer.load(chat_template=str(template), tokenizer=str(tokenizer))
    work = load_workload(str(folder / "traffic.jsonl"), lambda: renderer, Reading(causes=False))
    return work, expected["prompt_tokens"]


@pytest.mark.parametrize(("router", "replicas", "hits"), CASE_21)
@pytest.mark.parametrize("schedule", get_args(Schedule))
def test_case_21(
    case_21: tuple[Workload, list[int]], router: RouterName, replicas: int, hits: list[int], schedule: Schedule
) -> None:
    work, lengths = case_21
    found = run(work, router, replicas, schedule)
    assert [item.request.num_prompt_tokens for item in found.served] == lengths
    assert [item.cached_tokens for item in found.served] == hits
    assert found.misses.other_replica == (1312 if hits[1] == 0 else 0)
