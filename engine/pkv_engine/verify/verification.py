"""A verification: what the server is, a replay of the traffic, and its answers held against the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from pathlib import Path

import httpx

from pkv_engine.verify.asking import Answer, Asking, ask
from pkv_engine.verify.prediction import Cache, Prediction, predict, prompt_of
from pkv_engine.verify.prompts import PromptDifference, differs, explain
from pkv_engine.verify.questions import Question, Questions, read_questions
from pkv_engine.verify.replay import Pace, replay
from pkv_engine.verify.report import Report, Row, reported_tokens, reporting_of
from pkv_engine.verify.server import Counters, Server, counters, describe, reset_prefix_cache
from pkv_engine.verify.signatures import Observation, Signature, signatures
from pkv_engine.verify.step_log import predict_from_steps
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.model_config import DEFAULT_BLOCK_SIZE
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.streams import Source
from pkv_sim.profile import DEFAULT_PROFILE, Profile
from pkv_sim.progress import Progress, silently

MOST_EXPLAINED = 3
"""Prompts that differ and are looked into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifying:
    """What the user chose. `block_size` (tokens) and `num_gpu_blocks` (with the null block) win over what the server
    says. `exact_prompts` tells that the renderer has the server's own template and tokenizer. `step_log` is the file
    that the engine writes its steps to."""

    pace: Pace
    asking: Asking
    reset_cache: bool = False
    fresh: bool = False
    exact_prompts: bool = True
    block_size: int | None = None
    num_gpu_blocks: int | None = None
    step_log: Path | None = None
    zone: tzinfo = UTC
    limit: int | None = None
    progress: Progress = silently


async def find_server(client: httpx.AsyncClient) -> Server:
    """Raises InputError when it does not answer."""
    try:
        return await describe(client)
    except httpx.RequestError as error:
        raise InputError(f"{client.base_url} does not answer: {error or type(error).__name__}") from None


async def verify(
    source: Source, client: httpx.AsyncClient, server: Server, renderer: Renderer, choice: Verifying
) -> Report:
    """Replay a traffic on a server. Raises InputError for traffic that cannot be used and for a cache that cannot be
    reset."""
    if not (choice.exact_prompts or server.offers_token_ids):
        raise InputError("this server does not return prompts, so name its model to render them with: --model")
    if not server.enable_prefix_caching:
        raise InputError(f"prefix caching is switched off on {client.base_url}")
    questions = read_questions(source, renderer, server.models, zone=choice.zone, limit=choice.limit)
    if choice.reset_cache and (problem := await reset_prefix_cache(client, server.engine)):
        raise InputError(f"the cache cannot be reset: {problem}")
    before = await counters(client, server.engine)
    answers = await _answers(questions.asked, client, server, choice)
    after = await counters(client, server.engine)
    cache = cache_of(server, choice)
    prediction = _prediction(questions.asked, answers, cache, server, choice)
    counted = after - before if before is not None and after is not None else None
    return await _report(questions, answers, prediction, counted, client, server, cache, renderer, choice)


def cache_of(server: Server, choice: Verifying) -> Cache:
    """The cache to predict: what the user says of it, else what the server says, else vLLM's defaults."""
    return Cache(
        block_size=choice.block_size or server.block_size or DEFAULT_BLOCK_SIZE,
        num_gpu_blocks=choice.num_gpu_blocks or server.num_gpu_blocks,
        profile=_profile(server),
    )


def _profile(server: Server) -> Profile:
    if server.engine != "vllm" or server.version is None:
        return DEFAULT_PROFILE
    try:
        return Profile.for_version(server.version)
    except InputError:
        return DEFAULT_PROFILE


