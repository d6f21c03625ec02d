"""Who comes in, with how much, and what happens when he leaves."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from types import SimpleNamespace

import pytest

from pkv_engine.engine import KVCheckError
from pkv_engine.server.gate import Visit
from pkv_engine.server.service import ServingOptions

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "Say it."}], "max_tokens": 2000}
SHORT = {**BODY, "max_tokens": 1}


def test_api_key(serving) -> None:
    with serving(ServingOptions(api_key="secret")) as server:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}, {"Authorization": b"\xff"}):
            for method, path in (("POST", CHAT), ("GET", "/v1/models"), ("POST", "/reset_prefix_cache")):
                refused = server.client.request(method, path, json=SHORT, headers=headers)
                assert refused.status_code == 401 and refused.json()["error"]["code"] == 401
                assert refused.headers["www-authenticate"] == "Bearer"
        assert server.client.get("/health").status_code == server.client.get("/metrics").status_code == 200
        good = {"Authorization": "Bearer secret"}
        assert server.client.post(CHAT, json=SHORT, headers=good).status_code == 200


def test_body_limit(serving) -> None:
    with serving(ServingOptions(max_body_size=1000)) as server:
        assert server.client.post(CHAT, json=SHORT).status_code == 200
        long = b'{"messages": "' + b"x" * 2000
        said = server.client.post(CHAT, content=long, headers={"content-type": "application/json"})
        unsaid = server.client.post(CHAT, content=iter([long]), headers={"content-type": "application/json"})
        for refused in (said, unsaid):
            assert refused.status_code == 413 and "1000 bytes" in refused.json()["error"]["message"]


def test_request_limit_and_draining(serving) -> None:
    with serving(ServingOptions(max_requests=1)) as server:
        server.typist.pause = 0.01
        with server.client.stream("POST", CHAT, json={**BODY, "stream": True, "max_tokens": 50}) as running:
            full = server.client.post(CHAT, json=SHORT)
            assert full.status_code == 429 and full.headers["retry-after"] == "1"
            assert server.client.get("/health").status_code == 200
            server.server.handle_exit(15, None)
            ending = server.client.post(CHAT, json=SHORT)
            assert ending.status_code == 503 and ending.headers["retry-after"] == "1"
            assert server.client.get("/health").status_code == 503
            # What runs goes on to its end.
            assert running.read().endswith(b"data: [DONE]\n\n")
        server.until(lambda: not server.thread.is_alive())


def test_the_end_does_not_wait_for_ever(serving) -> None:
    with serving(ServingOptions(shutdown_timeout=0.1)) as server:
        server.typist.pause = 0.01
        with server.client.stream("POST", CHAT, json={**BODY, "stream": True}) as running:
            server.server.handle_exit(15, None)
            with pytest.raises(Exception, match="incomplete chunked read"):
                running.read()


def test_a_client_may_leave_while_the_server_ends() -> None:
    async def for_ever(*_: object) -> None:
        await asyncio.Event().wait()

    async def end() -> None:
        service = SimpleNamespace(draining=True, options=ServingOptions())
        visit = asyncio.create_task(Visit(service, for_ever).run(for_ever, {}, for_ever))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        for _ in range(2):  # by the client that leaves, and by the server that does not wait
            visit.cancel()
        await visit

    asyncio.run(end())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("count", [1, 3])
def test_who_leaves_frees_his_blocks(serving, stream: bool, count: int) -> None:
    with serving() as server:
        server.typist.pause = 0.005
        with connected(server.url) as client:
            client.sendall(request({**BODY, "stream": stream, "n": count}))
            server.until(lambda: server.service.front.stats().num_running == count)
            assert server.blocks_in_use > 0
        steps = server.service.front.stats().num_steps
        server.until(lambda: server.blocks_in_use == 0)
        # Soon, not when the request would have ended, 2,000 steps later.
        assert server.service.front.stats().num_steps - steps < 200
        server.until(lambda: server.service.num_requests == 0)
        assert server.service.front._streams == {}


def test_who_leaves_before_his_body_is_complete(serving) -> None:
    with serving() as server:
        with connected(server.url) as client:
            client.sendall(request(BODY)[:-10])
            server.until(lambda: server.service.num_requests == 1)
        server.until(lambda: server.service.num_requests == 0)
        assert server.client.post(CHAT, json=SHORT).status_code == 200


def test_pipelined_requests_are_answered(serving) -> None:
    with serving() as server, connected(server.url) as client:
        client.sendall(request(SHORT) + request(SHORT))
        answer = b""
        while answer.count(b"HTTP/1.1 200") < 2:
            part = client.recv(65536)
            assert part
            answer += part


def test_failed_steps(serving) -> None:
    with serving() as server:
        server.typist.error = RuntimeError("out of order")
        assert server.client.post(CHAT, json=SHORT).status_code == 500
        assert server.client.post(CHAT, json={**SHORT, "stream": True}).status_code == 500
        server.typist.error = None
        server.typist.pause = 0.01
        with server.client.stream("POST", CHAT, json={**BODY, "stream": True}) as running:
            lines = running.iter_lines()
            while '"content":" The"' not in next(lines):
                pass
            server.typist.error = RuntimeError("out of order")
            rest = [line for line in lines if line]
        assert '"code":500' in rest[-2] and rest[-1] == "data: [DONE]"
        server.typist.error = None
        assert server.client.post(CHAT, json=SHORT).status_code == 200
        assert server.blocks_in_use == 0


def test_an_engine_that_has_ended(serving) -> None:
    with serving() as server:
        server.typist.error = KVCheckError("slot 7 holds another token")
        assert server.client.post(CHAT, json=SHORT).status_code == 500
        server.until(lambda: server.service.front.failure is not None)
        for path in (CHAT, "/reset_prefix_cache"):
            answer = server.client.post(path, json=SHORT)
            assert answer.status_code == 503 and answer.json()["error"]["code"] == 503
        assert server.client.get("/health").status_code == 503
        assert server.client.get("/metrics").status_code == 200


def test_requests_side_by_side(serving) -> None:
    with serving() as server:
        server.typist.pause = 0.005
        texts: list[str] = []

        def ask() -> None:
            answer = server.client.post(CHAT, json={**BODY, "max_tokens": 20})
            texts.append(answer.json()["choices"][0]["message"]["content"])

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(texts)) == 1 and len(texts) == 8
        assert server.service.front.stats().num_steps < 8 * 20, "they were batched"


def connected(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)))


def request(body: dict) -> bytes:
    content = json.dumps(body).encode()
    lines = (f"POST {CHAT} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(content)}")
    return "\r\n".join([*lines, "", ""]).encode() + content
