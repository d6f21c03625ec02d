"""The command line of pkv-render."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.prompt import Renderer
from pkv_lint.render_cli import main

TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
}
REQUEST: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "You are a clerk.\nBe brief."},
        {"role": "user", "content": "What is a ledger?"},
    ],
    "tools": [TOOL],
}
CLOCK = "{{ strftime_now('%d %b %Y') }}|{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"


class Run:
    """What one call of the command gave."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def values(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Render = Callable[..., Run]
Terminal = Callable[..., bytes]


@pytest.fixture
def render(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Render]:
    monkeypatch.setenv("COLUMNS", "140")

    def call(*arguments: str | Path) -> Run:
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Run(status, captured.out, captured.err)

    yield call


@pytest.fixture
def one(tmp_path: Path) -> Path:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(REQUEST, indent=2))
    return path


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """A traffic whose second line the server refuses and whose third is not JSON."""
    path = tmp_path / "several.jsonl"
    lines = [json.dumps(REQUEST), '{"messages": 5}', "{not json", json.dumps({"token_ids": [5, 6, 7]})]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    path = tmp_path / "clock.jinja"
    path.write_text(CLOCK)
    return path


class TestOneRequest:
    def test_text_is_the_prompt_to_the_character(self, render: Render, one: Path) -> None:
        run = render(one)
        prompt = Renderer.load().render(REQUEST)
        assert (run.status, run.out) == (0, prompt.text)
        assert f"{len(prompt.token_ids)} tokens" in run.err and "built-in" in run.err

    def test_text_keeps_what_looks_like_a_colour(self, render: Render, tmp_path: Path) -> None:
        path = tmp_path / "red.json"
        path.write_text(json.dumps({"messages": [{"role": "user", "content": "\x1b[31mred\x1b[0m"}]}))
        assert "\x1b[31mred\x1b[0m" in render(path).out

    def test_ids(self, render: Render, one: Path) -> None:
        run = render(one, "--show", "ids")
        assert run.status == 0
        assert run.values == [Renderer.load().render(REQUEST).token_ids.tolist()]

    def test_blocks_hold_all_tokens_and_say_what_they_hold(self, render: Render, one: Path) -> None:
        run = render(one, "--show", "blocks", "--block-size", "8")
        count = len(Renderer.load().render(REQUEST).token_ids)
        head, *rows = run.out.splitlines()
        assert head.split() == ["block", "tokens", "from", "text"]
        assert len(rows) == -(-count // 8)
        assert rows[0].split()[:2] == ["0", "0-7"] and rows[-1].split()[1].endswith(f"-{count - 1}")
        assert "messages[0].content (system) [0:" in rows[0] and "You are a cler" in rows[0]
        assert any("tools[0] (look_up)" in row for row in rows)
        assert all(len(row) <= 140 for row in rows)
        assert "blocks of 8" in run.err

    def test_origins_follow_the_prompt(self, render: Render, one: Path) -> None:
        run = render(one, "--show", "origins")
        _, *rows = run.out.splitlines()
        parts = ["messages[0].content (system) [0:26]", "tools[0] (look_up)", "messages[1].content (user) [0:17]"]
        places = [next(index for index, row in enumerate(rows) if part in row) for part in parts]
        assert places == sorted(places)
        assert "template line" in rows[0] and "template line" in rows[-1]
        assert all(len(row) <= 140 for row in rows)

    def test_a_clock_of_the_template_shows(self, render: Render, one: Path, clock: Path) -> None:
        rows = render(one, "--show", "origins", "--chat-template", clock).out.splitlines()
        assert "clock" in rows[1].split()
        assert rows[1].split()[0] == "0"

    def test_the_time_of_the_request_is_the_time_of_its_prompt(
        self, render: Render, tmp_path: Path, clock: Path
    ) -> None:
        path = tmp_path / "timed.jsonl"
        path.write_text(json.dumps({"timestamp": "2026-01-02T03:04:05", "request": REQUEST}))
        assert render(path, "--chat-template", clock).out.startswith("02 Jan 2026|[system] You are a clerk.")
        path.write_text(json.dumps({"timestamp": 1767322800, "request": REQUEST}))
        assert render(path, "--chat-template", clock).out.startswith("02 Jan 2026|")
        assert render(path, "--chat-template", clock, "--timezone", "-05:00").out.startswith("01 Jan 2026|")

    def test_wide_and_combining_characters_keep_the_columns(self, render: Render, tmp_path: Path) -> None:
        path = tmp_path / "wide.json"
        path.write_text(json.dumps({"messages": [{"role": "user", "content": "漢字 e\u0301 " * 40}]}))
        _, *rows = render(path, "--show", "blocks").out.splitlines()
        assert len(rows) > 5 and all("messages[0].content" in row for row in rows)

    @pytest.mark.parametrize(
        ("body", "place"),
        [
            ({"messages": [{"role": "user", "content": 5}]}, ":1:43: messages[0].content: "),
            ({"messages": []}, ":1:14: messages: "),
        ],
    )
    def test_a_refused_request_is_one_line(
        self, render: Render, tmp_path: Path, body: dict[str, Any], place: str
    ) -> None:
        path = tmp_path / "bad.json"
        path.write_text(json.dumps(body))
        for show in ("text", "ids", "blocks", "origins"):
            run = render(path, "--show", show)
            assert (run.status, run.out) == (2, "")
            assert run.err.startswith(f"pkv-render: {path}{place}") and run.err.count("\n") == 1

    def test_ids_without_text(self, render: Render, tmp_path: Path) -> None:
        path = tmp_path / "ids.json"
        path.write_text('{"token_ids": [5, 6, 7]}')
        assert render(path, "--show", "ids").values == [[5, 6, 7]]
        assert "5 6 7" in render(path, "--show", "blocks").out
        for show in ("text", "origins"):
            run = render(path, "--show", show)
            assert (run.status, run.out) == (2, "")
            assert "without a text" in run.err


class TestTraffic:
    def test_ids_are_one_line_of_json_per_request(self, render: Render, several: Path) -> None:
        run = render(several, "--show", "ids")
        assert run.status == 2
        ids, refused, invalid, given = run.values
        assert ids == Renderer.load().render(REQUEST).token_ids.tolist()
        assert given == [5, 6, 7]
        assert list(refused) == ["error"] and "several.jsonl:2:14: messages: " in refused["error"]
        assert list(invalid) == ["error"] and ":3:" in invalid["error"]
        assert "2 of 4 requests" in run.err and run.err.count("\n") == 1

    def test_text(self, render: Render, several: Path) -> None:
        values = render(several).values
        assert values[0] == Renderer.load().render(REQUEST).text
        assert "without a text" in values[3]["error"]

    def test_blocks(self, render: Render, several: Path) -> None:
        blocks, *_, given = render(several, "--show", "blocks").values
        prompt = Renderer.load().render(REQUEST)
        assert prompt.text is not None
        assert [block["first_token"] for block in blocks] == list(range(0, len(prompt.token_ids), 16))
        assert sum(block["tokens"] for block in blocks) == len(prompt.token_ids)
        assert "".join(block["text"] for block in blocks) == prompt.text
        assert blocks[0]["origins"][:3] == ["template", "messages[0].role", "messages[0].content"]
        assert given == [{"block": 0, "first_token": 0, "tokens": 3, "start": 0, "end": 0, "origins": [], "text": None}]

    def test_origins(self, render: Render, several: Path) -> None:
        runs, *_ = render(several, "--show", "origins").values
        prompt = Renderer.load().render(REQUEST)
        assert "".join(run["text"] for run in runs) == prompt.text
        assert [run["start"] for run in runs[1:]] == [run["end"] for run in runs[:-1]]
        system = next(run for run in runs if run["path"] == "messages[0].content")
        assert (system["kind"], system["offset"], system["text"]) == ("value", 0, "You are a clerk.\nBe brief.")
        assert {run["kind"] for run in runs} == {"template", "value", "key", "syntax"}

    def test_one_of_them_for_reading(self, render: Render, several: Path) -> None:
        run = render(several, "--request", "0")
        assert (run.status, run.out) == (0, Renderer.load().render(REQUEST).text)
        assert render(several, "--request", "3", "--show", "ids").values == [[5, 6, 7]]

    def test_one_that_cannot_be_shown(self, render: Render, several: Path) -> None:
        refused = render(several, "--request", "1")
        assert (refused.status, refused.out) == (2, "")
        assert refused.err.startswith(f"pkv-render: {several}:2:14: messages: ")
        invalid = render(several, "--request", "2")
        assert (invalid.status, invalid.out) == (2, "")
        assert invalid.err.startswith(f"pkv-render: {several}:3:")
        beyond = render(several, "--request", "4")
        assert (beyond.status, beyond.err) == (2, f"pkv-render: {several}: holds no request 4 (the first is 0)\n")


class TestUsage:
    @pytest.mark.parametrize(
        "arguments",
        [
            [],
            ["{file}", "x"],
            ["{file}", "--show", "html"],
            ["{file}", "--request", "-1"],
            ["no-such-file.json"],
            ["."],
        ],
        ids=" ".join,
    )
    def test_bad_usage_is_one_line_and_2(self, render: Render, one: Path, arguments: list[str]) -> None:
        run = render(*(argument.replace("{file}", str(one)) for argument in arguments))
        assert (run.status, run.out) == (2, "")
        assert run.err.startswith("pkv-render: ") and run.err.count("\n") == 1

    def test_help(self, render: Render) -> None:
        run = render("--help")
        assert run.status == 0 and "Exit status" in run.out

    @pytest.mark.skipif(sys.platform == "win32", reason="needs pipes that close")
    def test_a_reader_that_goes_away(self, tmp_path: Path) -> None:
        path = tmp_path / "long.jsonl"
        path.write_text("".join(json.dumps(REQUEST) + "\n" for _ in range(2000)))
        command = [sys.executable, "-m", "pkv_lint.render_cli", str(path), "--show", "ids"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        process.stderr.close()
        assert (process.wait(), errors) == (0, b"")

    @pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
    def test_on_a_terminal(self, on_terminal: Terminal, tmp_path: Path, no_color: str, coloured: bool) -> None:
        path = tmp_path / "evil.json"
        path.write_text(json.dumps({"messages": [{"role": "user", "content": "good \x1b]0;title\x07 day"}]}))
        shown = on_terminal(["-m", "pkv_lint.render_cli", str(path)], NO_COLOR=no_color)
        assert b"good" in shown and b"\x07" not in shown and b"\x1b]" not in shown
        assert (b"\x1b[32m" in shown) is coloured
        assert (b"text of the request" in shown) is coloured


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ unknown.member }}", "the chat template fails: 'unknown' is undefined"),
        ("{{ 'a' * 10**11 }}", "the chat template was stopped: it makes a text of more than 32,000,000 characters"),
    ],
)
def test_an_error_of_the_template_says_so(render: Render, one: Path, template: str, message: str) -> None:
    run = render(one, "--chat-template", template)
    assert (run.status, run.err) == (2, f"pkv-render: {one}:1:1: {message}\n")


def test_one_token_is_no_plural(render: Render, one: Path) -> None:
    assert "1 token in 1 block of 16" in render(one, "--chat-template", "x{# #}").err


@pytest.mark.parametrize("option", ["--model", "--chat-template", "--tokenizer"])
def test_an_empty_name_is_not_taken_for_none(render: Render, one: Path, option: str) -> None:
    run = render(one, option, "")
    assert (run.status, run.out, run.err) == (2, "", f"pkv-render: Invalid value for '{option}': is empty\n")
