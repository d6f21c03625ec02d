"""The simulated schedule: requests in time, through the exact scheduler."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkv_lint.prompt.errors import InputError
from pkv_sim.exact.profile import Profile
from pkv_sim.latency import latency_of, throughput_of
from pkv_sim.serving.limits import SchedulerLimits
from pkv_sim.serving.routing import RouterName
from pkv_sim.serving.settings import Schedule, Settings
from pkv_sim.serving.times import Distribution, Times, percentile
from pkv_sim.simulation import Simulation, simulate
from pkv_sim.timing.alone import Alone
from pkv_sim.timing.timing_profile import Coefficients, Range, TimingProfile
from pkv_sim.traffic.generated import Generated
from pkv_sim.traffic.workload import TrafficRequest, Workload

SIZE = 4
STEPS = TimingProfile("fitted", "m", "d", Coefficients(1.0, 0.0, 0.0, 0.0, 0.0))
"""A step takes a second, whatever it computes."""
MIXED = TimingProfile("fitted", "m", "d", Coefficients(0.01, 0.001, 0.00001, 0.002, 0.00003))
SYNC = SchedulerLimits(async_scheduling=False)


def request(index: int, tokens: Sequence[int], start: float, output: int = 1, **members: Any) -> TrafficRequest:
    members = {"num_generated_tokens": output} | members
    return TrafficRequest(index, "traffic", index + 1, len(tokens), ids=array("i", tokens), start=start, **members)


def simulated(
    *requests: TrafficRequest, timing: TimingProfile = STEPS, limits: SchedulerLimits = SYNC, **given: Any
) -> Simulation:
    work = Workload("traffic", "native", SIZE, requests)
    return simulate(work, Settings(schedule="simulated", timing=timing, limits=limits, **given))


def times_of(simulation: Simulation) -> list[Times]:
    found = [item.times for item in simulation.served if item.times is not None]
    assert len(found) == len(simulation.served)
    return found


class TestByHand:
    def test_one_request(self) -> None:
        # One step for the prompt and the first token, one for each further token.
        (times,) = times_of(simulated(request(0, range(10), 5.0, 3)))
        assert times == Times(5.0, 5.0, 6.0, 8.0, 3, 0)
        assert (times.queued, times.ttft, times.tpot, times.e2e) == (0.0, 1.0, 1.0, 3.0)

    def test_a_reply_of_one_token_has_no_time_per_token(self) -> None:
        (times,) = times_of(simulated(request(0, range(10), 0.0, 1)))
        assert times.tpot is None and times.e2e == times.ttft == 1.0

    def test_a_request_that_comes_during_a_step_waits_for_its_end(self) -> None:
        first, second = times_of(simulated(request(0, range(10), 0.0, 4), request(1, range(50, 60), 1.5, 2)))
        assert first == Times(0.0, 0.0, 1.0, 4.0, 4, 0)
        assert second == Times(1.5, 2.0, 3.0, 4.0, 2, 0)

    def test_an_arrival_at_the_end_of_a_step_is_in_the_next_one(self) -> None:
        _, second = times_of(simulated(request(0, range(10), 0.0, 4), request(1, range(50, 60), 1.0, 1)))
        assert second == Times(1.0, 1.0, 2.0, 2.0, 1, 0)

    def test_asynchronous_steps_are_scheduled_one_ahead(self) -> None:
        first, second = times_of(
            simulated(request(0, range(10), 0.0, 4), request(1, range(50, 60), 0.5, 1), limits=SchedulerLimits())
        )
        assert first == Times(0.0, 0.0, 1.0, 4.0, 4, 0)
        # At 0.5 the steps up to 2.0 stand; at 1.0 the one from 2.0 to 3.0 is scheduled.
        assert second == Times(0.5, 1.0, 3.0, 3.0, 1, 0)

    def test_a_prompt_larger_than_a_step(self) -> None:
        limits = SchedulerLimits(max_num_batched_tokens=4, async_scheduling=False)
        (times,) = times_of(simulated(request(0, range(10), 0.0), limits=limits))
        assert times.ttft == 3.0

    def test_no_more_sequences_than_allowed(self) -> None:
        limits = SchedulerLimits(max_num_seqs=1, async_scheduling=False)
        calls = [request(n, range(100 * n, 100 * n + 10), 0.0, 2) for n in range(3)]
        simulation = simulated(*calls, limits=limits)
        assert [times.queued for times in times_of(simulation)] == [0.0, 2.0, 4.0]
        (engine,) = simulation.engines
        assert (engine.peak_running, engine.peak_waiting, engine.steps, engine.busy) == (1, 2, 6, 6.0)

    def test_priorities(self) -> None:
        limits = SchedulerLimits(max_num_seqs=1, policy="priority", async_scheduling=False)
        calls = [request(n, range(100 * n, 100 * n + 10), 0.0, 2, priority=-n) for n in range(3)]
        assert [times.queued for times in times_of(simulated(*calls, limits=limits))] == [4.0, 2.0, 0.0]

    def test_loads_have_their_prices(self) -> None:
        # A step with 8 prompt tokens (36 pairs), then two of one token behind 8 and 9 others.
        (times,) = times_of(simulated(request(0, range(8), 0.0, 3), timing=MIXED))
        assert times.ttft == pytest.approx(0.01 + 0.008 + 0.00036)
        assert times.tpot == pytest.approx(0.01 + 0.002 + 0.00003 * (9 + 10) / 2)

    def test_preemption(self) -> None:
        # Eight blocks for two requests that come to six each.
        calls = [request(n, range(100 * n, 100 * n + 12), 0.0, 12) for n in range(2)]
        simulation = simulated(*calls, num_gpu_blocks=9)
        assert [times.preemptions for times in times_of(simulation)] == [0, 1]
        throughput = throughput_of(simulation)
        assert throughput is not None and throughput.preemptions == 1 and throughput.output_tokens == 24

    def test_a_watermark_keeps_requests_waiting(self) -> None:
        calls = [request(n, range(100 * n, 100 * n + 12), 0.0, 4) for n in range(2)]
        assert [times.queued for times in times_of(simulated(*calls, num_gpu_blocks=9))] == [0.0, 0.0]
        limits = SchedulerLimits(watermark=0.5, async_scheduling=False)
        assert [times.queued for times in times_of(simulated(*calls, num_gpu_blocks=9, limits=limits))] == [0.0, 4.0]

    def test_throughput(self) -> None:
        throughput = throughput_of(simulated(request(0, range(10), 5.0, 3), request(1, range(20), 9.0, 1)))
        assert throughput is not None
        assert (throughput.seconds, throughput.requests, throughput.prompt_tokens, throughput.output_tokens) == (
            5,
            2,
            30,
            4,
        )
        assert throughput.per_second(throughput.output_tokens) == 0.8

    def test_replicas_run_side_by_side(self) -> None:
        limits = SchedulerLimits(max_num_seqs=1, async_scheduling=False)
        calls = [request(n, range(100 * n, 100 * n + 10), 0.0, 2) for n in range(4)]
        simulation = simulated(*calls, limits=limits, replicas=2)
        assert [times.queued for times in times_of(simulation)] == [0.0, 0.0, 2.0, 2.0]
        assert [engine.steps for engine in simulation.engines] == [4, 4]


class TestReplies:
    def test_generated_text_is_found_by_the_next_turn(self) -> None:
        reply = array("i", range(10, 17))
        calls = [request(0, range(10), 0.0, 8, generated=reply), request(1, range(20), 100.0)]
        assert [item.cached_tokens for item in simulated(*calls).served] == [0, 16]
        assert [item.cached_tokens for item in simulated(*calls, generated="counted").served] == [0, 8]

    def test_replies_take_time_in_every_mode_but_none(self) -> None:
        reply = array("i", range(10, 17))
        calls = [request(0, range(10), 0.0, 8, generated=reply), request(1, range(50, 60), 100.0, 5)]
        lengths = {
            mode: [times.output_tokens for times in times_of(simulated(*calls, generated=mode))]
            for mode in get_args(Generated)
        }
        assert lengths == {"recorded": [8, 5], "none": [1, 1], "counted": [8, 5], "text": [8, 5]}

    def test_an_unknown_length_is_one_token_and_is_said(self) -> None:
        simulation = simulated(request(0, range(10), 0.0, num_generated_tokens=None))
        assert times_of(simulation)[0].output_tokens == 1
        assert simulation.notes == ("1 request without a recorded reply: only a first token is simulated",)

    def test_more_blocks_than_memory_should_hold_are_refused(self) -> None:
        calls = [request(0, range(10), 0.0)]
        with pytest.raises(InputError, match="say fewer with --num-gpu-blocks"):
            simulated(*calls, limits=SchedulerLimits(watermark=0.999999999))
        with pytest.raises(InputError, match="are more than 67,108,864"):
            simulated(request(0, range(10), 0.0, 1 << 30))
        assert simulated(*calls, num_gpu_blocks=1 << 40).cached_tokens == 0

    def test_the_length_of_the_model_ends_replies(self) -> None:
        limits = SchedulerLimits(max_model_len=12, async_scheduling=False)
        assert times_of(simulated(request(0, range(10), 0.0, 9), limits=limits))[0].output_tokens == 2

    def test_requests_known_by_their_blocks(self) -> None:
        def call(index: int, last: int, tokens: int, start: float) -> TrafficRequest:
            runs = array("q", (0, last))
            return TrafficRequest(index, "t", 1, tokens, runs=runs, start=start, num_generated_tokens=6)

        work = Workload("t", "mooncake", SIZE, (call(0, 2, 13, 0.0), call(1, 3, 19, 50.0)))
        found = simulate(work, Settings(schedule="simulated", timing=STEPS))
        assert [item.cached_tokens for item in found.served] == [0, 12]
        assert found.served[1].misses.first_seen == 4


class TestReasons:
    def test_what_is_computed_at_the_same_time_is_not_evicted(self) -> None:
        limits = SchedulerLimits(max_num_batched_tokens=8, async_scheduling=False)
        calls = [request(0, range(40), 0.0), request(1, range(41), 1.0)]
        leader, follower = simulated(*calls, limits=limits).served
        # The leader computes 8 tokens a step and fills its steps; the follower starts behind it.
        assert leader.misses.evicted == follower.misses.evicted == 0
        assert follower.cached_tokens + follower.misses.tokens == 41

    def test_a_follower_hits_what_its_leader_computes_in_the_same_step(self) -> None:
        calls = [request(0, range(40), 0.0), request(1, range(41), 0.0)]
        assert [item.cached_tokens for item in simulated(*calls).served] == [0, 40]

    def test_eviction(self) -> None:
        calls = [request(0, range(16), 0.0), request(1, range(50, 74), 10.0), request(2, range(16), 20.0)]
        assert simulated(*calls, num_gpu_blocks=7).served[2].misses.evicted > 0

    def test_another_salt(self) -> None:
        calls = [request(0, range(16), 0.0, namespace="a"), request(1, range(16), 10.0, namespace="b")]
        for blocks in (None, 50):
            assert simulated(*calls, num_gpu_blocks=blocks).served[1].misses.other_namespace == 12

    def test_requests_that_do_not_read_the_cache(self) -> None:
        calls = [request(0, range(16), 0.0), request(1, range(16), 10.0, reads_cache=False)]
        assert simulated(*calls).served[1].cached_tokens == 0


def test_more_blocks_than_are_ever_computed_cost_nothing() -> None:
    calls = [request(n, range(100 * n, 100 * n + 12), 0.0, 4) for n in range(3)]
    for limits in (SYNC, SchedulerLimits(watermark=0.9, async_scheduling=False)):
        found = [simulated(*calls, num_gpu_blocks=blocks, limits=limits) for blocks in (1 << 40, 1000, None)]
        assert times_of(found[0]) == times_of(found[1]) == times_of(found[2])


class TestRefusals:
    def test_larger_than_the_cache(self) -> None:
        simulation = simulated(request(0, range(40), 0.0), request(1, range(8), 0.0), num_gpu_blocks=5)
        assert [item.request.index for item in simulation.served] == [1]
        assert simulation.refused[0].reason == "needs more than the 4 usable blocks of the cache"

    def test_no_time(self) -> None:
        timeless = TrafficRequest(0, "traffic", 7, 5, ids=array("i", range(5)))
        with pytest.raises(InputError, match="traffic:7: has no timestamp, which --schedule simulated needs"):
            simulated(timeless)

    def test_no_times_of_steps(self) -> None:
        with pytest.raises(InputError, match="needs the times of steps: --timing FILE"):
            Settings(schedule="simulated")

    def test_asynchronous_scheduling_of_old_releases(self) -> None:
        old = Profile.for_version("0.22")
        with pytest.raises(InputError, match=r"from vLLM 0\.27 on: say --no-async-scheduling"):
            simulated(request(0, range(5), 0.0), limits=SchedulerLimits(), profile=old)
        assert len(simulated(request(0, range(5), 0.0), profile=old).served) == 1


def test_steps_outside_of_the_fit_are_noted() -> None:
    narrow = TimingProfile("fitted", "m", "d", STEPS.coefficients, {"prefill_token": Range(1, 16)})
    note = "prefill_token is outside what the timing was fitted to (1 to 16 in a step) in 1 of 2 steps"
    calls = [request(0, range(40), 0.0), request(1, range(100, 110), 9.0)]
    assert simulated(*calls, timing=narrow).notes == (note,)
    on_replicas = simulated(*calls, timing=narrow, replicas=2, limits=SYNC).notes
    assert on_replicas == (f"replica 0: {note.replace('of 2', 'of 1')}",)


lengths = st.integers(1, 40)
calls_in_time = st.lists(st.tuples(lengths, st.sampled_from([0, 0, 100]), st.integers(1, 12)), min_size=1, max_size=8)


@given(calls=calls_in_time, asynchronous=st.booleans(), chunk=st.sampled_from([8, 64]))
@settings(max_examples=100, deadline=None)
def test_far_apart_all_schedules_agree(calls: list[tuple[int, int, int]], asynchronous: bool, chunk: int) -> None:
    requests = []
    for index, (length, first, output) in enumerate(calls):
        start, reply = 100.0 * index, array("i", range(first + length, first + length + output - 1))
        prompt = range(first, first + length)
        requests.append(request(index, prompt, start, output, end=start + 50, generated=reply or None))
    limits = SchedulerLimits(max_num_batched_tokens=chunk, async_scheduling=asynchronous)
    work = Workload("traffic", "native", SIZE, tuple(requests))
    for blocks in (None, 20):
        shared: dict[str, Any] = {"num_gpu_blocks": blocks, "timing": MIXED, "limits": limits, "generated": "text"}
        found = {name: simulate(work, Settings(schedule=name, **shared)) for name in get_args(Schedule)}
        hits = {name: [(item.cached_tokens, item.misses) for item in each.served] for name, each in found.items()}
        assert hits["sequential"] == hits["recorded"] == hits["simulated"]
        # A request alone takes as long in simulated time as by itself.
        for alone, timed in zip(found["sequential"].served, found["simulated"].served, strict=True):
            assert alone.ttft == pytest.approx(timed.ttft)


def test_the_time_alone() -> None:
    limits = SchedulerLimits(max_num_batched_tokens=16, async_scheduling=False)
    (times,) = times_of(simulated(request(0, range(41), 3.0), timing=MIXED, limits=limits))
    assert times.ttft == pytest.approx(Alone(MIXED, 16).ttft(41, 0))


@given(
    calls=st.lists(st.tuples(lengths, st.floats(0, 0.05), st.integers(1, 12)), max_size=15),
    asynchronous=st.booleans(),
    replicas=st.integers(1, 3),
    router=st.sampled_from(get_args(RouterName)),
    blocks=st.sampled_from([16, 40, None]),
)
@settings(max_examples=100, deadline=None)
def test_times_make_sense(
    calls: list[tuple[int, float, int]], asynchronous: bool, replicas: int, router: RouterName, blocks: int | None
) -> None:
    time, requests = 0.0, []
    for index, (length, gap, output) in enumerate(calls):
        time += gap
        requests.append(request(index, range(length), time, output, session_id=str(index % 3)))
    limits = SchedulerLimits(max_num_batched_tokens=16, max_num_seqs=4, async_scheduling=asynchronous)
    given: dict[str, Any] = {"limits": limits, "replicas": replicas, "router": router, "num_gpu_blocks": blocks}
    simulation = simulated(*requests, timing=MIXED, **given)
    assert simulation == simulated(*requests, timing=MIXED, **given)
    assert len(simulation.served) == len(requests)
    for item, times in zip(simulation.served, times_of(simulation), strict=True):
        assert times.arrival == item.request.start
        assert times.arrival <= times.admitted < times.first_token <= times.finished
        assert times.output_tokens == item.request.num_generated_tokens
        assert item.ttft == times.ttft
        assert item.cached_tokens + item.misses.tokens == item.request.num_prompt_tokens
    if requests:
        throughput = throughput_of(simulation)
        assert throughput is not None and throughput.output_tokens == sum(output for *_, output in calls)
        assert max(engine.peak_running for engine in simulation.engines) <= 4
        assert all(engine.busy <= throughput.seconds + 1e-9 for engine in simulation.engines)


GOLDEN = (
    "legacy_022_trace_sched_no_reserve",
    "legacy_022_trace_sched_small",
    "trace_sched_block32",
    "trace_sched_chunked",
    "trace_sched_large",
    "trace_sched_no_reserve",
    "trace_sched_no_reserve_async",
    "trace_sched_priority",
    "trace_sched_priority_async",
    "trace_sched_salt_watermark",
    "trace_sched_same_step",
    "trace_sched_small",
    "trace_sched_small_async",
)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_traces_with_a_step_a_second(shared: Path, name: str) -> None:
    """Traces of the real scheduler, steps as seconds, through the whole event loop. (Traces with aborts and resets have
    nothing in a traffic to stand for them.)"""
    trace = json.loads((shared / "golden" / f"{name}.json").read_text())
    config = trace["config"]
    asynchronous = config["async_scheduling"]
    given = sorted(trace["requests"], key=lambda item: (item["step"], item["seq"]))
    calls = [
        request(
            item["seq"],
            item["prompt"],
            # The second step of an asynchronous engine is scheduled together with its first one.
            float(item["step"] - (asynchronous and item["step"] > given[0]["step"])),
            len(item["output"]),
            session_id=item["id"],
            namespace=item.get("cache_salt"),
            generated=array("i", item["output"][:-1]) or None,
            priority=item.get("priority", 0),
        )
        for item in given
    ]
    names = SchedulerLimits.__dataclass_fields__.keys() & config.keys()
    simulation = simulate(
        Workload(name, "native", config["block_size"], tuple(calls)),
        Settings(
            schedule="simulated",
            timing=STEPS,
            limits=SchedulerLimits(**{limit: config[limit] for limit in names}),
            num_gpu_blocks=config["num_gpu_blocks"],
            profile=Profile.for_version(trace["vllm_version"]),
        ),
    )
    assert len(simulation.served) == len(trace["results"])
    # vLLM 0.22 reports the hit of the last admission before the first token; here it is that of the first.
    rewritten = simulation.settings.profile.cached_tokens_rewritten
    for item, times in zip(simulation.served, times_of(simulation), strict=True):
        result = trace["results"][item.request.session_id]
        assert times.preemptions == result["preemptions"]
        if not (rewritten and times.preemptions):
            assert item.cached_tokens == result["cached"]
        if not asynchronous:
            assert (times.admitted, times.finished) == (result["first_step"], result["finish_step"] + 1)


class TestDistribution:
    def test_percentiles_lie_in_between(self) -> None:
        assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
        assert percentile([1.0], 0.99) == 1.0
        assert percentile([0.0, 10.0], 0.95) == 9.5

    def test_equal_to_numpy(self) -> None:
        np = pytest.importorskip("numpy")
        values = [float(n * n % 97) for n in range(50)]
        found = Distribution.of(values)
        assert found is not None
        expected = [np.mean(values), *np.percentile(values, (50, 95, 99)), max(values)]
        assert [found.mean, found.p50, found.p95, found.p99, found.max] == pytest.approx(expected)

    def test_nothing(self) -> None:
        assert Distribution.of([]) is None
        empty = simulated()
        assert latency_of(empty) is None and throughput_of(empty) is None
