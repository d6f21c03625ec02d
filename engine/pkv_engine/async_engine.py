"""The engine behind asyncio: one thread runs the steps, coroutines add requests and read what comes of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

from pkv_engine.engine import Engine
from pkv_engine.generation import Delta, EngineStats, GenerationRequest

T = TypeVar("T")
logger = logging.getLogger(__name__)


class AsyncEngine:
    """An async context manager: `async with AsyncEngine(engine) as front: async for delta in front.generate(...)`.

    The engine belongs to the thread from then on. Leaving the context aborts what still runs and ends the thread.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._inbox: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._streams: dict[str, asyncio.Queue[Delta]] = {}
        self._calls: set[asyncio.Future[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="pkv-engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.failure: BaseException | None = None
        """What ended the thread, when it should not have ended: nothing is generated any more."""

    async def __aenter__(self) -> AsyncEngine:
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Delta, None]:
        """The deltas of a request; the last one has a finish reason. Whoever stops reading early (closes the iterator,
        is cancelled) aborts the request, and its blocks are free within a step.

        Raises InputError for a request that can never run, EngineDeadError when the engine's thread has ended.
        """
        stream: asyncio.Queue[Delta] = asyncio.Queue()
        if request.request_id in self._streams:
            raise ValueError(f"a request {request.request_id!r} is there already")
        self._streams[request.request_id] = stream
        finished = False
        try:
            await self._call(lambda: self._engine.add(request))
            while not finished:
                delta = await stream.get()
                finished = delta.finish_reason is not None
                yield delta
        finally:
            del self._streams[request.request_id]
            if not finished:
                self._inbox.put(lambda: self._engine.abort([request.request_id]))

    async def reset_prefix_cache(self) -> bool:
        """Forgets the prefix cache; refused (False) while any block is in use."""
        return await self._call(self._engine.reset_prefix_cache)

    def stats(self) -> EngineStats:
        """The engine as it was at the end of a step; a number may be one step older than another."""
        return self._engine.stats()

    async def _call(self, function: Callable[[], T]) -> T:
        """Runs a function on the engine's thread, between two steps."""
        assert self._loop is not None, "use `async with`"
        if self.failure is not None:
            raise EngineDeadError("the engine has ended") from self.failure
        loop, future = self._loop, self._loop.create_future()

        def run() -> None:
            try:
                result = function()
            except Exception as error:
                loop.call_soon_threadsafe(_settle, future, None, error)
            else:
                loop.call_soon_threadsafe(_settle, future, result, None)

        self._calls.add(future)
        self._inbox.put(run)
        try:
            answer: T = await future
        finally:
            self._calls.discard(future)
        return answer

    def _run(self) -> None:
        """The thread: takes what came in, then a step, until told to end."""
        assert self._loop is not None
        engine = self._engine
        try:
            while self._take(block=not engine.has_work):
                if engine.has_work:
                    self._loop.call_soon_threadsafe(self._deliver, engine.step())
            self._loop.call_soon_threadsafe(self._deliver, engine.abort(engine.request_ids))
        except BaseException as error:
            logger.exception("the engine has ended")
            self.failure = error
            self._loop.call_soon_threadsafe(self._give_up)

    def _take(self, *, block: bool) -> bool:
        """Runs what is in the inbox, waiting for something where nothing else is to be done. False: end."""
        with contextlib.suppress(queue.Empty):
            while True:
                command = self._inbox.get(block=block)
                if command is None:
                    return False
                command()
                block = False
        return True

    def _deliver(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            if (stream := self._streams.get(delta.request_id)) is not None:
                stream.put_nowait(delta)

    def _give_up(self) -> None:
        """Tells everybody who waits that nothing will come."""
        self._deliver([Delta(request_id=request_id, finish_reason="error") for request_id in self._streams])
        for future in self._calls:
            _settle(future, None, EngineDeadError("the engine has ended"))


def _settle(future: asyncio.Future[T | None], result: T | None, error: Exception | None) -> None:
    if future.done():  # its reader was cancelled
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class EngineDeadError(RuntimeError):
    """The engine's thread has ended by a fault of its own."""
