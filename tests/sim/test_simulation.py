"""Schedules, generated tokens and the order of requests."""

from __future__ import annotations

import io
import json
from array import array
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.renderer import Renderer
from pkv_sim.bounds import Bounds, bounds_of
from pkv_sim.serving.misses import Misses
from pkv_sim.serving.settings import Settings
from pkv_sim.simulation import cached_tokens, simulate
from pkv_sim.traffic.generated import Generated
from pkv_sim.traffic.intake import Reading
from pkv_sim.traffic.loading import load_workload
from pkv_sim.traffic.runs import cut, num_shared
from pkv_sim.traffic.workload import TrafficRequest, Workload

SIZE = 4


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer.load()


def load(renderer: Renderer, *values: Any, **reading: Any) -> Workload:
    data = "".join(json.dumps(value) + "\n" for value in values).encode()
    return load_workload(io.BytesIO(data), lambda: renderer, Reading(**{"block_size": SIZE, **reading}))


def ids(start: int, stop: int, **members: Any) -> dict[str, Any]:
    return {"token_ids": list(range(start, stop)), **members}


def hits(workload: Workload, **given: Any) -> dict[int, int]:
    """Cached tokens by the index of the request."""
    simulation = simulate(workload, Settings(**given))
    found = {item.request.index: item.cached_tokens for item in simulation.served}
    # What is counted without reasons is the same.
    assert list(found.values()) == [
        cached for cached in cached_tokens(workload, Settings(**given)) if cached is not None
    ]
    return found


