"""`pkv-verify` as a command: the bundled engine, servers that are not there, all three outputs."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import httpx
import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pkv_engine.verify import calibration
from pkv_engine.verify.cli import main
from pkv_engine.verify.outputs.scatter import Measured, scatter
from pkv_sim.timing.file import load_timing

from ..record.test_record import listening
from .fake import FakeServer

ROOT = Path(__file__).parent.parent.parent.parent
TRAFFIC = str(ROOT / "examples" / "traffic.jsonl")
FIXED = str(ROOT / "examples" / "traffic_fixed.jsonl")


@contextmanager
def serving(fake: FakeServer) -> Iterator[str]:
    """The fake server on a real socket."""

    async def answer(request: Request) -> Response:
        reply = fake.answer(
            httpx.Request(request.method, f"http://fake{request.url.path}", content=await request.body())
        )
        return Response(reply.content, reply.status_code, headers={"content-type": reply.headers["content-type"]})

    with listening(Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])) as url:
        yield url


def test_the_bundled_engine(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    arguments = [TRAFFIC, "--num-gpu-blocks", "150", "--concurrency", "8", "--max-tokens", "4", "--format", "json"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["summary"]["as_predicted"] == found["summary"]["compared"] == 14
    assert found["settings"]["num_gpu_blocks"] == 150 and found["server"]["engine"] == "pkv"
    assert not found["summary"]["approximate"] and not found["summary"]["warm"]


def test_before_and_after_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeServer()) as url:
        assert main([TRAFFIC, "--base-url", f"{url}/v1", "--model", "tiny", "--compare", FIXED]) == 0
    shown = click.unstyle(capsys.readouterr().out)
    assert "14 of 14 requests as predicted" in shown
    assert "  hit rate                  77.00 %        87.55 %\n" in shown


def test_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = FakeServer(
        reports=lambda hit: hit // 2 // 16 * 16,
        spoil=lambda number, body: httpx.Response(503, text="<script>alert(1)</script>") if number == 3 else None,
    )
    with serving(hostile) as url:
        assert main([TRAFFIC, "--base-url", url, "--model", "tiny", "--format", "html"]) == 1
    page = capsys.readouterr().out
    assert page.startswith("<!doctype html>") and "<script>alert" not in page and "&lt;script&gt;alert(1)" in page
    assert "server error (5xx)" in page and page.count("<circle") == 13
    assert not any(outside in page for outside in ("src=", "url(", "<link", "@import"))


def test_every_request(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeServer(reports=lambda hit: None)) as url:
        assert main([TRAFFIC, "--base-url", url, "--model", "tiny", "--per-request", "--limit", "2"]) == 0
    shown = click.unstyle(capsys.readouterr().out)
    assert "in all 1,152 cached tokens predicted, 1,152 counted" in shown
    assert "start it with --enable-prompt-tokens-details" in shown
    assert "        1  sk-7041             1,321      1,152          -" in shown


def test_api_keys_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    async def answer(request: Request) -> Response:
        seen.append(request.headers.get("authorization", ""))
        return Response(status_code=401)

    monkeypatch.setenv("MY_KEY", "sk-1")
    with listening(Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])) as url:
        assert main([TRAFFIC, "--base-url", url, "--api-key-env", "MY_KEY", "--model", "tiny", "--limit", "1"]) == 2
    assert set(seen) == {"Bearer sk-1"}
    assert "refused (4xx): 1 request" in capsys.readouterr().out
    assert main([TRAFFIC, "--base-url", "http://127.0.0.1:9", "--api-key-env", "NOT_SET"]) == 2
    assert "NOT_SET holds no key" in capsys.readouterr().err


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--base-url", f"http://127.0.0.1:{free_port()}"], "does not answer"),
        (["--base-url", "ftp://x"], "--base-url needs a URL"),
        (["--base-url", ""], "is empty"),
        (["--concurrency", "2", "--recorded-times"], "exclude each other"),
        (["--timing", "a", "--calibrate", "b"], "exclude each other"),
        (["--recorded"], "--recorded is for --calibrate"),
        (["--calibrate", "/nowhere/file"], "cannot be written"),
        (["--timing", "/nowhere/file"], "no such file"),
    ],
)
def test_bad_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([TRAFFIC, *arguments]) == 2
    complaint = capsys.readouterr().err
    assert message in complaint and complaint.count("\n") == 1


def test_a_server_without_tls(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeServer()) as url:
        assert main([TRAFFIC, "--base-url", url.replace("http:", "https:")]) == 2
    assert "does not answer" in capsys.readouterr().err


def test_a_server_that_hangs(capsys: pytest.CaptureFixture[str]) -> None:
    """It accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert main([TRAFFIC, "--base-url", url, "--timeout", "0.2"]) == 2
    assert "does not answer" in capsys.readouterr().err


