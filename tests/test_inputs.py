"""Files, folders, patterns and standard input on the command line; the output file."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.outputs.traffic import clocked, lines, request

from pkv_lint.cli import main
from pkv_lint.inputs import files_of
from pkv_lint.output_file import write_file
from pkv_lint.prompt.errors import InputError

REQUEST = lines(request())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, content in {
        "logs/one.json": REQUEST,
        "logs/two.jsonl": lines(clocked(1), clocked(2)),
        "logs/deep/er/array.json": json.dumps([request()]),
        "logs/native.ndjson": lines({"request": request(), "session_id": "x"}),
        "logs/ids.json": '{"token_ids": [1, 2, 3]}',
        "logs/responses.json": '{"model": "x", "input": "hi"}',
        "logs/cut.json": REQUEST[:60],
        "logs/package.json": '{"name": "x", "files": ["messages"]}',
        "logs/tsconfig.json": '{\n// a comment\n"files": []}',
        "logs/messages.json": '{"messages": {"hello": "Hallo"}}',
        "logs/list.json": "[1, 2]",
        "logs/empty.json": "",
        "logs/notes.txt": REQUEST,
        "logs/.hidden.json": REQUEST,
        "logs/.git/x.json": REQUEST,
        "none/package.json": "{}",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (tmp_path / "logs/packed.jsonl.gz").write_bytes(gzip.compress(REQUEST.encode()))
    return tmp_path


def test_a_folder_is_its_requests(folder: Path) -> None:
    assert list(files_of(["logs"])) == [
        f"logs/{name}"
        for name in (
            "cut.json",
            "deep/er/array.json",
            "ids.json",
            "native.ndjson",
            "one.json",
            "packed.jsonl.gz",
            "responses.json",
            "two.jsonl",
        )
    ]


def test_a_folder_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refused(path: Any) -> Any:
        if os.fspath(path).endswith("deep"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    error, *files = files_of(["logs"])
    assert str(error) == "logs/deep: cannot be read (permission denied)"
    assert files and all(isinstance(file, str) for file in files)


def test_patterns(folder: Path) -> None:
    assert list(files_of(["logs/*.jsonl"])) == ["logs/two.jsonl"]
    assert list(files_of(["logs/**/array.json", "logs/*.json*"]))[:2] == ["logs/deep/er/array.json", "logs/cut.json"]
    # What is named, or fits, is read whatever it is called.
    assert list(files_of(["logs/notes.txt"])) == ["logs/notes.txt"]


def test_each_file_once(folder: Path) -> None:
    assert list(files_of(["logs/one.json", "logs/*one.json", "logs/one.json", "-", "-"])) == ["logs/one.json", "-"]
    (folder / "link.json").symlink_to("logs/one.json")
    assert list(files_of(["./logs/../logs/one.json", "link.json", "logs/one.json"])) == ["./logs/../logs/one.json"]


def test_a_name_with_brackets_is_a_file_first(folder: Path) -> None:
    (folder / "a[1].json").write_text(REQUEST)
    assert list(files_of(["a[1].json"])) == ["a[1].json"]


@pytest.mark.parametrize(
    ("name", "said"), [("none", "is a directory without requests (.json, .jsonl, .ndjson"), ("*.x", "no file fits")]
)
def test_what_means_nothing(folder: Path, name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    (error,) = files_of([name])
    assert isinstance(error, InputError) and said in str(error) and error.file == name
    assert main([name, "logs/two.jsonl", "--format", "concise"]) == 2
    out, err = capsys.readouterr()
    assert "PKV101" in out and err.count("\n") == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_folder_with_a_pipe_in_it(folder: Path) -> None:
    os.mkfifo(folder / "none" / "pipe.json")
    (error,) = files_of(["none"])
    assert isinstance(error, InputError)


def test_the_name_of_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines(clocked(1), clocked(2)).encode())))
    assert main(["-", "--stdin-filename", "src/a.jsonl", "--format", "concise"]) == 1
    assert capsys.readouterr().out.startswith("src/a.jsonl:2:58: PKV101")


def test_requests_are_counted_over_all_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in {"a": clocked(1), "b": clocked(2), "c": {"messages": 5}}.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    assert main(["a.json", "c.json", "b.json", "--together", "--format", "json"]) == 2
    refused, found = json.loads(capsys.readouterr().out)["findings"]
    assert (refused["file"], refused["request"]) == ("c.json", 1)
    assert (found["file"], found["request"], found["evidence"]["earlier_request"]) == ("b.json", 2, 0)


class TestOutputFile:
    @pytest.mark.parametrize("format_", ["text", "concise", "json", "sarif", "github", "html"])
    def test_the_same_as_on_standard_output(
        self, folder: Path, format_: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["logs/two.jsonl", "--format", format_]) == 1
        shown = capsys.readouterr().out
        assert main(["logs/two.jsonl", "--format", format_, "--output", "report"]) == 1
        assert capsys.readouterr() == ("", "")
        assert Path("report").read_text(encoding="utf-8") == shown
        assert not any(path.name.startswith(".pkv-") for path in folder.iterdir())

    @pytest.mark.parametrize(
        ("name", "said"), [("none/at/all", "there is no directory none/at"), ("logs", "is a directory")]
    )
    def test_where_it_cannot_be(self, folder: Path, name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["logs/two.jsonl", "--output", name]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err == f"pkv-lint: {name}: cannot be written: {said}\n"

    def test_whole_or_not_at_all(self, folder: Path) -> None:
        Path("report").write_text("old")

        def parts() -> Any:
            yield "new"
            raise RuntimeError

        with pytest.raises(RuntimeError):
            write_file("report", parts())
        assert Path("report").read_text() == "old"
        assert {path.name for path in folder.iterdir()} == {"logs", "none", "report"}

    def test_permissions_and_links(self, folder: Path) -> None:
        Path("report").write_text("old")
        os.chmod("report", 0o640)
        Path("link").symlink_to("report")
        write_file("link", ["new"])
        assert Path("link").is_symlink() and Path("report").read_text() == "new"
        assert stat.S_IMODE(os.stat("report").st_mode) == 0o640
        mask = os.umask(0o027)
        try:
            write_file("other", ["x"])
        finally:
            os.umask(mask)
        assert stat.S_IMODE(os.stat("other").st_mode) == 0o640
