"""Known findings in a committed file: only new ones are shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.outputs.traffic import SYSTEM, clocked, lines, request

from pkv_lint.cli import main

Lint = Callable[..., tuple[int, list[str], str]]
OTHER = request(f"Today is 2026-11-29. {SYSTEM}")


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lint:
    """Runs in a folder with two files of requests; the exit status, `file code` of each finding, and stderr."""
    monkeypatch.chdir(tmp_path)
    Path("a").mkdir()
    Path("a/clock.jsonl").write_text(lines(clocked(1), clocked(2)))
    Path("b.json").write_text(lines(OTHER))

    def call(*arguments: str) -> tuple[int, list[str], str]:
        status = main([*(arguments or ["a/clock.jsonl", "b.json"]), "--baseline", "known.json", "--format", "json"])
        out, err = capsys.readouterr()
        found = json.loads(out)["findings"] if out else []
        return status, [f"{one['file']} {one['code']}" for one in found], err

    return call


def known() -> Any:
    return json.loads(Path("known.json").read_text())


def update(lint: Lint, *files: str) -> str:
    status, found, err = lint(*(files or ("a/clock.jsonl", "b.json")), "--update-baseline")
    assert (status, found) == (0, [])
    return err


def test_written_read_and_said(lint: Lint) -> None:
    assert update(lint) == "pkv-lint: known.json: 2 findings (it had 0)\n"
    assert known() == {"version": 1, "files": {"a/clock.jsonl": {"PKV101": 1}, "b.json": {"PKV101": 1}}}
    assert lint() == (0, [], "pkv-lint: known.json: 2 known findings not shown\n")
    again = Path("known.json").read_bytes()
    update(lint)
    assert Path("known.json").read_bytes() == again


def test_only_new_ones_fail(lint: Lint) -> None:
    update(lint)
    Path("c.jsonl").write_text(lines(clocked(1), clocked(2)))
    status, found, _ = lint("a/clock.jsonl", "b.json", "c.jsonl")
    assert (status, found) == (1, ["c.jsonl PKV101"])
    # More of a code than before: the numbers do not tell which is new.
    Path("b.json").write_text(lines(request(f"Today is 2026-11-29. {SYSTEM}\nNow it is 14:05:02. {SYSTEM}")))
    assert lint("b.json")[1] == ["b.json PKV101", "b.json PKV101"]


def test_edits_elsewhere_do_not_matter(lint: Lint) -> None:
    update(lint)
    Path("a/clock.jsonl").write_text(lines(request("Another clerk. " * 60), clocked(11), clocked(12), clocked(13)))
    assert lint()[:2] == (0, [])


def test_what_is_gone_is_said_and_pruned(lint: Lint) -> None:
    update(lint)
    Path("a/clock.jsonl").write_text(lines(clocked(1), clocked(1)))
    Path("b.json").unlink()
    assert "known.json: 1 finding gone; --update-baseline takes them out" in lint("a/clock.jsonl")[2]
    assert update(lint, "a/clock.jsonl") == "pkv-lint: known.json: 0 findings (it had 2)\n"
    assert known() == {"version": 1, "files": {}}


def test_files_that_were_not_judged_keep_their_entries(lint: Lint) -> None:
    update(lint)
    update(lint, "b.json")
    assert list(known()["files"]) == ["a/clock.jsonl", "b.json"]


def test_it_holds_from_any_folder(lint: Lint, monkeypatch: pytest.MonkeyPatch) -> None:
    update(lint)
    monkeypatch.chdir("a")
    assert main(["clock.jsonl", "../b.json", "--baseline", "../known.json"]) == 0


def test_nothing_is_written_where_something_could_not_be_judged(lint: Lint) -> None:
    Path("b.json").write_text("{not json")
    status, _, err = lint("a/clock.jsonl", "b.json", "--update-baseline")
    assert status == 2 and not Path("known.json").exists()
    assert "b.json:1:2: PKV901" in err and "known.json: not written" in err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such baseline; --update-baseline writes it"),
        ("{", "is no baseline"),
        ("[]", "is no baseline"),
        ('{"version": 2, "files": {}}', "is no baseline"),
        ('{"version": 1, "files": {"b.json": 5}}', 'files["b.json"]: needs numbers'),
        ('{"version": 1, "files": {"b.json": {"PKV101": "x"}}}', 'files["b.json"].PKV101: needs a number'),
        ("\udcff", "is no baseline"),
    ],
)
def test_a_file_that_is_no_baseline(lint: Lint, content: str | None, said: str) -> None:
    if content is not None:
        Path("known.json").write_text(content, errors="surrogateescape")
    status, found, err = lint()
    assert (status, found) == (2, []) and err.count("\n") == 1
    assert err.startswith("pkv-lint: known.json: ") and said in err


def test_usage(lint: Lint, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["b.json", "--update-baseline"]) == 2
    assert "--update-baseline needs --baseline" in capsys.readouterr().err
    assert main(["b.json", "--baseline", "none/known.json", "--update-baseline"]) == 2
    assert "there is no directory none" in capsys.readouterr().err


def test_codes_that_were_not_looked_for_keep_their_entries(lint: Lint) -> None:
    update(lint)
    before = known()
    assert "gone" not in lint("a/clock.jsonl", "b.json", "--select", "PKV2")[2]
    lint("a/clock.jsonl", "b.json", "--update-baseline", "--select", "PKV2")
    assert known() == before
    Path("a/clock.jsonl").write_text(lines(request(SYSTEM)))
    assert "1 finding gone" in lint("a/clock.jsonl", "--select", "PKV1")[2]
