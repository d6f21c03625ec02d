"""Requests that overlap: predicted from when they arrived, never from what the engine did with them."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from pkv_engine.engine import Engine
from pkv_engine.loading import LoadedModel
from pkv_engine.server.draining import DrainingServer
from pkv_engine.server.service import Service, ServingOptions
from pkv_engine.step_log import StepLog
from pkv_engine.verify.asking import Asking, connect
from pkv_engine.verify.replay import Pace
from pkv_engine.verify.report import Report
from pkv_engine.verify.verification import Verifier, Verifying, find_server
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.renderer import Renderer
from pkv_sim.exact.scheduler_config import SchedulerConfig

from ..server.conftest import WORDS, Typist


@contextmanager
def typing_server(log: Path, num_gpu_blocks: int, pause: float, **admission: Any) -> Iterator[str]:
    renderer = Renderer.load()
    config = SchedulerConfig(
        num_gpu_blocks=num_gpu_blocks,
        block_size=16,
        max_model_len=2048,
        max_num_batched_tokens=256,
        async_scheduling=False,
        **admission,
    )
    typist = Typist(renderer.tokenizer.encode(WORDS).tolist(), pause)
    with log.open("wb", buffering=0) as file:
        engine = Engine(config, typist, vocab_size=10_000, tokenizer=renderer.tokenizer, observer=StepLog(file))
        loaded = LoadedModel("typist", engine, renderer, renderer.tokenizer, 2048, batch_invariant=True)
        server = DrainingServer(Service(loaded, ServingOptions()), port=0, log_level="critical")
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.005)
        try:
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def conversations() -> Iterator[dict[str, Any]]:
    """Ten sessions that take turns, with a long prompt in common, each turn answered at length."""
    system = {"role": "system", "content": "You are helpful. " * 40}
    messages: dict[int, list[dict[str, str]]] = {session: [system] for session in range(10)}
    for turn in range(4):
        for session, said in messages.items():
            said.append({"role": "user", "content": f"Question {turn} of {session}. " * 12})
            yield {"session_id": str(session), "request": {"model": "typist", "messages": list(said)}}
            said.append({"role": "assistant", "content": WORDS})


def verified(url: str, traffic: Path, log: Path) -> Report:
    async def verifying() -> Report:
        async with connect(url, api_key=None, timeout=30) as client:
            choice = Verifying(pace=Pace(8), asking=Asking(max_tokens=12), fresh=True, step_log=log)
            return await Verifier(client, await find_server(client), Renderer.load(), choice).verify(str(traffic))

    return asyncio.run(verifying())


@pytest.mark.parametrize("num_gpu_blocks", [1024, 160])
def test_eight_at_once_are_all_as_predicted(tmp_path: Path, num_gpu_blocks: int) -> None:
    traffic, log = tmp_path / "traffic.jsonl", tmp_path / "steps.jsonl"
    traffic.write_text("".join(json.dumps(line) + "\n" for line in conversations()))
    with typing_server(log, num_gpu_blocks, pause=0.002) as url:
        report = verified(url, traffic, log)
    steps = [json.loads(line) for line in log.read_text().splitlines()]
    assert max(len(row["scheduled"]) for row in steps if row["event"] == "step") > 2
    assert report.statuses == {"as predicted": 40}
    assert report.exit_status == 0 and not report.notes
    assert 0 < report.reported_tokens < report.prompt_tokens


def test_priorities_are_as_the_engine_had_them(tmp_path: Path) -> None:
    traffic, log = tmp_path / "traffic.jsonl", tmp_path / "steps.jsonl"
    lines = list(conversations())
    for number, line in enumerate(lines):
        line["request"]["priority"] = -number % 7
    traffic.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with typing_server(log, 160, pause=0.002, policy="priority", max_num_seqs=2) as url:
        report = verified(url, traffic, log)
    steps = [json.loads(line) for line in log.read_text().splitlines()]
    arrived = [row["id"] for row in steps if row["event"] == "arrival"]
    admitted = list(dict.fromkeys(name for row in steps for name, *_ in row.get("scheduled", ())))
    assert admitted != arrived
    assert report.statuses == {"as predicted": 40}


@pytest.mark.parametrize("text", ["{", '{"no": "event"}'])
def test_a_log_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    from pkv_engine.verify.step_log import _rows

    log = tmp_path / "steps.jsonl"
    log.write_text(text)
    with pytest.raises(InputError, match=r"steps.jsonl:1: is "):
        list(_rows(log))
