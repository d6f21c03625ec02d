"""Servers that send for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from pkv_engine.verify.asking import Asking, ask
from pkv_engine.verify.faults import Fault
from pkv_engine.verify.questions import Question
from pkv_engine.verify.reading import TooLongError, fetch
from pkv_engine.verify.server import describe

Body = Callable[[], AsyncIterator[bytes]]
EVENTS = {"content-type": "text/event-stream"}


async def drip() -> AsyncIterator[bytes]:
    while True:
        yield b":"
        await asyncio.sleep(0.01)


async def flood() -> AsyncIterator[bytes]:
    while True:
        yield b":" * (8 << 20)
        await asyncio.sleep(0)


def client(body: Body, timeout: float, **headers: str) -> httpx.AsyncClient:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=body(), headers=headers))
    return httpx.AsyncClient(transport=transport, base_url="http://fake", timeout=timeout)


@pytest.mark.parametrize(
    ("body", "timeout", "error"), [(drip, 0.1, httpx.ReadTimeout), (flood, 60, TooLongError)], ids=["drip", "flood"]
)
def test_what_a_server_says_about_itself_has_an_end(body: Body, timeout: float, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"no whole answer within 0\.1 s|longer than 67,108,864 bytes"):
        asyncio.run(fetch(client(body, timeout), "GET", "/v1/models"))
    with pytest.raises(error):  # which `find_server` turns into its one line
        asyncio.run(describe(client(body, timeout)))


@pytest.mark.parametrize("headers", [{}, EVENTS], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("body", "timeout", "fault"),
    [(drip, 0.1, Fault.TIMED_OUT), (flood, 60, Fault.MALFORMED)],
    ids=["drip", "flood"],
)
def test_replies_have_an_end(body: Body, timeout: float, fault: Fault, headers: dict[str, str]) -> None:
    question = Question(request=None, api="chat", body={"messages": []})  # type: ignore[arg-type]
    answer = asyncio.run(ask(client(body, 60, **headers), question, Asking(timeout=timeout)))
    assert answer.fault == fault and ("0.1 s" in answer.message or "longer than" in answer.message)
