"""A verification: what the server is, a replay of the traffic, and its answers held against the prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from pathlib import Path

import httpx

from pkv_engine.verify.asking import Answer, Asking, ask
from pkv_engine.verify.prediction import Cache, Prediction, predict, prompt_of
from pkv_engine.verify.prompts import PromptDifference, differs, explain
from pkv_engine.verify.questions import Question, read_questions
from pkv_engine.verify.replay import Pace, replay
from pkv_engine.verify.report import Report, Row, reported_tokens, reporting_of
from pkv_engine.verify.server import Counters, Server, counters, describe, reset_prefix_cache
from pkv_engine.verify.signatures import Observation, Signature, signatures
from pkv_engine.verify.step_log import predict_from_steps
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.model_config import DEFAULT_BLOCK_SIZE
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.streams import Source
from pkv_sim.exact.profile import DEFAULT_PROFILE, Profile
from pkv_sim.progress import Progress, silently

MOST_EXPLAINED = 3
"""Prompts that differ and are looked into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifying:
    """What the user chose. `block_size` (tokens) and `num_gpu_blocks` (with the null block) win over what the server
    says. `fresh` tells that its cache is empty, `exact_prompts` that the renderer has its own template and tokenizer.
    `step_log` is the file that the engine writes its steps to, `limit` the most requests that are sent."""

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


@dataclass(frozen=True, slots=True)
class Verifier:
    """A server and what is known of it; `renderer` makes its prompts."""

    client: httpx.AsyncClient
    server: Server
    renderer: Renderer
    choice: Verifying

    async def verify(self, source: Source) -> Report:
        """Replay a traffic. Raises InputError for traffic that cannot be used, for a cache that cannot be reset, and
        for a server of which nothing can be predicted."""
        client, server, choice = self.client, self.server, self.choice
        if not (choice.exact_prompts or server.offers_token_ids):
            raise InputError("this server does not return prompts, so name its model to render them with: --model")
        if not server.enable_prefix_caching:
            raise InputError(f"prefix caching is switched off on {client.base_url}")
        questions = read_questions(source, self.renderer, server.models, zone=choice.zone, limit=choice.limit)
        if choice.reset_cache and (problem := await reset_prefix_cache(client, server.engine)):
            raise InputError(f"the cache cannot be reset: {problem}")
        before = await counters(client, server.engine)
        answers = await self._answers(questions.asked)
        after = await counters(client, server.engine)
        prediction = self._prediction(questions.asked, answers)
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
        counted = after - before if before is not None and after is not None else None
        return Report(
            name=questions.name,
            url=str(client.base_url).rstrip("/"),
            server=server,
            cache=self.cache,
            pace=choice.pace,
            rows=rows,
            reporting=reporting,
            refused=tuple(questions.refused),
            unusable=tuple(questions.unusable),
            warm=self._warm,
            counted=counted,
            prompt_differences=await self._explained(rows),
            signatures=self._signatures(rows, counted),
            notes=(*prediction.notes, *self._notes()),
        )

    @property
    def cache(self) -> Cache:
        """The cache to predict: what the user says of it, else what the server says, else its command line."""
        choice, server, deployment = self.choice, self.server, self.renderer.deployment
        return Cache(
            block_size=choice.block_size or server.block_size or deployment.block_size or DEFAULT_BLOCK_SIZE,
            num_gpu_blocks=choice.num_gpu_blocks or server.num_gpu_blocks or deployment.num_gpu_blocks_override,
            profile=profile_of(server) or DEFAULT_PROFILE,
        )

    @property
    def _warm(self) -> bool:
        return not (self.choice.fresh or self.choice.reset_cache)

    async def _answers(self, questions: Sequence[Question]) -> list[Answer]:
        asking = replace(self.choice.asking, return_token_ids=self.server.offers_token_ids)
        ticks = iter(self.choice.progress(range(len(questions)), "requests answered:", len(questions)))

        async def answered(question: Question) -> Answer:
            answer = await ask(self.client, question, asking)
            next(ticks, None)
            return answer

        return await replay(questions, self.choice.pace, answered)

    def _prediction(self, questions: Sequence[Question], answers: Sequence[Answer]) -> Prediction:
        choice = self.choice
        if choice.step_log is not None and not choice.pace.sequential:
            return predict_from_steps(choice.step_log, answers, self.cache, self.server)
        return predict(
            questions, answers, self.cache, sequential=choice.pace.sequential, ids_known=choice.exact_prompts
        )

    def _notes(self) -> Iterator[str]:
        """What about the server makes a prediction approximate."""
        server = self.server
        if server.engine == "sglang":
            yield "SGLang's cache is predicted by the rules of vLLM at its page size"
        if server.engine == "vllm" and profile_of(server) is None:
            newest = ".".join(map(str, DEFAULT_PROFILE.version))
            yield f"the rules of vLLM {server.version or 'of this release'} are not known; those of {newest} are used"
        if server.unmodelled:
            yield f"not modelled: {', '.join(server.unmodelled)}"
        if server.num_replicas > 1:
            yield f"{server.num_replicas} engines are behind this address, each with a cache of its own"
        if self.cache.num_gpu_blocks is None:
            yield "the server does not tell the size of its cache, so nothing is predicted to be evicted"

    async def _explained(self, rows: Sequence[Row]) -> tuple[PromptDifference, ...]:
        other = [row for row in rows if row.other_prompt][:MOST_EXPLAINED]
        return tuple([await explain(self.client, row.question, row.answer, self.renderer) for row in other])

    def _signatures(self, rows: Sequence[Row], counted: Counters | None) -> tuple[Signature, ...]:
        observed = []
        for row in sorted(rows, key=lambda row: row.answer.started):
            prompt = prompt_of(row.question, row.answer, ids_known=self.choice.exact_prompts)
            if row.status in ("as predicted", "differs") and prompt is not None:
                assert row.predicted is not None and row.reported is not None
                # Times of requests that run beside others say little about their own tokens.
                ttft = row.answer.ttft if self.choice.pace.sequential else None
                observed.append(Observation(prompt, row.predicted, row.reported, ttft))
        return signatures(
            observed,
            self.cache.block_size,
            warm=self._warm,
            num_preemptions=counted.preemptions if counted is not None else 0,
            replicas=self.server.num_replicas,
        )


def profile_of(server: Server) -> Profile | None:
    """The rules of a vLLM server's release; None for one that is not known."""
    try:
        return Profile.for_version(server.version) if server.engine == "vllm" and server.version else None
    except InputError:
        return None
