"""A proxy that nobody notices, and what it writes down."""

from __future__ import annotations

import errno
import gzip
import json
import logging
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pkv_engine.record.cli import brief, main
from pkv_engine.record.line_file import LineFile
from pkv_engine.record.lines import native_line, written
from pkv_engine.record.proxy import proxy
from pkv_engine.record.recorder import Recorder
from pkv_engine.record.redaction import Redactor
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.formats import read_traffic
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.traffic import TrafficLine
from pkv_sim.serving.settings import Settings
from pkv_sim.simulation import cached_tokens
from pkv_sim.traffic.intake import Reading
from pkv_sim.traffic.loading import load_workload

USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Grüße \u2028 an \U0001f600"}]}


class Upstream:
    """A server that says what it got, streams slowly, and knows who went away."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.gone = threading.Event()
        self.pause = 0.0
        paths = ["/v1/chat/completions", "/v1/models", "/v1/odd%2Fpath/{rest:path}", "/{rest:path}"]
        self.app = Starlette(routes=[Route(path, self.answer, methods=["GET", "POST"]) for path in paths])

    async def answer(self, request: Request) -> Response:
        body = await request.body()
        target = request.scope["raw_path"].decode() + "?" + request.scope["query_string"].decode()
        self.seen.append((target, dict(request.headers), body))
        if "hang" in target:
            while not await request.is_disconnected():
                await _sleep(0.01)
            self.gone.set()
            return Response()
        if request.method == "GET":
            return Response("teapot", status_code=418, headers={"x-kept": "yes", "set-cookie": "a=1"})
        asked = json.loads(body)
        if asked.get("stream"):
            return StreamingResponse(self.chunks(), media_type="text/event-stream")
        message = {"role": "assistant", "content": "Hello"}
        reply = {"id": "1", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE}
        if asked.get("compressed"):
            data = gzip.compress(json.dumps(reply).encode())
            return Response(data, headers={"content-encoding": "gzip"}, media_type="application/json")
        return JSONResponse(reply)

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            for text in ("Hel", "lo"):
                yield _event({"id": "1", "choices": [{"index": 0, "delta": {"content": text}}]})
                await _sleep(self.pause)
            yield _event({"id": "1", "choices": [], "usage": USAGE}) + b"data: [DONE]\n\n"
        finally:
            self.gone.set()


async def _sleep(seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


@contextmanager
def listening(app: Any) -> Iterator[str]:
    config = uvicorn.Config(app, log_level="critical", server_header=False, date_header=False)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.005)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


class Recording:
    """A proxy in front of an upstream; the file is complete once it is closed."""

    def __init__(self, upstream: Upstream, url: str, through: str, file: Path) -> None:
        self.upstream, self.direct, self.through, self.file = upstream, url, through, file

    def lines(self, count: int) -> list[dict[str, Any]]:
        end = time.monotonic() + 5
        while len(found := self.file.read_text(encoding="utf-8").splitlines()) < count:
            assert time.monotonic() < end, f"{len(found)} lines of {count}"
            time.sleep(0.01)
        return [json.loads(line) for line in found]


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    upstream, output = Upstream(), tmp_path / "traffic.jsonl"
    with LineFile(str(output)) as file, listening(upstream.app) as url:
        recorder = Recorder(lambda exchange: file.write(written(native_line(exchange))))
        with listening(proxy(url, recorder, session_header="x-session")) as through:
            yield Recording(upstream, url, through, output)


def test_bytes_are_equal_both_ways(recording: Recording) -> None:
    body = json.dumps(CHAT, indent=1).encode()
    replies = []
    for url in (recording.direct, recording.through):
        with httpx.Client(trust_env=False) as client:
            posted = client.post(f"{url}/v1/chat/completions?a=%20b", content=body, headers={"x-own": "1"})
            replies.append((posted, client.get(f"{url}/v1/odd%2Fpath/x?y=1")))
    for direct, through in zip(*replies, strict=True):
        assert direct.content == through.content and direct.status_code == through.status_code
        assert direct.headers.multi_items() == through.headers.multi_items()
    seen = recording.upstream.seen
    for direct, through in ((seen[0], seen[2]), (seen[1], seen[3])):
        assert direct[0] == through[0] and direct[2] == through[2]
        assert {**direct[1], "host": ""} == {**through[1], "host": "", "connection": "keep-alive"}


def test_what_is_written(recording: Recording) -> None:
    headers = {"authorization": "Bearer sk-secret", "x-session": "s1"}
    with httpx.Client(trust_env=False, headers=headers) as client:
        client.post(f"{recording.through}/v1/chat/completions", json=CHAT)
        client.post(f"{recording.through}/v1/chat/completions", json=CHAT | {"stream": True})
        client.post(f"{recording.through}/v1/chat/completions", json=CHAT | {"compressed": True})
        client.get(f"{recording.through}/v1/models")
    plain, streamed, compressed = recording.lines(3)
    assert plain["request"] == CHAT and streamed["request"] == CHAT | {"stream": True}
    for line in (plain, streamed, compressed):
        assert line["completion"] == "Hello" and line["session_id"] == "s1"
        assert line["usage"] == {"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 0}
        assert line["timestamp"] <= line["end_timestamp"] and line["path"] == "/v1/chat/completions"
    assert "ttft" not in plain and 0 < streamed["ttft"] < 5
    assert "sk-secret" not in recording.file.read_text()
    items = list(read_traffic(str(recording.file)).items)
    assert all(isinstance(item, TrafficLine) and item.output_tokens == 2 for item in items)
    assert recording.file.stat().st_mode & 0o077 == 0


def test_events_pass_at_once(recording: Recording) -> None:
    recording.upstream.pause = 0.3
    with (
        httpx.Client(trust_env=False) as client,
        client.stream("POST", f"{recording.through}/v1/chat/completions", json=CHAT | {"stream": True}) as reply,
    ):
        start = time.perf_counter()
        times = [time.perf_counter() - start for _ in reply.iter_raw()]
    assert times[0] < times[-1] / 2 and times[-1] > 0.5
    (line,) = recording.lines(1)
    assert line["ttft"] < times[-1] / 2 + 0.1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/hang"])
def test_who_goes_away_is_gone_upstream(recording: Recording, path: str) -> None:
    recording.upstream.pause = 30.0
    body = json.dumps(CHAT | {"stream": True}).encode()
    address = recording.through.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1]))) as client:
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        if "chat" in path:
            came = b""
            while b"Hel" not in came:
                came += client.recv(4096)
        else:
            time.sleep(0.1)
    assert recording.upstream.gone.wait(5)
    if "chat" in path:  # the server has computed it, so it counts
        assert recording.lines(1)[0]["completion"] == "Hel"


def test_the_openai_client_notices_nothing(recording: Recording) -> None:
    with openai.OpenAI(api_key="sk-secret", base_url=f"{recording.through}/v1") as client:
        stream = client.chat.completions.create(stream=True, **CHAT)  # type: ignore[call-overload]
        assert "".join(chunk.choices[0].delta.content for chunk in stream if chunk.choices) == "Hello"
    assert recording.lines(1)[0]["completion"] == "Hello"


def test_no_upstream(tmp_path: Path) -> None:
    recorder = Recorder(lambda exchange: None)
    with listening(proxy("http://127.0.0.1:9", recorder)) as through:
        reply = httpx.post(f"{through}/v1/chat/completions", json=CHAT, trust_env=False)
    assert reply.status_code == 502 and "does not answer" in reply.text
    assert recorder.num_written == 0


def test_a_reply_that_breaks_off_breaks_off_here_too(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as upstream:

        def begin() -> None:
            connection, _ = upstream.accept()
            with connection:
                received = b""
                # A connection that is closed on unread bytes is reset.
                while not received.endswith(b"}"):
                    received += connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")

        thread = threading.Thread(target=begin)
        thread.start()
        url = f"http://127.0.0.1:{upstream.getsockname()[1]}"
        log = logging.getLogger("uvicorn.error")
        log.addFilter(brief)
        with listening(proxy(url, Recorder(lambda exchange: None))) as through, pytest.raises(httpx.RequestError):
            log.setLevel(logging.ERROR)
            httpx.post(f"{through}/v1/chat/completions", json=CHAT, trust_env=False)
        thread.join()
        log.removeFilter(brief)
    (line,) = capsys.readouterr().err.splitlines()
    assert "a reply broke off: peer closed" in line


@pytest.fixture
def redacted(tmp_path: Path) -> Callable[..., Path]:
    """Both files of a conversation: as it was, and without text."""

    def run(*, redact: bool) -> Path:
        upstream, output = Upstream(), tmp_path / f"{redact}.jsonl"
        redactor = Redactor(b"k" * 32, Renderer.load())
        with LineFile(str(output)) as file, listening(upstream.app) as url:
            write = redactor.line if redact else native_line
            recorder = Recorder(lambda exchange: file.write(written(write(exchange))))
            with listening(proxy(url, recorder, session_header="x-session")) as through, httpx.Client() as client:
                said = [{"role": "system", "content": "A long prompt that all share. " * 30}]
                for turn in range(6):
                    said.append({"role": "user", "content": f"Question {turn}. " * 20})
                    body = {"model": "m", "messages": said} | ({"cache_salt": "pepper"} if turn == 4 else {})
                    client.post(f"{through}/v1/chat/completions", json=body, headers={"x-session": "Ada"})
                    said.append({"role": "assistant", "content": "Hello"})
        return output

    return run


def test_redaction_keeps_hits_and_no_text(redacted: Callable[..., Path]) -> None:
    plain, hidden = (redacted(redact=redact) for redact in (False, True))
    workloads = [load_workload(str(file), Renderer.load, Reading(causes=False)) for file in (plain, hidden)]
    hits = [list(cached_tokens(workload, Settings())) for workload in workloads]
    assert hits[0] == hits[1] and sum(hits[0])
    lengths = [[request.num_prompt_tokens for request in workload.requests] for workload in workloads]
    assert lengths[0] == lengths[1]
    text = hidden.read_text()
    assert not any(word in text for word in ("Question", "prompt that", "Hello", "Ada", "pepper"))
    assert all(0 <= token < 2**31 for line in text.splitlines() for token in json.loads(line)["token_ids"])


def test_ids_are_functions_of_all_before_them() -> None:
    one, other = Redactor(b"a" * 32, Renderer.load()), Redactor(b"b" * 32, Renderer.load())
    first, second = list(one.ids([1, 2, 3, 3])), list(one.ids([1, 2, 4, 3]))
    assert first[:2] == second[:2] and first[2] != second[2] and first[3] != second[3] and first[2] != first[3]
    assert not set(first) & set(other.ids([1, 2, 3, 3]))


def test_lines_are_whole(tmp_path: Path) -> None:
    file = tmp_path / "traffic.jsonl"
    file.write_bytes(b'{"cut": "off')
    with LineFile(str(file)) as lines:
        lines.write(b"{}\n")
    assert file.read_bytes() == b'{"cut": "off\n{}\n'
    if os.path.exists("/dev/full"):
        with LineFile("/dev/full") as lines, pytest.raises(OSError) as failed:
            lines.write(b"{}\n")
        assert failed.value.errno == errno.ENOSPC
    with pytest.raises(InputError, match="cannot be written"):
        LineFile(str(tmp_path / "no" / "folder"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--upstream", "nowhere"], "--upstream needs a URL"),
        (["--upstream", "http://x:99999"], "--upstream needs a URL"),
        (["--upstream", "http://x", "--listen", "8000"], "--listen needs HOST:PORT"),
        (["--upstream", "http://x", "--listen", "127.0.0.1:²"], "--listen needs HOST:PORT"),
        (["--upstream", "http://x", "--session-header", ""], "is empty"),
        (["--upstream", "http://x", "--redact-key", "k"], "--redact-key is for --redact"),
        (["--upstream", "http://x", "--redact", "--redact-key", "/nowhere"], "/nowhere: cannot be read"),
    ],
)
def test_bad_usage(arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--output", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err


def test_an_address_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["--upstream", "http://x", "--listen", listen, "--output", str(tmp_path / "out")]) == 2
    assert f"cannot listen on {listen}: " in capsys.readouterr().err
