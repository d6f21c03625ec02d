"""The requests of a traffic, each as it is predicted and as it is sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from typing import Any

from pkv_engine.protocol.endpoints import PATHS
from pkv_lint.prompt.errors import InputError, RenderError
from pkv_lint.prompt.formats import BlockLine, read_traffic
from pkv_lint.prompt.renderer import Renderer, api_of
from pkv_lint.prompt.request import has_media
from pkv_lint.prompt.streams import Source, name_of
from pkv_lint.prompt.traffic import Api, TrafficLine
from pkv_lint.turns import turn_of
from pkv_sim.traffic.content import request_of
from pkv_sim.traffic.workload import Refused, TrafficRequest, by_time


@dataclass(frozen=True, slots=True)
class Question:
    """One request: `request` as the simulator takes it, `body` as it goes to the endpoint of `api`."""

    request: TrafficRequest
    api: Api
    body: dict[str, Any]

    @property
    def path(self) -> str:
        return PATHS[self.api]

    @property
    def sent_as_ids(self) -> bool:
        """Whether the prompt is sent as token ids, so that no template or tokenizer has a say."""
        return self.api == "completions" and isinstance(self.body.get("prompt"), list)


@dataclass(slots=True)
class Questions:
    """What a file holds, in the order of arrival: `asked` is sent, `refused` is not (the server would not serve it, or
    its tokens cannot be known), `unusable` are lines that cannot be read."""

    name: str
    asked: list[Question] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    unusable: list[InputError] = field(default_factory=list)


def read_questions(
    source: Source, renderer: Renderer, models: tuple[str, ...], *, zone: tzinfo, limit: int | None = None
) -> Questions:
    """The requests of a file (`-` is stdin), at most `limit` of them.

    `models` are the names that the server knows: a request for another one is asked of the first of them, as traffic is
    mostly recorded under another name. Raises InputError for a file that cannot be read, or in which nothing can be
    asked.
    """
    questions = Questions(name_of(source))
    now = datetime.now()
    for item in _content(read_traffic(source, zone=zone).items, questions.name):
        if isinstance(item, InputError):
            questions.unusable.append(item)
            continue
        try:
            questions.asked.append(_question(_for_server(item, models), renderer, now))
        except RenderError as error:
            questions.refused.append(Refused(item.index, item.file, item.line, str(error)))
        if limit is not None and len(questions.asked) == limit:
            break
    if not questions.asked:
        raise _nothing(questions)
    questions.asked = by_time(questions.asked, lambda question: question.request.start)
    return questions


def _content(items: Iterable[TrafficLine | BlockLine | InputError], name: str) -> Iterable[TrafficLine | InputError]:
    for item in items:
        if isinstance(item, BlockLine):
            raise InputError("is a trace without prompts, so there is nothing to send", file=name)
        yield item


def _for_server(line: TrafficLine, models: tuple[str, ...]) -> TrafficLine:
    asked = line.model if line.request is None else line.request.get("model")
    if not models or asked in models:
        return line
    if line.request is None:
        return replace(line, model=models[0])
    return replace(line, request={**line.request, "model": models[0]})


def _question(line: TrafficLine, renderer: Renderer, now: datetime) -> Question:
    """Raises RenderError."""
    turn = turn_of(line, renderer, line.moment.now or now)
    if any(has_media(message) for message in turn.chat["messages"]):
        raise RenderError("an image, audio or video is in it, whose tokens are not modelled")
    if line.request is not None:
        return Question(request_of(turn), line.api or _api_of(line.request), line.request)
    body: dict[str, Any] = {"prompt": turn.ids.tolist()}
    body |= {name: turn.chat[name] for name in ("model", "cache_salt") if turn.chat[name] is not None}
    return Question(request_of(turn), "completions", body)


def _api_of(request: dict[str, Any]) -> Api:
    return api_of(request)  # type: ignore[return-value]


def _nothing(questions: Questions) -> InputError:
    if questions.unusable:
        return questions.unusable[0]
    if questions.refused:
        first = questions.refused[0]
        return InputError(f"no request can be asked; the first: {first.reason}", file=first.file, line=first.line)
    return InputError("holds no request", file=questions.name)
