"""`pkv-engine serve`, as a process."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from pkv_engine.cli import main


def test_errors_come_before_the_model_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--model", "no/such/model", "--port", str(port)]) == 2
    assert capsys.readouterr().err == f"pkv-engine: cannot listen on 127.0.0.1:{port}: Address already in use\n"
    assert main(["serve", "--model", "tiny", "--host", "no.such.host.invalid"]) == 2
    error = capsys.readouterr().err
    assert "whoever reaches no.such.host.invalid can use this server" in error and "cannot listen on" in error
    assert main(["serve", "--model", "tiny", "--host", "a" * 300]) == 2  # no label of a name is that long
    assert "cannot listen on aaa" in capsys.readouterr().err


def test_a_model_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--model", "/no/such/model", "--port", "0", "--offline"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pkv-engine: /no/such/model")


@pytest.mark.slow
def test_serve_tiny_and_end_by_a_signal() -> None:
    with process("--model", "tiny", "--port", "0", "--num-gpu-blocks", "200", "--max-model-len", "2000") as server:
        url = next(found[1] for line in server.stderr if (found := re.search(r"Listening on (http://\S+)", line)))
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            body = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 200, "ignore_eos": True}
            with client.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as running:
                chunks = running.iter_lines()
                next(chunks)
                server.send_signal(signal.SIGTERM)
                assert [line for line in chunks if line][-1] == "data: [DONE]", "what ran went on to its end"
        assert server.wait(30) == 0


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "pkv_engine.cli", "serve", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        try:
            yield server
        finally:
            server.kill()
