"""The scheduler's rules, one small case each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pkv_lint.prompt.errors import InputError
from pkv_sim.exact.hashing import BlockHasher
from pkv_sim.exact.profile import Profile
from pkv_sim.exact.request import Request, RequestStatus
from pkv_sim.exact.scheduler import Scheduler
from pkv_sim.exact.scheduler_config import SchedulerConfig
from pkv_sim.exact.scheduler_output import SchedulerOutput, StepResult

HASHER = BlockHasher(4, seed="0")
TOKEN = 99


def scheduler(**options: Any) -> Scheduler:
    given = {"num_gpu_blocks": 50, "block_size": 4, "max_model_len": 1000, "async_scheduling": False, **options}
    return Scheduler(SchedulerConfig(**given))


def request(name: str, tokens: Sequence[int], max_tokens: int = 10, **options: Any) -> Request:
    return Request(name, tokens, max_tokens=max_tokens, hasher=HASHER, **options)


def schedule(subject: Scheduler) -> tuple[SchedulerOutput, dict[str, int]]:
    output = subject.schedule()
    subject.check_invariants()
    return output, {item.request.request_id: item.num_new_tokens for item in output.scheduled}


def process(subject: Scheduler, output: SchedulerOutput, token: int = TOKEN) -> StepResult:
    result = subject.update_from_output(
        output, {item.request.request_id: token for item in output.scheduled if item.samples}
    )
    subject.check_invariants()
    return result


def step(subject: Scheduler) -> dict[str, int]:
    output, scheduled = schedule(subject)
    process(subject, output)
    return scheduled


def test_a_request_of_the_same_step_hits_what_was_just_scheduled() -> None:
    subject = scheduler()
    first, second = request("first", range(10)), request("second", range(10))
    subject.add(first)
    subject.add(second)
    output, scheduled = schedule(subject)
    assert scheduled == {"first": 10, "second": 2}
    one, two = output.scheduled
    assert (one.first_position, two.first_position) == (0, 8)
    assert (one.block_ids, two.block_ids) == (([1, 2, 3],), ([1, 2, 4],))
    assert one.admitted and one.samples
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 8)


def test_chunked_prefill_within_the_budget() -> None:
    subject = scheduler(max_num_batched_tokens=6)
    subject.add(request("long", range(10)))
    subject.add(request("short", [1, 2, 3]))
    output, scheduled = schedule(subject)
    assert scheduled == {"long": 6}
    assert not output.scheduled[0].samples
    assert process(subject, output).outputs == []
    # Running requests come first; what they leave is for waiting ones.
    assert step(subject) == {"long": 4, "short": 2}
    assert step(subject) == {"long": 1, "short": 1}
    assert [item.admitted for item in subject.schedule().scheduled] == [False, False]


def test_a_long_prefill_is_capped_unless_it_is_alone() -> None:
    subject = scheduler(long_prefill_token_threshold=4)
    subject.add(request("alone", range(10)))
    assert step(subject) == {"alone": 10}
    subject.add(request("beside", range(100, 110)))
    assert step(subject) == {"alone": 1, "beside": 4}
    older = scheduler(long_prefill_token_threshold=4, profile=Profile.for_version("0.30.0"))
    older.add(request("alone", range(10)))
    assert step(older) == {"alone": 4}


def test_the_head_of_the_queue_blocks_those_behind_it() -> None:
    subject = scheduler(num_gpu_blocks=6)
    subject.add(request("running", range(9)))
    step(subject)
    subject.add(request("large", range(100, 112), 1))
    subject.add(request("small", [1]))
    assert step(subject) == {"running": 1}
    assert subject.cache.stats.requests == 1
    subject.abort(["running"])
    assert step(subject) == {"large": 12, "small": 1}


def test_without_reservation_only_the_first_chunk_must_fit() -> None:
    subject = scheduler(num_gpu_blocks=6, max_num_batched_tokens=5, scheduler_reserve_full_isl=False)
    subject.add(request("running", range(4)))
    subject.add(request("large", range(100, 119), 1))
    assert step(subject) == {"running": 4, "large": 1}
    reserving = scheduler(num_gpu_blocks=6, max_num_batched_tokens=5)
    reserving.add(request("running", range(4)))
    reserving.add(request("large", range(100, 119), 1))
    assert step(reserving) == {"running": 4}


def test_max_num_seqs() -> None:
    subject = scheduler(max_num_seqs=1)
    subject.add(request("first", [1], 1))
    subject.add(request("second", [2], 1))
    assert step(subject) == {"first": 1}
    assert step(subject) == {"second": 1}
    assert not subject.has_unfinished_requests


def test_preemption_takes_the_last_and_its_blocks_stay_cached() -> None:
    subject = scheduler(num_gpu_blocks=6)
    first, second = request("first", range(8), 8), request("second", range(100, 108), 8)
    subject.add(first)
    subject.add(second)
    assert step(subject) == {"first": 8, "second": 8}
    # One block is free: the first takes it for its ninth token, the second finds none and gives way to itself.
    output, scheduled = schedule(subject)
    assert scheduled == {"first": 1}
    assert output.preempted == ["second"]
    assert second.status is RequestStatus.PREEMPTED
    assert second.num_computed_tokens == 0
    process(subject, output)
    for _ in range(3):
        assert step(subject) == {"first": 1}
    subject.abort(["first"])
    output, scheduled = schedule(subject)
    # It resumes behind its own blocks; what it reports is its first admission.
    assert scheduled == {"second": 1}
    assert output.finished == ["first"]
    assert output.scheduled[0].first_position == 8
    assert second.num_cached_tokens == 0
    stats = subject.cache.stats
    assert (stats.requests, stats.preempted_requests, stats.preempted_hits) == (2, 1, 8)


def test_releases_before_0_26_report_the_last_admission_before_an_output() -> None:
    for version, expected in (("0.22.0", 4), ("0.33.0", 0)):
        subject = scheduler(
            num_gpu_blocks=5,
            max_num_batched_tokens=8,
            scheduler_reserve_full_isl=False,
            profile=Profile.for_version(version),
        )
        second = request("second", range(100, 112), 1)
        subject.add(request("first", range(4), 12))
        subject.add(second)
        assert step(subject) == {"first": 4, "second": 4}
        # The first one's output takes a block, and its seven more tokens find one where they need two.
        assert step(subject) == {"first": 1}
        assert second.num_preemptions == 1
        subject.abort(["first"])
        step(subject)
        assert second.num_cached_tokens == expected


def test_priority_decides_who_is_admitted_and_who_gives_way() -> None:
    subject = scheduler(num_gpu_blocks=6, policy="priority")
    subject.add(request("late", range(8), 8, priority=1, arrival=2.0))
    subject.add(request("early", range(100, 108), 8, priority=1, arrival=1.0))
    assert step(subject) == {"early": 8, "late": 8}
    subject.add(request("urgent", [7, 7], 8, priority=0))
    # "early" takes the last block, "late" gives way to itself, and nobody is admitted after a preemption.
    output, scheduled = schedule(subject)
    assert scheduled == {"early": 1}
    assert output.preempted == ["late"]
    process(subject, output)
    assert step(subject) == {"early": 1, "urgent": 2}
    with pytest.raises(InputError, match="the scheduling policy lifo is not modelled"):
        scheduler(policy="lifo")


def test_a_victim_that_was_already_chosen_gives_its_budget_back() -> None:
    subject = scheduler(num_gpu_blocks=6, policy="priority", max_num_batched_tokens=100)
    subject.add(request("low", range(5), 8, priority=2))
    step(subject)
    subject.add(request("high", range(100, 112), 8, priority=1))
    assert step(subject) == {"low": 1, "high": 12}
    # "low" still fits into its second block and is chosen; "high" then needs a block and takes its place.
    output, scheduled = schedule(subject)
    assert scheduled == {"high": 1}
    assert output.preempted == ["low"]


def test_stop_token_and_lengths() -> None:
    subject = scheduler(max_model_len=6)
    stopped, capped, full = (
        request("stopped", [1], 5, stop_token_ids=[50]),
        request("capped", [2], 1),
        request("full", [3] * 5),
    )
    for given in (stopped, capped, full):
        subject.add(given)
    output, _ = schedule(subject)
    result = process(subject, output, 50)
    assert [(item.request.request_id, item.token_id, item.finish_reason) for item in result.outputs] == [
        ("stopped", 50, "stop"),
        ("capped", 50, "length"),
        ("full", 50, "length"),
    ]
    assert not subject.has_unfinished_requests
    assert subject.schedule().finished == ["stopped", "capped", "full"]


def test_what_can_never_run_is_refused_when_it_arrives() -> None:
    subject = scheduler(num_gpu_blocks=4, max_model_len=100)
    with pytest.raises(InputError, match="request long: its 100 prompt tokens leave no room for an output token"):
        subject.add(request("long", range(100)))
    with pytest.raises(InputError, match="request wide: needs 4 blocks for its 13 tokens"):
        subject.add(request("wide", range(12), 2))
    subject.add(request("fits", range(12), 1))
    with pytest.raises(ValueError, match="there already"):
        subject.add(request("fits", [1], 1))
    with pytest.raises(ValueError, match="at least one prompt token"):
        request("empty", [])


def test_abort_frees_at_once_and_its_output_is_passed_over() -> None:
    subject = scheduler()
    subject.add(request("gone", range(9)))
    output, _ = schedule(subject)
    subject.abort(["gone", "unknown"])
    assert subject.cache.pool.num_free_blocks == 49
    assert process(subject, output).outputs == []


def test_reset() -> None:
    subject = scheduler()
    subject.add(request("r", range(9)))
    step(subject)
    assert not subject.reset()
    assert subject.reset(reset_running_requests=True)
    output, scheduled = schedule(subject)
    assert output.preempted == ["r"]
    assert scheduled == {"r": 10}


def test_async_schedules_a_step_ahead() -> None:
    subject = scheduler(async_scheduling=True, enable_kv_cache_events=True)
    given = request("r", range(7), 2)
    subject.add(given)
    first, scheduled = schedule(subject)
    assert scheduled == {"r": 7}
    # Token 7 is not known yet, and still gets its slot; the block that it fills is registered with its output.
    second, scheduled = schedule(subject)
    assert scheduled == {"r": 1}
    assert second.scheduled[0].first_position == 7
    assert subject.cache.pool.num_cached_hashes == 1
    process(subject, first)
    assert subject.cache.pool.num_cached_hashes == 1
    # Two outputs are all it may have, so a third step would be for nothing.
    third, scheduled = schedule(subject)
    assert scheduled == {}
    result = process(subject, second)
    assert [item.finish_reason for item in result.outputs] == ["length"]
    assert subject.cache.pool.num_cached_hashes == 2
    assert process(subject, third).outputs == []
    assert subject.cache.pool.num_free_blocks == 49


def test_async_delivers_the_output_of_a_preempted_request() -> None:
    subject = scheduler(num_gpu_blocks=6, async_scheduling=True)
    first, second = request("first", range(7), 8), request("second", range(100, 108), 8)
    subject.add(first)
    subject.add(second)
    one, _ = schedule(subject)
    two, scheduled = schedule(subject)
    assert scheduled == {"first": 1, "second": 1}
    process(subject, one)
    three, scheduled = schedule(subject)
    assert scheduled == {"first": 1}
    assert three.preempted == ["second"]
    assert second.num_stale_output_tokens == 1
    assert [item.request.request_id for item in process(subject, two).outputs] == ["first", "second"]
    assert second.num_output_tokens == 2
    assert second.status is RequestStatus.PREEMPTED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_size": 0}, "block_size must be at least 1, not 0"),
        ({"watermark": 1.0}, "watermark must be at least 0 and below 1"),
        ({"watermark": 0.1, "profile": Profile.for_version("0.22.0")}, r"watermark came with vLLM 0\.24"),
        ({"long_prefill_token_threshold": -1}, "must not be negative"),
        (
            {"async_scheduling": True, "profile": Profile.for_version("0.22.0")},
            r"asynchronous scheduling is modelled from vLLM 0\.27 on",
        ),
    ],
)
def test_config_is_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        scheduler(**options)


def test_profiles_by_version() -> None:
    assert Profile.for_version("0.33") == Profile.for_version("v0.33.0")
    assert [Profile.for_version(version).unhashed_first for version in ("0.23.0", "0.24.0")] == [False, True]
    assert Profile.for_version("0.10.2").version == (0, 10, 2)
    for version in ("0.10.1", "0.34.0", "1.0"):
        with pytest.raises(InputError, match="is not modelled: known are"):
            Profile.for_version(version)
    with pytest.raises(InputError, match="'newest' is not a vLLM version"):
        Profile.for_version("newest")