async def _answers(
    questions: Sequence[Question], client: httpx.AsyncClient, server: Server, choice: Verifying
) -> list[Answer]:
    asking = replace(choice.asking, return_token_ids=server.offers_token_ids)
    ticks = iter(choice.progress(range(len(questions)), "requests answered:", len(questions)))

    async def answered(question: Question) -> Answer:
        answer = await ask(client, question, asking)
        next(ticks, None)
        return answer

    return await replay(questions, choice.pace, answered)


def _prediction(
    questions: Sequence[Question], answers: Sequence[Answer], cache: Cache, server: Server, choice: Verifying
) -> Prediction:
    if choice.step_log is not None and not choice.pace.sequential:
        made = predict_from_steps(choice.step_log, answers, cache, server)
    else:
        made = predict(questions, answers, cache, sequential=choice.pace.sequential, ids_known=choice.exact_prompts)
    notes = list(made.notes)
    if server.engine == "sglang":
        notes.append("SGLang's cache is predicted by the rules of vLLM at its page size")
    if server.engine == "vllm" and _profile(server) is DEFAULT_PROFILE and server.version is not None:
        known = ".".join(map(str, DEFAULT_PROFILE.version[:2]))
        if not server.version.startswith(known):
            notes.append(f"vLLM {server.version} is not known; the rules of {known} are used")
    if server.unmodelled:
        notes.append(f"not modelled: {', '.join(server.unmodelled)}")
    if server.num_replicas > 1:
        notes.append(f"{server.num_replicas} engines are behind this address, each with a cache of its own")
    if cache.num_gpu_blocks is None:
        notes.append("the server does not tell the size of its cache, so nothing is predicted to be evicted")
    return Prediction(made.cached_tokens, tuple(notes))


async def _report(
    questions: Questions,
    answers: Sequence[Answer],
    prediction: Prediction,
    counted: Counters | None,
    client: httpx.AsyncClient,
    server: Server,
    cache: Cache,
    renderer: Renderer,
    choice: Verifying,
) -> Report:
    reporting = reporting_of(answers, server)
    rows = tuple(
        Row(
            question,
            answer,
            predicted,
            reported_tokens(answer, server, reporting),
            other_prompt=answer.fault is None and choice.exact_prompts and differs(question, answer),
        )
        for question, answer, predicted in zip(questions.asked, answers, prediction.cached_tokens, strict=True)
    )
    warm = not (choice.fresh or choice.reset_cache)
    return Report(
        name=questions.name,
        url=str(client.base_url).rstrip("/"),
        server=server,
        cache=cache,
        pace=choice.pace,
        rows=rows,
        reporting=reporting,
        refused=tuple(questions.refused),
        unusable=tuple(questions.unusable),
        warm=warm,
        counted=counted,
        prompt_differences=await _explained(rows, client, renderer),
        signatures=_signatures(rows, cache, server, counted, choice, warm=warm),
        notes=prediction.notes,
    )


async def _explained(
    rows: Sequence[Row], client: httpx.AsyncClient, renderer: Renderer
) -> tuple[PromptDifference, ...]:
    other = [row for row in rows if row.other_prompt][:MOST_EXPLAINED]
    return tuple([await explain(client, row.question, row.answer, renderer) for row in other])


def _signatures(
    rows: Sequence[Row],
    cache: Cache,
    server: Server,
    counted: Counters | None,
    choice: Verifying,
    *,
    warm: bool,
) -> tuple[Signature, ...]:
    observed = []
    for row in sorted(rows, key=lambda row: row.answer.started):
        prompt = prompt_of(row.question, row.answer, ids_known=choice.exact_prompts)
        if row.status in ("as predicted", "differs") and prompt is not None:
            assert row.predicted is not None and row.reported is not None
            # Times of requests that run beside others say little about their own tokens.
            ttft = row.answer.ttft if choice.pace.sequential else None
            observed.append(Observation(prompt, row.predicted, row.reported, ttft))
    preemptions = counted.preemptions if counted is not None else 0
    return signatures(observed, cache.block_size, warm=warm, num_preemptions=preemptions, replicas=server.num_replicas)
