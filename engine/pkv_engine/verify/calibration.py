"""Measure a server with requests made for it: how long what it computes takes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from itertools import cycle, pairwise
from statistics import median
from typing import NamedTuple

import httpx

from pkv_engine.verify.asking import Answer, Asking, ask
from pkv_engine.verify.prediction import Cache
from pkv_engine.verify.questions import Question
from pkv_engine.verify.recorded_times import alone, timed_lines
from pkv_engine.verify.report import Report
from pkv_engine.verify.server import DEFAULT_STEP, Server
from pkv_lint.prompt.errors import InputError
from pkv_sim.progress import Progress, silently
from pkv_sim.timing.fitting import Point, fit
from pkv_sim.timing.timing_profile import StepLoad, TimingProfile
from pkv_sim.traffic.workload import TrafficRequest

CACHED = (0.0, 0.125, 0.25, 0.5, 0.75)
"""Cached starts of prompts, as shares of the longest one."""
FEWEST_NEW = 8
"""Tokens behind them: this many, twice as many, and so on up to the longest."""
DECODERS = (1, 2, 4, 8, 16)
CONTEXTS = (64, 1024)
"""Tokens in front of what is generated."""
GENERATED = 24
ROUNDS = 5
WORDS = ("river", "stone", "window", "letter", "garden", "winter", "silver", "market", "engine", "bridge", "candle")


class Prompts(NamedTuple):
    """What prompts of a traffic look like, in tokens: the `longest` one, and a `message` of theirs on average."""

    longest: int
    message: int

    @classmethod
    def of(cls, reports: Iterable[Report]) -> Prompts:
        rows = [row for report in reports for row in report.rows]
        messages = sum(len(row.question.body.get("messages") or "1") for row in rows)
        return cls(max(row.prompt_tokens for row in rows), sum(row.prompt_tokens for row in rows) // messages)


async def calibrate(
    client: httpx.AsyncClient,
    server: Server,
    cache: Cache,
    prompts: Prompts,
    *,
    timeout: float,
    progress: Progress = silently,
) -> TimingProfile:
    """Fit a timing profile to a server that nobody else uses: prompts up to the longest one with many uncached and
    cached lengths, one after the other, and several requests that generate at once.

    Raises InputError as `measure`.
    """
    best: Measured = {}
    rounds = progress(range(ROUNDS), "rounds of measurements:", ROUNDS)
    # Round after round, so that a machine that is busy for a while spoils one measurement of each and not all of one.
    for _ in rounds:
        best = least(best, await measure(client, server, cache, prompts, timeout=timeout))
    return fit(list(best.values()), *names_of(server))


class Prefill(NamedTuple):
    """A prompt of which the start is cached; tokens, about."""

    cached: int
    new: int


class Decode(NamedTuple):
    """Requests that generate at once, with so many tokens in front, about."""

    context: int
    sequences: int


Measured = dict[Prefill | Decode, Point]


async def measure(
    client: httpx.AsyncClient, server: Server, cache: Cache, prompts: Prompts, *, timeout: float
) -> Measured:
    """One round of measurements for `calibrate`.

    How many tokens a prompt had and how many of them were cached is what the server reports. Raises InputError where
    requests fail, or that is not reported.
    """
    longest = _longest(prompts.longest, server, cache)
    probes = await _Probes.begin(client, server, prompts.message, timeout)
    measured: Measured = {prefill: await probes.prefill(prefill) for prefill in _lengths(longest)}
    for decode in (Decode(context, count) for context in CONTEXTS for count in DECODERS):
        if decode.context + GENERATED <= longest:
            measured[decode] = await probes.decode(decode)
    return measured


def least(measured: Measured, others: Measured) -> Measured:
    """The least time for each: whatever else happens on a machine only adds to it."""
    shortest = dict(measured)
    for shape, point in others.items():
        shortest[shape] = min(shortest.get(shape, point), point, key=lambda found: found.seconds)
    return shortest


def _longest(wanted: int, server: Server, cache: Cache) -> int:
    """No longer than the server takes, and than half of its cache, so that a probe does not evict its own start."""
    limits = [wanted, (server.max_model_len or wanted + GENERATED) - GENERATED]
    if cache.num_gpu_blocks is not None:
        limits.append((cache.num_gpu_blocks - 1) * cache.block_size // 2)
    return min(limits)


def _lengths(longest: int) -> list[Prefill]:
    """The prompts that are measured."""
    new = [FEWEST_NEW << at for at in range((max(1, longest // FEWEST_NEW)).bit_length())] + [longest]
    return [
        Prefill(start, count)
        for start in (int(longest * share) for share in CACHED)
        for count in new
        if start + count <= longest * 1.05
    ]


class _Probes:
    """Sends conversations of words, as traffic is: a start that is sent again and again, and something new behind it.
    `tokens_per_word` is by the server's vocabulary."""

    def __init__(self, client: httpx.AsyncClient, server: Server, message: int, timeout: float) -> None:
        self._client = client
        self._model = server.models[0] if server.models else None
        self._budget = server.max_num_batched_tokens or DEFAULT_STEP
        self._message = message
        self._timeout = timeout
        self._random = random.Random()
        self._tokens_per_word = 1.0

    @classmethod
    async def begin(cls, client: httpx.AsyncClient, server: Server, message: int, timeout: float) -> _Probes:
        """What a server does for the first time takes longer, so it is asked a few times before anything counts."""
        probes = cls(client, server, message, timeout)
        for count in (8, 200, 200):
            told, _ = _usage(await probes._send(probes._messages(count, 1)))
            probes._tokens_per_word *= told / count
        return probes

    async def prefill(self, shape: Prefill) -> Point:
        """The turn of a conversation after the one that ends the cached start."""
        start = self._messages(shape.cached, 1) if shape.cached else []
        if start:
            await self._send(start)
        answer = await self._send([*start, *self._messages(shape.new, 2 if start else 1)])
        prompt, cached = _usage(answer)
        return Point(steps_alone(prompt, cached, self._budget), _ttft(answer), prompt)

    async def decode(self, shape: Decode) -> Point:
        """From the first token to the last."""
        prompts = [self._messages(shape.context, 1) for _ in range(shape.sequences)]
        lengths = [_usage(await self._send(prompt))[0] for prompt in prompts]
        answers = await asyncio.gather(*(self._send(prompt, GENERATED) for prompt in prompts))
        steps = tuple(StepLoad.of([(length + at, 1) for length in lengths]) for at in range(GENERATED - 1))
        return Point(steps, median(answer.ended - answer.started - _ttft(answer) for answer in answers))

    def _messages(self, num_tokens: int, fewest: int) -> list[str]:
        """So many tokens, about, as `fewest` messages or an even number more of them, each at least as long as those of
        the traffic."""
        words = self._random.choices(WORDS, k=max(fewest, round(num_tokens / self._tokens_per_word)))
        count = fewest + max(0, num_tokens // self._message - fewest) // 2 * 2
        ends = [len(words) * at // count for at in range(count + 1)]
        return [" ".join(words[start:end]) for start, end in pairwise(ends)]

    async def _send(self, messages: Sequence[str], max_tokens: int = 1) -> Answer:
        said = [
            {"role": role, "content": message}
            for role, message in zip(cycle(("user", "assistant")), messages, strict=False)
        ]
        body: dict[str, object] = {"messages": said, "ignore_eos": True, "temperature": 0.0}
        if self._model is not None:
            body["model"] = self._model
        question = Question(TrafficRequest(0, "", 0, 0), "chat", body)
        answer = await ask(self._client, question, Asking(max_tokens=max_tokens, timeout=self._timeout))
        if answer.fault is not None:
            raise InputError(f"the server cannot be measured: {answer.fault.value}: {answer.message}")
        return answer


def _usage(answer: Answer) -> tuple[int, int]:
    """Prompt tokens and how many of them were cached."""
    usage = answer.usage
    if usage is None or usage.prompt_tokens is None or usage.cached_tokens is None:
        raise InputError("the server cannot be measured: it does not report cached tokens")
    return usage.prompt_tokens, usage.cached_tokens


def _ttft(answer: Answer) -> float:
    if answer.ttft is None:
        raise InputError("the server cannot be measured: it does not stream")
    return answer.ttft


def steps_alone(num_prompt_tokens: int, num_cached_tokens: int, budget: int) -> tuple[StepLoad, ...]:
    """The steps of at most `budget` tokens in which a prompt is computed by itself."""
    return tuple(
        StepLoad.of([(first, min(budget, num_prompt_tokens - first))])
        for first in range(num_cached_tokens, num_prompt_tokens, budget)
    )


def fit_recorded(file: str, server: Server) -> TimingProfile:
    """Fit a profile to traffic that pkv-record wrote (`ttft` and `usage`), by the requests that ran beside no other.
    Such times say nothing of decoding. Raises InputError for too few of them."""
    budget = server.max_num_batched_tokens or DEFAULT_STEP
    points = [
        Point(steps_alone(line.prompt_tokens, line.cached_tokens, budget), line.ttft, line.prompt_tokens)
        for line in alone(timed_lines(file))
    ]
    return fit(points, *names_of(server))


def names_of(server: Server) -> tuple[str, str]:
    """What a profile calls the model, and what served it."""
    model = server.models[0] if server.models else ""
    return model, " ".join(filter(None, (server.engine, server.version)))