class TestGenerated:
    def test_recorded_text_is_reused(self, renderer: Renderer) -> None:
        reply = list(range(8, 15))
        workload = load(renderer, ids(0, 8, output_token_ids=reply), ids(0, 20))
        # The last token has no KV: 14 tokens are in the cache.
        assert hits(workload) == {0: 0, 1: 12}
        assert hits(workload, generated="none") == {0: 0, 1: 8}
        assert hits(workload, generated="counted") == {0: 0, 1: 8}

    def test_a_completion_is_tokenised(self, renderer: Renderer) -> None:
        text = "The ferry leaves at nine in the morning."
        prompt = list(renderer.encode_completion("Is there a boat tomorrow, and when? "))
        reply = list(renderer.encode_completion(text))
        first = {"token_ids": prompt, "completion": text}
        workload = load(renderer, first, {"token_ids": [*prompt, *reply, 1, 2, 3, 4, 5]})
        assert hits(workload)[1] == (len(prompt) + len(reply) - 1) // SIZE * SIZE

    def test_a_length_takes_room(self, renderer: Renderer) -> None:
        calls = [ids(50, 58), ids(0, 8, output_tokens=17), ids(50, 59)]
        workload = load(renderer, *calls)
        assert hits(workload, num_gpu_blocks=7)[2] == 8
        assert hits(workload, num_gpu_blocks=7, generated="counted")[2] == 0

    def test_the_next_turn_tells_the_text(self, renderer: Renderer) -> None:
        calls = [
            ids(0, 8, session_id="s", output_tokens=9),
            ids(50, 60, session_id="s"),
            ids(0, 24, session_id="s"),
        ]
        workload = load(renderer, *calls)
        assert hits(workload)[2] == 8
        assert hits(workload, generated="text")[2] == 16
        # Neither another session's request nor one that is shorter than the reply tells it.
        assert hits(load(renderer, calls[0], ids(0, 24, session_id="t")), generated="text")[1] == 8
        assert hits(load(renderer, calls[0], ids(0, 15, session_id="s")), generated="text")[1] == 8

    def test_the_next_turn_of_block_ids(self, renderer: Renderer) -> None:
        def call(first: int, length: int, output: int) -> dict[str, Any]:
            blocks = -(-length // SIZE)
            return {"input_length": length, "output_length": output, "hash_ids": list(range(first, first + blocks))}

        workload = load(renderer, call(0, 9, 8), call(50, 9, 8), call(0, 30, 8))
        assert hits(workload) == {0: 0, 1: 0, 2: 8}
        assert hits(workload, generated="text") == {0: 0, 1: 0, 2: 16}
        assert hits(workload, generated="counted") == {0: 0, 1: 0, 2: 8}

    def test_the_next_turn_tells_where_a_reply_ends(self, renderer: Renderer) -> None:
        def call(*said: str, **members: Any) -> dict[str, Any]:
            messages = [
                {"role": "assistant" if at % 2 else "user", "content": text * 3} for at, text in enumerate(said)
            ]
            return {"request": {"messages": messages}, **members}

        said = ("When does the boat leave? ", "It leaves at nine from the old quay. ", "And how long does it take? ")
        turns = [call(*said[:1], session_id="s"), call(*said, session_id="s")]
        workload = load(renderer, *turns)
        first, second = (request.num_prompt_tokens for request in workload.requests)
        reply = len(renderer.encode_completion(said[1] * 3))
        assert hits(workload)[1] == first // SIZE * SIZE
        assert hits(workload, generated="text")[1] == (first + reply) // SIZE * SIZE < second
        bounds = bounds_of(workload, Settings())
        assert bounds is not None and bounds.all_reused > bounds.none_reused == simulate(workload, Settings()).hit_rate
        assert bounds_of(load(renderer, call(*said[:1]), call(*said)), Settings()) is None

    def test_bounds(self, renderer: Renderer) -> None:
        first = ids(0, 8, session_id="s", output_tokens=9)
        workload = load(renderer, first, ids(0, 24, session_id="s"))
        assert bounds_of(workload, Settings()) == Bounds(8 / 32, 16 / 32)
        assert bounds_of(load(renderer, ids(0, 8)), Settings()) is None


class TestOrder:
    def test_by_time_and_then_by_place(self, renderer: Renderer) -> None:
        calls = [ids(0, 21, timestamp=5), ids(0, 9, timestamp=4), ids(0, 13, timestamp=5)]
        workload = load(renderer, *calls)
        assert [request.index for request in workload.requests] == [1, 0, 2]
        assert hits(workload) == {1: 0, 0: 8, 2: 12}

    def test_sessions_are_merged_by_time_without_a_note(self, renderer: Renderer) -> None:
        def turn(time: float, last: int) -> dict[str, Any]:
            return {"t": time, "in": 64 * last, "out": 1, "hash_ids_rle": [[1, last]]}

        lines = [{"id": name, "requests": [turn(0, 1), turn(time, 3)]} for name, time in (("a", 9), ("b", 5))]
        workload = load(renderer, *lines, block_size=None)
        assert [(request.session_id, request.start) for request in workload.requests] == [
            ("a", 0),
            ("b", 0),
            ("b", 5),
            ("a", 9),
        ]
        assert workload.notes == () and workload.block_size == 64
        assert sum(hits(workload).values()) == 2 * 64

    def test_causes_follow_the_order_of_time(self, renderer: Renderer) -> None:
        def call(time: int) -> dict[str, Any]:
            system = f"It is 14:05:{time:02d}. " + "Answer in short sentences and name your sources. " * 20
            return {
                "timestamp": time,
                "session_id": "s",
                "request": {"messages": [{"role": "system", "content": system}, {"role": "user", "content": "hi"}]},
            }

        workload = load(renderer, call(3), call(1), call(2))
        simulation = simulate(workload, Settings())
        blamed = {item.request.index: [blame.code for blame in item.blames] for item in simulation.served}
        assert blamed == {1: [], 2: ["PKV101"], 0: ["PKV101"]}


class TestRecorded:
    def test_a_follower_hits_what_is_being_computed(self, renderer: Renderer) -> None:
        calls = [ids(0, 12, timestamp=1, end_timestamp=9), ids(0, 13, timestamp=2, end_timestamp=3)]
        assert hits(load(renderer, *calls), schedule="recorded") == {0: 0, 1: 12}

    def test_replies_are_there_from_the_end_on(self, renderer: Renderer) -> None:
        def calls(later: int) -> Workload:
            first = ids(0, 8, timestamp=1, end_timestamp=5, output_token_ids=list(range(8, 17)))
            return load(renderer, first, ids(0, 20, timestamp=later, end_timestamp=9))

        assert hits(calls(4), schedule="recorded") == {0: 0, 1: 8}
        assert hits(calls(5), schedule="recorded") == {0: 0, 1: 16}

    def test_who_finds_no_room_waits(self, renderer: Renderer) -> None:
        calls = [ids(0, 16, timestamp=0, end_timestamp=10), ids(50, 66, timestamp=4, end_timestamp=5)]
        simulation = simulate(load(renderer, *calls), Settings(num_gpu_blocks=7, schedule="recorded"))
        assert simulation.waits is not None
        assert (simulation.waits.requests, simulation.waits.seconds) == (1, 6.0)

    def test_without_an_end_a_request_ends_at_once(self, renderer: Renderer) -> None:
        calls = [ids(0, 16, timestamp=0), ids(50, 66, timestamp=0)]
        simulation = simulate(load(renderer, *calls), Settings(num_gpu_blocks=7, schedule="recorded"))
        assert simulation.waits is not None and simulation.waits.requests == 0

    def test_times_are_needed(self, renderer: Renderer) -> None:
        with pytest.raises(InputError, match="input:1: has no timestamp, which --schedule recorded needs"):
            simulate(load(renderer, ids(0, 9)), Settings(schedule="recorded"))
        with pytest.raises(InputError, match="input:1: ends before it starts"):
            simulate(load(renderer, ids(0, 9, timestamp=5, end_timestamp=4)), Settings(schedule="recorded"))


class TestNamespaces:
    def test_salts_and_adapters(self, renderer: Renderer) -> None:
        calls = [ids(0, 9), ids(0, 9, cache_salt="s"), ids(0, 9, model="m"), ids(0, 9, cache_salt="s")]
        assert hits(load(renderer, *calls)) == {0: 0, 1: 0, 2: 0, 3: 8}

    def test_a_namespace_that_a_request_runs_in_counts_after_one_that_was_evicted(self, renderer: Renderer) -> None:
        calls = [
            ids(0, 16, cache_salt="runs", timestamp=0, end_timestamp=100),
            ids(0, 16, cache_salt="evicted", timestamp=5, end_timestamp=6),
            ids(50, 50 + 32, cache_salt="other", timestamp=7, end_timestamp=8),
            ids(0, 16, cache_salt="new", timestamp=9),
        ]
        found = simulate(load(renderer, *calls), Settings(num_gpu_blocks=13, schedule="recorded"))
        assert found.served[3].misses == Misses(other_namespace=12, last_block=4)

    def test_further_samples_are_named(self, renderer: Renderer) -> None:
        body = {"messages": [{"role": "user", "content": "Is there a boat tomorrow?"}]}
        assert load(renderer, body, body | {"n": 1}).notes == ()
        (note,) = load(renderer, body, body | {"n": 3}).notes
        assert note.startswith("requests that ask for several samples (n): 1, each simulated with one")

    def test_names_of_the_base_model_share(self) -> None:
        line = "vllm serve --served-model-name big also-big --lora-modules tuned=/t"
        renderer = Renderer.load(vllm_args=line)
        calls = [ids(0, 9, model=name) for name in ("big", "also-big", "tuned", "tuned")]
        assert hits(load(renderer, *calls)) == {0: 0, 1: 8, 2: 0, 3: 8}

    def test_prompt_log_probabilities_skip_the_lookup(self, renderer: Renderer) -> None:
        body = {"messages": [{"role": "user", "content": "Is there a boat tomorrow, and when does it leave?"}]}
        workload = load(renderer, body, body | {"prompt_logprobs": 1}, body)
        found = simulate(workload, Settings())
        assert [item.cached_tokens > 0 for item in found.served] == [False, False, True]
        (blame,) = found.served[1].blames
        assert (blame.code, blame.path, blame.reason) == ("PKV604", "prompt_logprobs", "diverged")
        assert blame.tokens == found.served[2].cached_tokens


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4)), max_size=6), st.integers(0, 20), st.integers(0, 20))
def test_cutting_runs(spans: list[tuple[int, int]], start: int, stop: int) -> None:
    def expand(runs: array[int]) -> list[int]:
        return [block for first, last in zip(runs[::2], runs[1::2], strict=True) for block in range(first, last + 1)]

    runs = array("q", [bound for first, length in spans for bound in (first * 10, first * 10 + length - 1)])
    plain = expand(runs)
    assert expand(cut(runs, start, stop)) == plain[start:stop]
    assert num_shared(runs, cut(runs, 0, stop)) == len(plain[:stop])


