"""The engine gets the ids that `pkv-render` prints, for every request of the examples and of the shared cases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.traffic import TrafficLine, read_requests
from pkv_lint.render_cli import main

EXAMPLES = Path(__file__).parents[3] / "examples"


def chats(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The chat bodies of a traffic, and their places in it."""
    for item in read_requests(str(file)):
        assert isinstance(item, TrafficLine)
        if item.request is not None and "messages" in item.request and "system" not in item.request:
            yield item.index, item.request


def rendered(file: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[list[int]]:
    """What `pkv-render --show ids` prints for each request of a file."""
    assert main([str(file), "--show", "ids", "--offline", *arguments]) == 0
    values = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return values if isinstance(values[0], list) else [values]


def compare(server, files: list[Path], arguments: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    count = 0
    for file in files:
        expected = rendered(file, arguments, capsys)
        for index, body in chats(file):
            asked = {**body, "model": None, "max_tokens": 1, "max_completion_tokens": None, "return_token_ids": True}
            asked = {name: value for name, value in asked.items() if name not in ("stream", "stream_options")}
            answer = server.client.post("/v1/chat/completions", json=asked)
            assert answer.status_code == 200, answer.text
            assert answer.json()["prompt_token_ids"] == expected[index], f"{file.name}, request {index}"
            count += 1
    return count


def test_examples(serving, capsys: pytest.CaptureFixture[str]) -> None:
    files = sorted([*EXAMPLES.glob("*.jsonl"), EXAMPLES / "agent_request.json"])
    with serving(max_model_len=16_000) as server:
        assert compare(server, files, [], capsys) >= 40


def test_shared_cases(serving, shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template = shared / "data" / "templates" / "Qwen-Qwen3-0.6B.jinja"
    tokenizer = shared / "data" / "tokenizers" / "qwen3"
    renderer = Renderer.load(chat_template=str(template), tokenizer=str(tokenizer))
    files = sorted([*(shared / "cases").glob("*/traffic.jsonl"), *(shared / "cases").glob("*/fixed.jsonl")])
    with serving(renderer=renderer, max_model_len=16_000) as server:
        arguments = ["--chat-template", str(template), "--tokenizer", str(tokenizer)]
        assert compare(server, files, arguments, capsys) > 100
