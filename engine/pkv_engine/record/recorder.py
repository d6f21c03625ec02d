"""Follows the exchanges that pass through the proxy, and writes them down when they are over."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import zlib
from collections.abc import Callable

from pkv_engine.protocol.replies import Reply, ReplyError
from pkv_engine.protocol.sse import EventReader
from pkv_engine.record.lines import Exchange
from pkv_lint.prompt.errors import PkvError
from pkv_lint.prompt.traffic import Api

logger = logging.getLogger(__name__)

Write = Callable[[Exchange], None]


class Watch:
    """One exchange while it passes: told of the request, then of each part of the reply as it comes."""

    def __init__(self, api: Api, body: bytes, session_id: str | None) -> None:
        """To be made when the request is passed on: its time counts from here."""
        self._api = api
        self._body = body
        self._session_id = session_id
        self._reply = Reply(api)
        self._events: EventReader | None = None
        self._decode: Callable[[bytes], bytes] | None = None
        self._parts: list[bytes] = []
        self._started = time.time()
        self._clock = time.perf_counter()
        self._ttft: float | None = None
        self._broken = False

    def headers(self, content_type: str, content_encoding: str) -> None:
        """What the server says of the reply that follows."""
        if content_type.startswith("text/event-stream"):
            self._events = EventReader()
        if content_encoding in ("gzip", "deflate"):
            self._decode = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS).decompress
        elif content_encoding not in ("", "identity"):
            self._broken = True

    def part(self, data: bytes) -> None:
        """Takes in what passed to the client. Never raises: what is not understood is passed on all the same."""
        if self._broken:
            return
        try:
            if self._decode is not None:
                data = self._decode(data)
            if self._events is None:
                self._parts.append(data)
                return
            for event in self._events.feed(data):
                self._reply.take_event(event)
                if self._ttft is None and self._reply.begun:
                    self._ttft = time.perf_counter() - self._clock
        except (ReplyError, zlib.error):
            self._broken = True

    def exchange(self) -> Exchange | None:
        """What there is to write once it is over; None for a request that was no JSON object, or a reply that never
        began. One that broke off counts: the server has computed it."""
        try:
            request = json.loads(self._body)
            if self._events is None and not self._broken:
                self._reply.take_body(b"".join(self._parts))
        except (ValueError, RecursionError, ReplyError):
            return None
        if not isinstance(request, dict) or not self._reply.begun:
            return None
        return Exchange(self._api, request, self._reply, self._started, time.time(), self._ttft, self._session_id)


class Recorder:
    """Hands exchanges to `write` on a thread of its own, one after the other, so that no reply waits for it."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._queue: asyncio.Queue[Exchange | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self.num_written = 0
        self.num_failed = 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def record(self, watch: Watch) -> None:
        exchange = watch.exchange()
        if exchange is not None:
            self._queue.put_nowait(exchange)

    async def stop(self) -> None:
        """Returns when everything is written."""
        self._queue.put_nowait(None)
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while (exchange := await self._queue.get()) is not None:
            try:
                await asyncio.to_thread(self._write, exchange)
                self.num_written += 1
            except (PkvError, OSError) as error:
                self.num_failed += 1
                logger.warning("an exchange was not recorded: %s", error)
