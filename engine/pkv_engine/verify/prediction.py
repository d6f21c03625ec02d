"""What the cache should have served, from the prompts and from what the server generated."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pkv_engine.verify.asking import Answer
from pkv_engine.verify.questions import Question
from pkv_sim.exact.profile import Profile
from pkv_sim.serving.settings import Settings
from pkv_sim.simulation import cached_tokens
from pkv_sim.traffic.workload import TrafficRequest, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """The cache of the server: `num_gpu_blocks` counts the null block, None is without bounds."""

    block_size: int
    num_gpu_blocks: int | None
    profile: Profile


@dataclass(frozen=True, slots=True)
class Prediction:
    """`cached_tokens` of each question, None where nothing can be said of it. `notes` say what makes it approximate;
    without any it is meant to be exact."""

    cached_tokens: tuple[int | None, ...]
    notes: tuple[str, ...] = ()


def predict(
    questions: Sequence[Question], answers: Sequence[Answer], cache: Cache, *, sequential: bool, ids_known: bool
) -> Prediction:
    """Predict a replay by what was sent, one request after the other or by the measured times.

    `ids_known` tells whether the prompts of the questions are those of the server's own model and template; else only
    those that the server returned count. Reported hits are not looked at.
    """
    places, requests, notes = [], [], []
    for place, (question, answer) in enumerate(zip(questions, answers, strict=True)):
        if answer.fault is not None and answer.fault.untouched:
            continue
        prompt = prompt_of(question, answer, ids_known=ids_known)
        if prompt is None:
            notes.append("the server does not tell some prompts, and no model was named to render them (--model)")
            continue
        generated = generated_of(answer)
        if generated is None:
            notes.append("what the server generated is not known, so none of it is predicted to be found")
        if answer.fault is not None:
            notes.append("a request without an answer is taken for computed")
        places.append(place)
        requests.append(
            replace(
                question.request,
                ids=prompt,
                num_prompt_tokens=len(prompt),
                generated=generated or None,
                num_generated_tokens=None,
                start=answer.started,
                end=answer.ended,
            )
        )
    if not sequential:
        notes.append(
            "requests overlapped and no step log tells when the engine admitted them: hits follow the times of sending"
        )
    hits = _hits(requests, cache, sequential=sequential)
    predicted: list[int | None] = [None] * len(questions)
    for place, hit in zip(places, hits, strict=True):
        predicted[place] = hit
    return Prediction(tuple(predicted), tuple(dict.fromkeys(notes)))


def _hits(requests: Sequence[TrafficRequest], cache: Cache, *, sequential: bool) -> Sequence[int | None]:
    if not requests:
        return ()
    order = sorted(range(len(requests)), key=lambda at: requests[at].start or 0.0)
    workload = Workload("replay", "requests", cache.block_size, tuple(requests[at] for at in order))
    settings = Settings(
        num_gpu_blocks=cache.num_gpu_blocks,
        schedule="sequential" if sequential else "recorded",
        profile=cache.profile,
    )
    hits: list[int | None] = [None] * len(requests)
    for at, hit in zip(order, cached_tokens(workload, settings), strict=True):
        hits[at] = hit
    return hits


def prompt_of(question: Question, answer: Answer, *, ids_known: bool) -> array[int] | None:
    """The prompt that the server computed: as it returned it, else as rendered here; None where neither is known."""
    if answer.prompt_token_ids is not None:
        return answer.prompt_token_ids
    return question.request.ids if ids_known or question.sent_as_ids else None


def generated_of(answer: Answer) -> array[int] | None:
    """The generated tokens that have KV, which are all but the last; None where they are not known."""
    if answer.token_ids is not None:
        return answer.token_ids[:-1]
    count = answer.usage.completion_tokens if answer.usage is not None else None
    return array("i") if count is None or count <= 1 else None