def test_traffic_that_cannot_be_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]}\n')
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text('{"messages": [{"role": "user", "content": "a"}]}\n{"messages": 1}\n{oops\n')
    with serving(FakeServer()) as url:
        assert main([str(trace), "--base-url", url, "--model", "tiny"]) == 2
        assert "a trace without prompts" in capsys.readouterr().err
        assert main([str(mixed), "--base-url", url, "--model", "tiny"]) == 0
        shown = capsys.readouterr()
    assert "not sent: 1 request; line 2" in shown.out and "mixed.jsonl:3" in shown.err


def test_calibration_from_recorded_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = []
    for at in range(40):
        prompt, cached = 100 + 37 * at, 16 * (at % 7)
        new = prompt - cached
        ttft = 0.004 + 1e-6 * prompt + 2e-5 * new + 1e-9 * (new * cached + new * (new + 1) / 2)
        lines.append(
            {
                "timestamp": at,
                "end_timestamp": at + 0.5,
                "ttft": ttft,
                "usage": {"prompt_tokens": prompt, "cached_tokens": cached},
                "token_ids": [1],
            }
        )
    lines.append({**lines[3], "ttft": 9.0, "timestamp": 3.1})  # ran beside another, as that one did
    traffic, output = tmp_path / "traffic.jsonl", tmp_path / "timing.json"
    traffic.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main([str(traffic), "--calibrate", str(output), "--recorded"]) == 0
    profile = load_timing(str(output))
    assert profile.coefficients.prefill_token == pytest.approx(2e-5, rel=0.01)
    assert profile.coefficients.attention_pair == pytest.approx(1e-9, rel=0.05)
    assert profile.residuals is not None and profile.residuals.points == 39
    assert "fitted to 39 times" in capsys.readouterr().err


def test_calibration_and_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ROUNDS", 1), ("DECODERS", (1, 2)), ("CACHED", (0.0, 0.5))):
        monkeypatch.setattr(calibration, name, value)
    output = tmp_path / "timing.json"
    arguments = [TRAFFIC, "--limit", "4", "--model", "tiny"]
    with serving(FakeServer()) as url:
        assert main([*arguments, "--base-url", url, "--reset-cache", "--calibrate", str(output)]) == 0
        assert main([*arguments, "--base-url", url, "--reset-cache", "--timing", str(output), "--per-request"]) == 0
    profile = load_timing(str(output))
    assert profile.kind == "fitted" and profile.residuals is not None and profile.residuals.points > 10
    assert "predicted within" in capsys.readouterr().out


def test_scales() -> None:
    points = [Measured(0, 0, "reused", ""), Measured(1234, 900, "reused", "")]
    drawn = scatter("t", "x", "y", points, "{:.0f}".format)
    assert drawn is not None and [tick.label for tick in drawn.ticks] == ["0", "500", "1000", "1500"]
    assert drawn.dots[0][:2] == (0, 320) and drawn.dots[1].x == pytest.approx(1234 / 1500 * 320, abs=0.1)
    logarithmic = scatter("t", "x", "y", [Measured(0.003, 0.07, "reused", "")], "{:g}".format, scale="log")
    assert logarithmic is not None
    assert [tick.label for tick in logarithmic.ticks] == ["0.002", "0.005", "0.01", "0.02", "0.05", "0.1"]
    assert scatter("t", "x", "y", [], str) is None
