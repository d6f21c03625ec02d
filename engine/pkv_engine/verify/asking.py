"""One request, sent once: what comes back and when."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from pkv_engine.protocol.endpoints import streaming
from pkv_engine.protocol.replies import Reply, ReplyError, Usage, error_message
from pkv_engine.protocol.sse import EventReader
from pkv_engine.verify.faults import Fault, fault_of, fault_of_status
from pkv_engine.verify.questions import Question
from pkv_engine.verify.reading import TooLongError, parts, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`started` and `ended` are seconds on the clock of `time.perf_counter`, `ttft` seconds from the start to the first
    event with content (None: no such event, or not a stream). A `fault` says why there is nothing to compare."""

    started: float
    ended: float
    ttft: float | None = None
    usage: Usage | None = None
    response_id: str | None = None
    prompt_token_ids: array[int] | None = None
    token_ids: array[int] | None = None
    fault: Fault | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How requests are sent: `max_tokens` is what each generates, `timeout` the seconds that one may take in all."""

    max_tokens: int = 1
    timeout: float = 120.0
    return_token_ids: bool = False


@asynccontextmanager
async def connect(url: str, *, api_key: str | None, timeout: float) -> AsyncIterator[httpx.AsyncClient]:
    """A client for one server and no other: it follows no redirects, uses no proxies and sends nothing twice."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    async with httpx.AsyncClient(
        base_url=url,
        headers=headers,
        timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0)),
        limits=httpx.Limits(max_connections=None),
        verify=ssl.create_default_context(),
        trust_env=False,
    ) as client:
        yield client


async def ask(client: httpx.AsyncClient, question: Question, asking: Asking) -> Answer:
    """Send a request and read the whole reply. Never raises for what the server does."""
    body = streaming(question.api, question.body, asking.max_tokens, return_token_ids=asking.return_token_ids)
    # Not httpx's own: it cannot write text that UTF-8 has no code for, and traffic may hold any.
    data, headers = json.dumps(body).encode("ascii"), {"content-type": "application/json"}
    reply = Reply(question.api)
    started = time.perf_counter()
    first: float | None = None
    fault, message = None, ""
    try:
        async with (
            asyncio.timeout(asking.timeout),
            client.stream("POST", question.path, content=data, headers=headers) as response,
        ):
            if response.status_code != 200:
                message = error_message(await whole(response))
                fault = fault_of_status(response.status_code, message)
            elif response.headers.get("content-type", "").startswith("text/event-stream"):
                async for _ in _events(response, reply):
                    if first is None and reply.begun:
                        first = time.perf_counter()
            else:
                reply.take_body(await whole(response))
    except (ReplyError, TooLongError) as error:
        fault, message = Fault.MALFORMED, str(error)
    except TimeoutError:
        fault, message = Fault.TIMED_OUT, f"no whole reply within {asking.timeout:g} s"
    except httpx.RequestError as error:
        fault, message = fault_of(error, begun=first is not None), str(error) or type(error).__name__
    if fault is None:
        fault, message = _judged(reply)
    return Answer(
        started=started,
        ended=time.perf_counter(),
        ttft=None if first is None else first - started,
        usage=reply.usage,
        response_id=reply.response_id,
        prompt_token_ids=reply.prompt_token_ids,
        token_ids=reply.token_ids,
        fault=fault,
        message=message,
    )


async def _events(response: httpx.Response, reply: Reply) -> AsyncIterator[None]:
    """Takes in one event after the other. Raises ReplyError, and as `parts`."""
    reader = EventReader()
    async for part in parts(response):
        for data in reader.feed(part):
            reply.take_event(data)
            yield


def _judged(reply: Reply) -> tuple[Fault | None, str]:
    if not reply.ended:
        return Fault.TRUNCATED, "the stream ended before the reply did"
    if reply.usage is None:
        return Fault.NO_USAGE, "the reply has no usage"
    if (wrong := reply.usage.wrong) is not None:
        return Fault.WRONG_USAGE, wrong
    return None, ""
