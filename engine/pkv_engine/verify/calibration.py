"""Measure a server with requests made for it: how long what it computes takes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import httpx

from pkv_engine.verify.asking import Answer, Asking, ask
from pkv_engine.verify.prediction import Cache
from pkv_engine.verify.questions import Question
from pkv_engine.verify.server import Server
from pkv_lint.prompt.errors import InputError
from pkv_sim.progress import Progress, silently
from pkv_sim.timing.fitting import Point, fit
from pkv_sim.timing.timing_profile import StepLoad, TimingProfile
from pkv_sim.workload import TrafficRequest

UNCACHED = (8, 32, 128, 512, 1024, 2048, 4096)
CACHED = (0, 256, 1024, 4096, 8192)
DECODERS = (1, 2, 4, 8, 16)
CONTEXTS = (64, 1024)
"""Tokens in front of what is generated."""
GENERATED = 24
REPEATS = 5
VOCABULARY = range(100, 1000)
"""Token ids that all vocabularies have, as text."""
DEFAULT_STEP = 2048
"""The token budget of a step, where the server does not tell."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`longest` prompt in tokens, `budget` tokens of one step, `block_size` tokens."""

    longest: int
    budget: int
    block_size: int


async def calibrate(
    client: httpx.AsyncClient,
    server: Server,
    cache: Cache,
    *,
    device: str,
    timeout: float,
    progress: Progress = silently,
) -> TimingProfile:
    """Fit a timing profile to a server that nobody else uses: prompts of many uncached and cached lengths, one after
    the other, and several requests that generate at once.

    Raises InputError where requests fail.
    """
    limits = _limits(server, cache)
    probes = _Probes(client, server, limits, timeout)
    await probes.warm_up()
    points: list[Point] = []
    lengths = [(cached, new) for cached in CACHED for new in UNCACHED if cached + new <= limits.longest]
    for cached, new in progress(lengths, "prompts measured:", len(lengths)):
        points.append(await probes.prefill(cached, new))
    loads = [(context, count) for context in CONTEXTS for count in DECODERS if context + GENERATED <= limits.longest]
    for context, count in progress(loads, "decode loads measured:", len(loads)):
        points.append(await probes.decode(context, count))
    return fit(points, server.models[0] if server.models else "", device)


def _limits(server: Server, cache: Cache) -> Limits:
    longest = server.max_model_len or max(CACHED) + max(UNCACHED)
    if cache.num_gpu_blocks is not None:
        # Half of the cache, so that what was cached for a probe is not evicted by it.
        longest = min(longest, (cache.num_gpu_blocks - 1) * cache.block_size // 2)
    return Limits(longest - GENERATED, server.max_num_batched_tokens or DEFAULT_STEP, cache.block_size)


class _Probes:
    def __init__(self, client: httpx.AsyncClient, server: Server, limits: Limits, timeout: float) -> None:
        self._client = client
        self._model = server.models[0] if server.models else None
        self._limits = limits
        self._timeout = timeout
        self._random = random.Random()

    async def warm_up(self) -> None:
        """What a server does for the first time takes longer."""
        for length in (8, 512, 2048):
            if length <= self._limits.longest:
                await self._send(self._tokens(length))

    async def prefill(self, num_cached: int, num_new: int) -> Point:
        """A prompt of which the start is cached: the time to its first token."""
        cached = num_cached // self._limits.block_size * self._limits.block_size
        prefix = self._tokens(cached)
        if cached:
            await self._send([*prefix, *self._tokens(1)])
        times = [_ttft(await self._send([*prefix, *self._tokens(num_new)])) for _ in range(REPEATS)]
        return Point(_chunks(cached, num_new, self._limits.budget), median(times))

    async def decode(self, context: int, count: int) -> Point:
        """Several requests that generate together: the time from the first token to the last."""
        prompts = [self._tokens(context) for _ in range(count)]
        for prompt in prompts:
            await self._send(prompt)
        times = []
        for _ in range(REPEATS):
            answers = await asyncio.gather(*(self._send(prompt, GENERATED) for prompt in prompts))
            times += [answer.ended - answer.started - _ttft(answer) for answer in answers]
        steps = tuple(StepLoad.of([(context + at, 1)] * count) for at in range(GENERATED - 1))
        return Point(steps, median(times))

    def _tokens(self, count: int) -> list[int]:
        return self._random.choices(VOCABULARY, k=count)

    async def _send(self, prompt: Sequence[int], max_tokens: int = 1) -> Answer:
        body = {"prompt": list(prompt), "ignore_eos": True, "temperature": 0.0}
        if self._model is not None:
            body["model"] = self._model
        question = Question(TrafficRequest(0, "", 0, len(prompt)), "completions", body)
        answer = await ask(self._client, question, Asking(max_tokens=max_tokens, timeout=self._timeout))
        if answer.fault is not None:
            raise InputError(f"the server cannot be measured: {answer.fault.value}: {answer.message}")
        return answer


def _ttft(answer: Answer) -> float:
    if answer.ttft is None:
        raise InputError("the server cannot be measured: it does not stream")
    return answer.ttft


def _chunks(cached: int, new: int, budget: int) -> tuple[StepLoad, ...]:
    """The steps of a prompt that is computed alone."""
    end = cached + new
    return tuple(StepLoad.of([(first, min(budget, end - first))]) for first in range(cached, end, budget))
