"""Findings as text: what is shown, and that it lines up."""

from __future__ import annotations

import io
import re
from array import array
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.outputs.traffic import SYSTEM, clocked, lines, report, request

from pkv_lint.cli import main
from pkv_lint.columns import width
from pkv_lint.linting import lint_traffic
from pkv_lint.outputs import text
from pkv_lint.prompt.encoders import Encoded
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.template import ChatTemplates
from pkv_lint.prompt.traffic import read_requests

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def plain(*values: object) -> list[str]:
    return re.sub(r"\x1b\[[\d;]*m", "", "\n".join(text.lines([report(*values)]))).splitlines()


SNAPSHOT = """\
traffic.jsonl:2:58  PKV101 error  timestamp-in-prefix
  messages[0].content [12:31] differs from one conversation to the next, in 2 requests (to the
  second)

  2 |  ... tem", "content": "The time is 2026-11-29 14:05:02. You are a clerk. Answer in short s ...
    |                                    ^^^^^^^^^^^^^^^^^^^
      1st request  ...system⏎The time is 2026-11-29 14:05:01. You are a clerk. Answer in short...
      2nd request  ...system⏎The time is 2026-11-29 14:05:02. You are a clerk. Answer in short...

  The prefix breaks at about token 25 of 266, in block 2 of 17: 16 tokens reused, 256 without the
  break.
  2 of 3 requests, about 480 of 798 prompt tokens (60%) recomputed.
  Move it behind everything stable (last user message, and keep it there), or let a tool return it.

1 error, 0 warnings, 0 info in 3 requests; 32 of 798 prompt tokens reused
Figures are approximate: no model was named, so the built-in layout and vocabulary stand in
(--model)."""


def test_snapshot() -> None:
    assert "\n".join(plain(clocked(1), clocked(2), clocked(3))) == SNAPSHOT


@pytest.mark.parametrize(
    "before",
    [
        "",
        "plain ",
        "漢字かな交じり文 " * 8,
        "e\u0301\u0301" * 30,
        "\u0e01\u0e34\u0e19\u0e49" * 20,
        "👩\u200d👩\u200d👧 ❤\ufe0f " * 9,
        "\t\t\u202e\x1b[31m \t" * 5,
        '\\"\n\\' * 20,
        "\u1112\u1161\u11ab" * 20,
    ],
    ids=ascii,
)
@pytest.mark.parametrize("columns", [80, 100, 160])
def test_carets_stand_under_what_is_blamed(before: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = plain(clocked(1, before), clocked(2, before))
    source = next(index for index, line in enumerate(shown) if line.startswith("  2 |"))
    carets = shown[source + 1]
    start = next(
        at for at, c in enumerate(shown[source]) if width(shown[source][:at]) == carets.index("^") and c != "·"
    )
    assert shown[source][start:].startswith("2026-11-29 14:05:02")
    assert carets.count("^") == len("2026-11-29 14:05:02")
    first, second = (line for line in shown if re.match(" +(1st|2nd) request", line))
    assert width(first[: first.index("14:05:0")]) == width(second[: second.index("14:05:0")])
    assert max(map(width, shown)) <= min(columns, 140)


def test_a_blamed_text_wider_than_the_terminal_is_cut() -> None:
    shown = plain(*(request(f"Trace: {digits * 20} {SYSTEM}") for digits in ("a1b2c3d4e5", "f6a7b8c9d0")))
    source = next(index for index, line in enumerate(shown) if line.startswith("  2 |"))
    carets = shown[source + 1]
    assert shown[source].endswith(" ...") and width(shown[source]) == 100
    assert shown[source][carets.index("^") : carets.index("^") + 4] == "f6a7"
    assert width(carets) == 96


def test_a_line_of_many_megabytes() -> None:
    one, two = (request(f"run {name} {SYSTEM}", user="x" * 3_000_000) for name in ("alpha", "beta"))
    shown = plain(one, two)
    assert max(map(width, shown)) <= 100


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_prose_is_wrapped_at_words(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = plain(clocked(1), clocked(2))
    advice = [line for line in shown if line.startswith("  ") and "request  " not in line and " | " not in line]
    assert max(map(width, advice)) <= max(80, columns)
    assert "or let a tool return it." in " ".join(line.strip() for line in advice)


def test_requests_are_counted_as_people_do() -> None:
    other = request("Another clerk altogether. " * 40)
    shown = "\n".join(plain(*[other] * 11, clocked(1), clocked(2)))
    assert "12th request  " in shown and "13th request  " in shown


def test_requests_over_several_lines_and_in_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    for name, indent in (("wide.json", None), ("long.json", 2)):
        (tmp_path / name).write_text(json.dumps([clocked(1), clocked(2)], indent=indent))
        assert main([str(tmp_path / name)]) == 1
        shown = capsys.readouterr().out.splitlines()
        source = next(index for index, line in enumerate(shown) if re.match(r"  \d+ \|  ", line))
        column = shown[source + 1].index("^")
        assert shown[source][column:].startswith("2026-11-29 14:05:02")


def test_concise(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("traffic.jsonl").write_text(lines(clocked(1), "not json", clocked(2)))
    assert main(["traffic.jsonl", "--format", "concise"]) == 2
    assert capsys.readouterr() == (
        "traffic.jsonl:2:1: PKV901 not valid JSON: expecting value\n"
        "traffic.jsonl:3:58: PKV101 messages[0].content [12:31] differs from one conversation to the next, "
        "in 1 request (to the second)\n",
        "",
    )


def test_statistics(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names = ["agent.jsonl", "agent_fixed.jsonl", "agent_request.json", "tools_shuffled.jsonl"]
    assert main([*(f"examples/{name}" for name in names), "--statistics"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "findings  requests  tokens lost  code    severity  name",
        "       2         5        5,936  PKV101  error     timestamp-in-prefix",
        "       1         2        1,840  PKV201  error     tools-reordered",
    ]
    assert main(["examples/agent_fixed.jsonl", "--statistics"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["examples/agent.jsonl", "--statistics", "--format", "json"]) == 2


class Letters:
    """An encoder whose tokens are the characters of the messages."""

    def encode(self, body: Mapping[str, Any], now: datetime) -> Encoded:
        text = "".join(f"[{message['role']}]{message['content']}" for message in body["messages"])
        return Encoded(self.encode_completion(text), text)

    def encode_completion(self, text: str) -> array[int]:
        return array("i", map(ord, text))

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


def test_prompts_that_are_made_as_ids_are_decoded() -> None:
    data = io.BytesIO(lines(clocked(1), clocked(2)).encode())
    renderer = Renderer(ChatTemplates(), None, mode="mistral", encoder=Letters())
    shown = "\n".join(text.lines([lint_traffic(read_requests(data, name="traffic.jsonl"), renderer)]))
    heads = [line.strip() for line in re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines() if " request  " in line]
    assert heads == [
        f"{nth} request  ...system]The time is 2026-11-29 14:05:0{second}. You are a clerk. Answer in short s..."
        for nth, second in (("1st", 1), ("2nd", 2))
    ]
