"""In front of the application: who may come in, how many at once, with how much. Who leaves is cancelled."""

from __future__ import annotations

import asyncio
import secrets

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pkv_engine.server.errors import ApiError
from pkv_engine.server.service import Service

OPEN_PATHS = ("/health", "/metrics")
"""Answered without a key: probes have none."""
RETRY = {"Retry-After": "1"}


class Gate:
    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        try:
            self._check(scope)
        except ApiError as refusal:
            return await refusal.response()(scope, receive, send)
        service, counted = self._service, scope["method"] == "POST"
        service.num_requests += counted
        try:
            await Visit(service, receive).run(self._app, scope, send)
        finally:
            service.num_requests -= counted

    def _check(self, scope: Scope) -> None:
        service, options = self._service, self._service.options
        headers = Headers(scope=scope)
        if options.api_key is not None and scope["path"] not in OPEN_PATHS:
            scheme, _, key = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not secrets.compare_digest(key.encode(), options.api_key.encode()):
                raise ApiError(401, "this server needs its API key", headers={"WWW-Authenticate": "Bearer"})
        if scope["method"] != "POST":
            return
        if service.draining:
            raise ApiError(503, "the server is about to end", headers=RETRY)
        if service.num_requests >= options.max_requests:
            raise ApiError(429, f"{options.max_requests} requests are on their way", headers=RETRY)
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > options.max_body_size:
            raise ApiError(413, too_large(options.max_body_size))


def too_large(limit: int) -> str:
    return f"the body has more than {limit} bytes"


class Visit:
    """One request: counts the bytes of its body, then waits for its client to leave."""

    def __init__(self, service: Service, receive: Receive) -> None:
        self._service = service
        self._receive = receive
        self._size = 0
        self._left = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    async def run(self, app: ASGIApp, scope: Scope, send: Send) -> None:
        self._task = asyncio.current_task()
        try:
            await app(scope, self._read, send)
        except asyncio.CancelledError:
            assert self._task is not None
            if self._service.draining:
                # The server does not wait for this request any more, nor perhaps its client.
                while self._task.uncancel():
                    pass
            elif not self._left.is_set() or self._task.uncancel() > 0:
                raise
        finally:
            if self._watch is not None:
                self._watch.cancel()

    async def _read(self) -> Message:
        if self._watch is not None:
            await self._left.wait()
            return {"type": "http.disconnect"}
        message = await self._receive()
        self._size += len(message.get("body", b""))
        if self._size > (limit := self._service.options.max_body_size):
            raise HTTPException(413, too_large(limit))  # the only one that FastAPI lets through here
        if message["type"] == "http.request" and not message.get("more_body", False):
            self._watch = asyncio.create_task(self._wait())
        return message

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._left.set()
        assert self._task is not None
        self._task.cancel()
