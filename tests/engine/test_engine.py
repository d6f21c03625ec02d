"""What a request can ask for, one thing at a time, on small random models."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import pytest
import torch

from pkv_engine.engine import Engine
from pkv_engine.generation import Delta, GenerationRequest, SampledToken, SamplingParams
from pkv_engine.model import cpu_ops
from pkv_engine.sampling import Choice, sample
from pkv_lint.prompt.errors import InputError

from . import families
from .families import VOCAB
from .running import engine_on, greedy, run, tokens

PROMPT = random.Random(0).choices(range(VOCAB), k=50)
OTHER = random.Random(1).choices(range(VOCAB), k=70)


@pytest.fixture(scope="module")
def device() -> Any:
    return families.device("llama3")


def ask(device: Any, prompt: list[int] = PROMPT, **params: Any) -> list[Delta]:
    """One request alone, greedy unless told otherwise."""
    settings = SamplingParams(**{"temperature": 0, "max_tokens": 12} | params)
    request = GenerationRequest(request_id="a", prompt_token_ids=prompt, params=settings)
    return run(engine_on(device), [request])["a"]


def test_every_token_comes_once_and_the_last_one_says_why(device: Any) -> None:
    deltas = ask(device, max_tokens=5)
    assert [len(delta.tokens) for delta in deltas] == [1] * 5
    assert [delta.finish_reason for delta in deltas] == [None] * 4 + ["length"]


def test_stop_token_ids_end_a_request_and_min_tokens_bars_them(device: Any) -> None:
    plain = tokens(ask(device))
    stop = plain[4]
    deltas = ask(device, stop_token_ids=frozenset([stop]))
    assert tokens(deltas) == plain[: plain.index(stop) + 1]
    assert (deltas[-1].finish_reason, deltas[-1].stop_reason) == ("stop", stop)
    later = tokens(ask(device, stop_token_ids=frozenset([stop, VOCAB + 1]), min_tokens=8))
    assert stop not in later[:8] and len(later) >= 8


def test_the_context_ends_where_the_model_does(device: Any) -> None:
    engine = engine_on(device, max_model_len=60)
    deltas = run(engine, [greedy("a", PROMPT, 100)])["a"]
    assert len(deltas) == 10 and deltas[-1].finish_reason == "length"
    assert len(run(engine, [GenerationRequest(request_id="a", prompt_token_ids=PROMPT)])["a"]) == 10


def test_a_seed_decides_whatever_else_runs(device: Any) -> None:
    def seeded(request_id: str, seed: int | None) -> GenerationRequest:
        params = SamplingParams(temperature=1.5, seed=seed, max_tokens=20)
        return GenerationRequest(request_id=request_id, prompt_token_ids=PROMPT, params=params)

    alone = tokens(run(engine_on(device), [seeded("a", 7)])["a"])
    beside = run(engine_on(device), [greedy("b", OTHER, 30), seeded("a", 7), seeded("c", 8), seeded("d", None)])
    assert tokens(beside["a"]) == alone
    assert tokens(beside["c"]) != alone
    again = run(engine_on(device), [seeded("x", None), seeded("y", None)])
    assert tokens(again["x"]) != tokens(again["y"])


def test_samples_of_one_prompt_share_its_full_blocks(device: Any) -> None:
    engine = engine_on(device)
    found = run(engine, [greedy(str(number), PROMPT, 4) for number in range(3)])
    assert [found[str(number)][0].num_cached_tokens for number in range(3)] == [0, 48, 48]


def test_a_salt_keeps_tenants_apart_and_no_cache_keeps_nothing(device: Any) -> None:
    requests = [greedy("a", PROMPT, 4), greedy("b", PROMPT, 4, cache_salt="x"), greedy("c", PROMPT, 4, cache_salt="x")]
    found = run(engine_on(device), requests)
    assert [found[name][0].num_cached_tokens for name in "abc"] == [0, 0, 48]
    found = run(engine_on(device, enable_prefix_caching=False), requests)
    assert [found[name][0].num_cached_tokens for name in "abc"] == [0, 0, 0]


def test_reset_forgets_when_nothing_runs(device: Any) -> None:
    engine = engine_on(device)
    engine.add(greedy("a", PROMPT, 4))
    engine.step()
    assert not engine.reset_prefix_cache()
    run(engine)
    assert engine.reset_prefix_cache()
    assert run(engine, [greedy("b", PROMPT, 4)])["b"][0].num_cached_tokens == 0


def test_priorities_overtake(device: Any) -> None:
    engine = engine_on(device, policy="priority", max_num_seqs=1)
    requests = [greedy("late", PROMPT, 3, priority=1, arrival=0), greedy("soon", OTHER, 3, priority=0, arrival=1)]
    assert list(run(engine, requests)) == ["soon", "late"]


def test_preempted_requests_go_on_as_if_nothing_had_happened(device: Any) -> None:
    requests = [greedy(str(number), PROMPT[number:], 60) for number in range(4)]
    alone = [tokens(run(engine_on(device), [request])[request.request_id]) for request in requests]
    engine = engine_on(device, num_blocks=17, max_model_len=200, scheduler_reserve_full_isl=False)
    found = run(engine, requests)
    assert engine.stats().num_preemptions
    if device.batch_invariant:
        assert [tokens(found[request.request_id]) for request in requests] == alone


def test_abort_frees_within_a_step(device: Any) -> None:
    engine = engine_on(device)
    for name in "ab":
        engine.add(greedy(name, PROMPT, 50))
    engine.step()
    (delta,) = engine.abort(["b", "nobody"])
    assert (delta.request_id, delta.finish_reason, delta.tokens) == ("b", "abort", ())
    engine.scheduler.check_invariants()
    assert engine.request_ids == ("a",)
    assert list(run(engine)) == ["a"]


def test_logprobs_are_those_of_the_whole_distribution(device: Any) -> None:
    (delta,) = ask(device, max_tokens=1, logprobs=3, temperature=0.5, top_k=1)
    (token,) = delta.tokens
    assert token.logprobs is not None
    chosen, *best = token.logprobs
    assert chosen == best[0] and chosen.token_id == token.token_id
    assert [item.rank for item in best] == [1, 2, 3]
    model = families.reference("llama3")
    with torch.inference_mode():
        expected = model(torch.tensor([PROMPT])).logits[0, -1].log_softmax(-1)
    for item in best:
        assert math.isclose(item.logprob, float(expected[item.token_id]), abs_tol=1e-4)
    (delta,) = ask(device, max_tokens=1, logprobs=0)
    assert [len(token.logprobs or ()) for token in delta.tokens] == [1]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (greedy("a", [], 4), "the prompt is empty"),
        (greedy("a", [1, VOCAB], 4), f"token id {VOCAB} is out of vocabulary"),
        (greedy("a", [1, -1], 4), "token id -1 is out of vocabulary"),
        (greedy("a", [1] * 1024, 4), "leave no room for an output token"),
        (greedy("a", [1] * 600, 4), "needs 38 blocks"),
        (
            GenerationRequest(request_id="a", prompt_token_ids=[1], params=SamplingParams(stop=("x",))),
            "need a tokenizer",
        ),
    ],
)
def test_what_can_never_run_is_refused(device: Any, request_: GenerationRequest, message: str) -> None:
    engine = engine_on(device, num_blocks=20)
    with pytest.raises(InputError, match=message):
        engine.add(request_)
    assert not engine.has_work and not engine.request_ids


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"top_k": -2},
        {"min_p": 2.0},
        {"max_tokens": 0},
        {"min_tokens": -1},
        {"min_tokens": 5, "max_tokens": 4},
        {"stop": ("",)},
        {"logprobs": -1},
    ],
)
def test_params_that_vllm_refuses_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        SamplingParams(**values)


def test_an_engine_schedules_synchronously(device: Any) -> None:
    with pytest.raises(ValueError, match="tokens of the one before"):
        engine_on(device, async_scheduling=True)


def draws(logits: list[float], count: int, **params: Any) -> Counter[int]:
    settings = SamplingParams(**{"temperature": 1.0} | params)
    rows = torch.tensor([logits] * count)
    chosen: list[SampledToken] = sample(rows, [Choice(settings, 1, place) for place in range(count)], cpu_ops.sample)
    return Counter(token.token_id for token in chosen)


def test_draws_follow_the_softmax() -> None:
    counts = draws([0.0, math.log(2), math.log(5)], 2000)
    for token, share in enumerate((1 / 8, 2 / 8, 5 / 8)):
        assert abs(counts[token] / 2000 - share) < 0.04
    sharper = draws([0.0, math.log(2), math.log(5)], 2000, temperature=0.5)
    assert abs(sharper[2] / 2000 - 25 / 30) < 0.04


@pytest.mark.parametrize(
    ("params", "left"),
    [
        ({"top_k": 2}, {2, 3}),
        ({"top_p": 0.5}, {3}),
        ({"top_p": 0.51}, {2, 3}),
        ({"top_p": 0.01}, {3}),
        ({"min_p": 0.59}, {2, 3}),
        ({"top_k": 3, "top_p": 0.99}, {1, 2, 3}),
        ({"top_k": 10}, {0, 1, 2, 3}),
        ({"temperature": 0.0}, {3}),
    ],
)
def test_filters(params: dict[str, Any], left: set[int]) -> None:
    shares = [0.05, 0.15, 0.3, 0.5]
    assert set(draws([math.log(share) for share in shares], 400, **params)) == left


def test_a_runner_is_all_that_an_engine_needs(device: Any) -> None:
    """Requests that end are forgotten, so that their ids can be used again."""
    engine: Engine = engine_on(device)
    first = run(engine, [greedy("a", PROMPT, 3)])["a"]
    second = run(engine, [greedy("a", PROMPT, 3)])["a"]
    assert tokens(first) == tokens(second) and second[0].num_cached_tokens == 48
    stats = engine.stats()
    assert (stats.prompt_tokens, stats.generation_tokens, stats.prefix_cache_hits) == (100, 6, 48)
