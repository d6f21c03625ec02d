"""Requests that a program sends, followed on their way."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest
from openai import _base_client

import pkv_lint

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
SSE = b'data: {"id": "1", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}\n\ndata: [DONE]\n\n'


def answer(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"echo": json.loads(request.content or b"{}")})


@pytest.fixture
def client() -> httpx.Client:
    return httpx.Client(transport=httpx.MockTransport(answer), base_url="http://server")


def test_requests_are_lines_of_traffic(client: httpx.Client) -> None:
    with pkv_lint.capture() as traffic:
        reply = client.post("/v1/chat/completions", json=CHAT, headers={"Authorization": "Bearer secret"})
        client.get("/v1/models")
        client.post("/v1/embeddings", json=CHAT)
        client.post("/v1/completions", json={"model": "m", "prompt": "Hello"})
    assert reply.json() == {"echo": CHAT}
    assert [line["path"] for line in traffic] == ["/v1/chat/completions", "/v1/completions"]
    assert traffic[0]["request"] == CHAT
    assert "secret" not in json.dumps(traffic)
    assert pkv_lint.lint(traffic) is not None


def test_clients_are_as_before_afterwards(client: httpx.Client) -> None:
    send = httpx.Client.send
    with pytest.raises(RuntimeError), pkv_lint.capture() as traffic:
        raise RuntimeError
    client.post("/v1/chat/completions", json=CHAT)
    assert httpx.Client.send is send
    assert traffic == []


def test_bodies_that_cannot_be_read_pass(client: httpx.Client) -> None:
    with pkv_lint.capture() as traffic:
        client.post("/v1/chat/completions", content=b"{}" + b" ")
        client.post("/v1/chat/completions", content=iter([b"{}"]))
        client.post("/v1/chat/completions", content=b"[1]")
    assert [line["request"] for line in traffic] == [{}]


def test_asynchronous_clients() -> None:
    async def agent() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            await asyncio.gather(*(client.post("http://server/v1/messages", json=CHAT) for _ in range(3)))

    with pkv_lint.capture() as traffic:
        asyncio.run(agent())
    assert [line["path"] for line in traffic] == ["/v1/messages"] * 3


@pytest.mark.parametrize("stream", [False, True])
def test_the_openai_client(stream: bool) -> None:
    # Which of the two packages the client sends through depends on its release.
    package = next(module for name in ("httpx2", "httpx") if (module := vars(_base_client).get(name)))

    def serve(request: Any) -> Any:
        if stream:
            return package.Response(200, content=SSE, headers={"content-type": "text/event-stream"})
        return package.Response(200, json={"id": "1", "choices": [], "object": "chat.completion"})

    http = package.Client(transport=package.MockTransport(serve))
    with (
        openai.OpenAI(api_key="secret", base_url="http://server/v1", http_client=http) as client,
        pkv_lint.capture() as traffic,
    ):
        reply = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hello"}], stream=stream
        )
        if stream:
            assert [chunk.choices[0].delta.content for chunk in reply] == ["Hi"]
    (line,) = traffic
    assert line["path"] == "/v1/chat/completions"
    assert line["request"]["messages"] == CHAT["messages"]
