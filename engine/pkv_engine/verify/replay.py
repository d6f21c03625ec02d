"""The order and the times in which the requests of a traffic are sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from pkv_engine.verify.asking import Answer
from pkv_engine.verify.faults import Fault
from pkv_engine.verify.questions import Question
from pkv_lint.prompt.errors import InputError

PATIENCE = 5
"""Requests in a row that find no server before the rest is not sent."""
MOST_AT_ONCE = 1024

Ask = Callable[[Question], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Pace:
    """`concurrency` requests at a time in their order, or with `recorded_times` each at its own time."""

    concurrency: int = 1
    recorded_times: bool = False

    @property
    def sequential(self) -> bool:
        return self.concurrency == 1 and not self.recorded_times


async def replay(questions: Sequence[Question], pace: Pace, ask: Ask) -> list[Answer]:
    """One answer for each question, in their order. Nothing is sent twice, and nothing any more once nobody answers.

    Raises InputError for recorded times where there are none.
    """
    run = _Run(questions, ask)
    if pace.recorded_times:
        await run.at(_offsets(questions))
    else:
        await run.workers(pace.concurrency)
    return [answer if answer is not None else _not_sent() for answer in run.answers]


class _Run:
    def __init__(self, questions: Sequence[Question], ask: Ask) -> None:
        self.answers: list[Answer | None] = [None] * len(questions)
        self._questions = questions
        self._ask = ask
        self._unanswered = 0

    @property
    def _given_up(self) -> bool:
        return self._unanswered >= PATIENCE

    async def workers(self, count: int) -> None:
        left = iter(range(len(self._questions)))
        async with asyncio.TaskGroup() as group:
            for _ in range(min(count, len(self._questions))):
                group.create_task(self._work(left))

    async def _work(self, left: Iterator[int]) -> None:
        for at in left:
            await self._send(at)

    async def at(self, offsets: Sequence[float]) -> None:
        start = time.perf_counter()
        free = asyncio.Semaphore(MOST_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for at, offset in enumerate(offsets):
                await asyncio.sleep(max(0.0, start + offset - time.perf_counter()))
                await free.acquire()
                group.create_task(self._send(at)).add_done_callback(lambda _: free.release())

    async def _send(self, at: int) -> None:
        if self._given_up:
            return
        answer = await self._ask(self._questions[at])
        self.answers[at] = answer
        gone = answer.fault is not None and answer.fault.no_server
        self._unanswered = self._unanswered + 1 if gone else 0


def _offsets(questions: Sequence[Question]) -> list[float]:
    """Seconds after the first request."""
    times = []
    for question in questions:
        request = question.request
        if request.start is None:
            raise InputError("has no timestamp, which --recorded-times needs", file=request.file, line=request.line)
        times.append(request.start)
    return [moment - times[0] for moment in times]


def _not_sent() -> Answer:
    now = time.perf_counter()
    return Answer(started=now, ended=now, fault=Fault.NOT_SENT, message="nobody answered the requests before it")
