"""How a reply is sent, whole or as a stream of events, in the words of either API."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Send

from pkv_engine.generation import Delta
from pkv_engine.server.bodies import GenerationBody
from pkv_engine.server.errors import ApiError, api_error
from pkv_engine.server.samples import Deltas, Sample, usage
from pkv_engine.server.service import Service

logger = logging.getLogger(__name__)


class Wording(Protocol):
    """What an API calls things. Chunks and choices are the objects of its replies."""

    prefix: str
    kind: str
    chunk_kind: str

    def opening(self, sample: Sample) -> dict[str, Any] | None:
        """What is said before the first token: members of a chunk."""

    def part(self, sample: Sample, delta: Delta) -> dict[str, Any]:
        """A delta as members of a choice; the sample has taken it already."""

    def whole(self, sample: Sample) -> dict[str, Any]:
        """A finished sample as members of a choice."""

    def head(self, sample: Sample) -> dict[str, Any]:
        """Members of a whole reply beside its choices."""


async def answer(
    service: Service, request: Request, body: GenerationBody, wording: Wording, samples: Sequence[Sample]
) -> Response:
    """Has the samples generated and says what comes of them.

    The status waits for the first token, so that a request which the engine refuses or fails at gets the right one.
    """
    name = request.headers.get("x-request-id") or body.request_id or uuid.uuid4().hex
    # A client's name may hold what UTF-8 cannot write.
    name = name.encode("ascii", "backslashreplace").decode()
    deltas = service.samples(name, body, samples)
    common = {"id": f"{wording.prefix}-{name}", "created": int(time.time()), "model": service.names[0]}
    first = await anext(deltas)
    if body.stream:
        return EventStream(_events(body, wording, samples, common, first, deltas))
    async for sample, delta in _resumed(first, deltas):
        sample.take(delta)
    choices = [_choice(sample, wording.whole(sample)) for sample in samples]
    head = {"object": wording.kind, **common, **wording.head(samples[0])}
    return JSONResponse({**head, "choices": choices, "usage": usage(samples)})


class EventStream(StreamingResponse):
    """Server-sent events. Whoever leaves closes their source at once, not when it is collected as garbage."""

    media_type = "text/event-stream"
    body_iterator: AsyncGenerator[str, None]

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self.body_iterator):
            await super().stream_response(send)


async def _events(
    body: GenerationBody,
    wording: Wording,
    samples: Sequence[Sample],
    common: dict[str, Any],
    first: tuple[Sample, Delta],
    deltas: Deltas,
) -> AsyncGenerator[str, None]:
    options = body.stream_options
    include_usage = options is not None and bool(options.include_usage)
    continuous = include_usage and options is not None and bool(options.continuous_usage_stats)
    head = {"object": wording.chunk_kind, **common}

    def chunk(sample: Sample, members: dict[str, Any]) -> str:
        return _event({**head, **members, **({"usage": usage([sample])} if continuous else {})})

    first[0].num_cached_tokens = first[1].num_cached_tokens
    try:
        for sample in samples:
            if (members := wording.opening(sample)) is not None:
                yield chunk(sample, members)
        async for sample, delta in _resumed(first, deltas):
            sample.take(delta)
            yield chunk(sample, {"choices": [_choice(sample, wording.part(sample, delta))]})
        if include_usage:
            yield _event({**head, "choices": [], "usage": usage(samples)})
    except Exception as error:
        if not isinstance(error, ApiError):
            logger.exception("a stream failed")
        yield _event(api_error(error).body())
    yield "data: [DONE]\n\n"


async def _resumed(first: tuple[Sample, Delta], deltas: Deltas) -> Deltas:
    async with aclosing(deltas):
        yield first
        async for item in deltas:
            yield item


def _choice(sample: Sample, members: dict[str, Any]) -> dict[str, Any]:
    return {
        "index": sample.index,
        **members,
        "finish_reason": sample.finish_reason,
        "stop_reason": sample.stop_reason,
    }


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"