STEMS = (list(range(30)), [*range(9), *range(40, 61)], list(range(100, 130)))


@st.composite
def traffic(draw: st.DrawFn) -> Workload:
    found = []
    time = 0
    for index in range(draw(st.integers(1, 10))):
        prompt = array("i", draw(st.sampled_from(STEMS))[: draw(st.integers(1, 30))])
        reply = draw(st.one_of(st.none(), st.sampled_from([array("i", [30, 31, 32]), array("i", range(40, 49))])))
        count = len(reply) + 1 if reply else draw(st.one_of(st.none(), st.integers(0, 9)))
        time += draw(st.integers(0, 3))
        found.append(
            TrafficRequest(
                index, "f", index + 1, len(prompt), ids=prompt, namespace=draw(st.sampled_from(["", "a"])),
                session_id=draw(st.sampled_from([None, "s"])), start=time, end=time + draw(st.integers(0, 9)),
                generated=reply, num_generated_tokens=count,
            )
        )  # fmt: skip
    return Workload("f", "requests", SIZE, tuple(found))


@settings(max_examples=150, deadline=None)
@given(traffic(), st.one_of(st.none(), st.integers(5, 30)), st.sampled_from(["recorded", "none", "counted", "text"]))
def test_every_token_is_accounted_for(workload: Workload, blocks: int | None, generated: Generated) -> None:
    for schedule in ("sequential", "recorded"):
        given = Settings(num_gpu_blocks=blocks, generated=generated, schedule=schedule)
        simulation = simulate(workload, given)
        assert len(simulation.served) + len(simulation.refused) == len(workload.requests)
        for item in simulation.served:
            assert item.cached_tokens + item.misses.tokens == item.request.num_prompt_tokens
            assert min(item.misses) >= 0
        alone = cached_tokens(workload, given)
        assert [item.cached_tokens for item in simulation.served] == [cached for cached in alone if cached is not None]


@settings(max_examples=50, deadline=None)
@given(traffic(), st.integers(8, 30))
def test_recorded_without_overlap_is_sequential(workload: Workload, blocks: int) -> None:
    apart = tuple(replace(request, start=float(at), end=at + 0.5) for at, request in enumerate(workload.requests))
    workload = replace(workload, requests=apart)
    recorded, sequential = (
        simulate(workload, Settings(num_gpu_blocks=blocks, schedule=schedule))
        for schedule in ("recorded", "sequential")
    )
    assert recorded.served == sequential.served and recorded.refused == sequential.refused
