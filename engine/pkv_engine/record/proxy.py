"""A reverse proxy that nobody notices: bytes pass as they come, in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from pkv_engine.record.recorder import Recorder, Watch
from pkv_lint.prompt.traffic import api_at

# RFC 9110, 7.6.1: these are between two hops. A length stays right, as bytes stay equal.
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
GONE = Response(status_code=499)
"""What nobody receives."""
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def proxy(upstream: str, recorder: Recorder, *, session_header: str | None = None) -> Starlette:
    """An ASGI application that passes every request on to `upstream` and records those that take a prompt.

    No time-outs of its own: a client that goes away ends its request upstream, a server that goes away ends the reply.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        recorder.start()
        try:
            limits = httpx.Limits(max_connections=None)
            async with httpx.AsyncClient(timeout=None, limits=limits, trust_env=False) as client:
                app.state.client = client
                yield
        finally:
            await recorder.stop()

    async def forward(request: Request) -> Response:
        try:
            body = await request.body()
        except ClientDisconnect:
            return GONE
        api = api_at(request.url.path) if request.method == "POST" else None
        session = request.headers.get(session_header) if session_header else None
        watch = Watch(api, body, session) if api is not None else None
        try:
            sending = request.app.state.client.send(_passed_on(request, body, upstream), stream=True)
            answer = await _unless_gone(request, sending)
        except httpx.RequestError as error:
            return Response(f"pkv-record: {upstream} does not answer: {error}\n", status_code=502)
        if answer is None:
            return GONE
        if watch is not None:
            watch.headers(answer.headers.get("content-type", ""), answer.headers.get("content-encoding", ""))
        response = StreamingResponse(
            _passing(answer, watch if answer.status_code == 200 else None, recorder), status_code=answer.status_code
        )
        response.raw_headers = _end_to_end(answer.headers.raw)
        return response

    return Starlette(routes=[Route("/{path:path}", forward, methods=METHODS)], lifespan=lifespan)


def _passed_on(request: Request, body: bytes, upstream: str) -> httpx.Request:
    """The request as it came, and nothing that httpx would add to it but the name of the host."""
    query = request.scope["query_string"]
    target = request.scope["raw_path"] + (b"?" + query if query else b"")
    base = httpx.URL(upstream)
    url = base.copy_with(raw_path=base.raw_path.rstrip(b"/") + target)
    headers = [(name, value) for name, value in _end_to_end(request.headers.raw) if name != b"host"]
    return httpx.Request(request.method, url, headers=headers, content=body or None)


async def _unless_gone(request: Request, sending: Coroutine[Any, Any, httpx.Response]) -> httpx.Response | None:
    """The answer, or None when the client goes away first: then the request is ended upstream, too."""
    send, gone = asyncio.ensure_future(sending), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((send, gone), return_when=asyncio.FIRST_COMPLETED)
        return send.result() if send.done() else None
    finally:
        send.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _passing(answer: httpx.Response, watch: Watch | None, recorder: Recorder) -> AsyncIterator[bytes]:
    """The reply as it comes, still compressed where it is."""
    try:
        async for part in answer.aiter_raw():
            if watch is not None:
                watch.part(part)
            yield part
    finally:
        await answer.aclose()
        if watch is not None:
            recorder.record(watch)


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in headers if name.lower() not in HOP_BY_HOP]
