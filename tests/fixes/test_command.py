"""`--diff` and `--fix`: which files are written, and how."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fixes.traffic import SYSTEM, TOOLS, Fix, clocked, conversation, jsonl
from tests.outputs.traffic import report

from pkv_lint.batch import Batch, lint_files
from pkv_lint.cli import main
from pkv_lint.fixes.documents import Document, Documents
from pkv_lint.fixes.fixing import FIXES, Outcome, Result, Step, fixed
from pkv_lint.fixes.showing import notes
from pkv_lint.linting import load_rules
from pkv_lint.prompt.json_spans import elements, span_of
from pkv_lint.prompt.renderer import Renderer

RENDERER, RULES = Renderer.load(), load_rules()
SHUFFLED = conversation(2, tools=lambda turn: TOOLS[:: 1 - 2 * turn])
MENDED = conversation(2, tools=sorted(TOOLS, key=lambda one: str(one["function"]["name"])))


def wrapped(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"timestamp": 1e9, "session_id": "s", "request": body, "note": [1.50, None]} for body in bodies]


@pytest.mark.parametrize(
    ("content", "mended"),
    [
        (jsonl(SHUFFLED), jsonl(MENDED)),
        (jsonl(SHUFFLED, end="\r\n"), jsonl(MENDED, end="\r\n")),
        ("\ufeff" + jsonl(SHUFFLED).rstrip(), "\ufeff" + jsonl(MENDED).rstrip()),
        ("\n" + jsonl(SHUFFLED, end="\n\n"), "\n" + jsonl(MENDED, end="\n\n")),
        (jsonl(wrapped(SHUFFLED)), jsonl(wrapped(MENDED))),
        (json.dumps(SHUFFLED), json.dumps(MENDED)),
        (json.dumps(SHUFFLED, indent=4, ensure_ascii=False), json.dumps(MENDED, indent=4, ensure_ascii=False)),
        (jsonl(SHUFFLED, indent="\t"), jsonl(MENDED, indent="\t")),
        (jsonl(SHUFFLED, separators=(",", ":")), jsonl(MENDED, separators=(",", ":"))),
    ],
    ids=["lines", "CRLF", "mark", "blank", "wrapped", "array", "indented", "one after the other", "tight"],
)
def test_only_the_tools_change(fix: Fix, content: str, mended: str) -> None:
    run = fix(content)
    assert run.data == mended.encode()
    assert run.status == 0 and "PKV201 fixed" in run.err


def test_bad_lines_stay_as_they_are(fix: Fix) -> None:
    first, second = jsonl(SHUFFLED).encode().splitlines(keepends=True)
    mended = jsonl(MENDED).encode().splitlines(keepends=True)
    run = fix(first + b"\xff\xfe\n{]\n\xef\xbb\xbf" + second)
    assert run.data == mended[0] + b"\xff\xfe\n{]\n\xef\xbb\xbf" + mended[1]
    assert run.status == 2 and run.err.count("PKV901") == 2


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_what_is_unknown_survives_byte_for_byte(data: st.DataObject) -> None:
    """Bodies with odd members and odd spaces: outside of the lists of tools, every byte is the same."""
    odd = st.sampled_from(['"\\u00e9\\/"', "1E2", "-0.0", "12345678901234567890123", '{"a":1,"a" : 2}', "[ ]", "null"])
    space = st.sampled_from(["", " ", "\t", "\r"])

    def line(body: dict[str, Any]) -> str:
        members = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in body.items()]
        members += [f'"x{number}"{data.draw(space)}:{data.draw(odd)}' for number in range(data.draw(st.integers(0, 3)))]
        return "{" + ",".join(data.draw(space) + one for one in data.draw(st.permutations(members))) + "}"

    before = "\n".join(map(line, SHUFFLED))
    after = mended(before)
    assert without_tools(after) == without_tools(before)
    assert after != before and sorted(after) == sorted(before)


def mended(text: str) -> str:
    documents = Documents("stdin", {"stdin": Document.of(text.encode())})

    def lint(version: Documents) -> Batch:
        return lint_files(["-"], RULES, lambda line: RENDERER, lambda renderer: 16, zone=UTC, source=version.source)

    return fixed(lint, documents, unsafe=False).documents.files["stdin"].data.decode()


def without_tools(text: str) -> list[str]:
    lines = []
    for line in text.split("\n"):
        span = span_of(line, ("tools",))
        assert span is not None and len(list(elements(line, span[0]))) == 3
        lines.append(line[: span[0]] + line[span[1] :])
    return lines


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs the program patch")
def test_a_patch_shows_what_would_change(fix: Fix) -> None:
    run = fix(jsonl(SHUFFLED, indent=1).rstrip(), do="--diff")
    assert run.status == 1 and run.data == jsonl(SHUFFLED, indent=1).rstrip().encode()
    assert "PKV201 can be fixed (tools sorted by name): in 2 requests" in run.err
    patch(run.out, "/")
    assert run.data == jsonl(MENDED, indent=1).rstrip().encode()


def patch(text: str, folder: str) -> None:
    data = text.encode(errors="surrogateescape")
    done = subprocess.run(["patch", "-p0", "--binary", "-d", folder], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs the program patch")
def test_patches_name_files_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate([f"{tmp_path}/a.jsonl", "./a.jsonl", "../" * 20 + f"{tmp_path}/a.jsonl"]):
        Path("a.jsonl").write_text(jsonl(SHUFFLED))
        assert main(["--diff", name]) == 1
        patch(capsys.readouterr().out, ".")
        assert Path("a.jsonl").read_text() == jsonl(MENDED), number


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs the program patch")
@pytest.mark.parametrize(
    "name",
    [
        "plain.jsonl",
        "a b\u00fc.jsonl",
        "line\nend.jsonl",
        'C:\\x\\"y".jsonl',
        "\x1b[1m.jsonl",
        "-dash.jsonl",
        "\udcff.jsonl",
    ],
    ids=ascii,
)
def test_patches_of_odd_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path(name)
    file.write_text("\ufeff" + jsonl(SHUFFLED, end="\r\n"), newline="")
    assert main(["--diff", "--", name]) == 1
    patch(capfd.readouterr().out, ".")
    assert file.read_bytes().decode() == "\ufeff" + jsonl(MENDED, end="\r\n")


def test_no_patch_where_nothing_would_change(fix: Fix) -> None:
    run = fix(MENDED, do="--diff")
    assert (run.status, run.out, run.err) == (0, "", "")


def test_only_chosen_rules_are_fixed(fix: Fix) -> None:
    assert fix(SHUFFLED, "--ignore", "PKV201").values == SHUFFLED


def test_unsafe_fixes_have_to_be_asked_for(fix: Fix) -> None:
    bodies = conversation(3, clocked)
    run = fix(bodies)
    assert run.values == bodies and run.status == 1
    assert run.err == (
        "pkv-lint: PKV101 not fixed (lines that change moved from the system message to the user's): "
        "changes what the model reads, so only with --unsafe-fixes\n"
    )


def test_unsafe_fixes_are_not_promised_where_there_are_none(fix: Fix) -> None:
    assert "not possible in" in fix(conversation(1, clocked)).err


def test_several_fixes_in_one_run(fix: Fix) -> None:
    run = fix(conversation(3, clocked, tools=lambda turn: TOOLS[:: 1 - 2 * (turn % 2)]), "--unsafe-fixes")
    assert run.status == 0
    # Sorted tools win nothing as long as the clock stands in front of them.
    assert re.findall(r"PKV\d+(?= fixed)", run.err) == ["PKV101", "PKV201"]


@pytest.mark.parametrize("together", [True, False])
def test_files_are_one_traffic_only_if_told_so(tmp_path: Path, together: bool) -> None:
    files = [tmp_path / f"{number}.json" for number in range(2)]
    for file, body in zip(files, SHUFFLED, strict=True):
        file.write_text(json.dumps(body))
    main([*map(str, files), "--fix", *(["--together"] if together else [])])
    assert [json.loads(file.read_text()) for file in files] == (MENDED if together else SHUFFLED)


def test_the_mode_and_a_link_are_kept(fix: Fix, tmp_path: Path) -> None:
    file, link = tmp_path / "file.jsonl", tmp_path / "link.jsonl"
    file.write_text(jsonl(SHUFFLED))
    file.chmod(0o640)
    link.symlink_to("file.jsonl")
    assert main([str(link), "--fix"]) == 0
    assert link.is_symlink() and file.read_text() == jsonl(MENDED)
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["file.jsonl", "link.jsonl"]


def test_what_was_read_from_stdin_goes_to_stdout() -> None:
    bad = b"\xef\xbb\xbf\n\xff{]\r\n"
    done = subprocess.run(
        [sys.executable, "-m", "pkv_lint.cli", "-", "--fix"],
        input=bad + jsonl(SHUFFLED, end="\r\n").encode(),
        capture_output=True,
        check=False,
    )
    assert done.stdout == bad + jsonl(MENDED, end="\r\n").encode()
    assert done.returncode == 2 and b"PKV201 fixed" in done.stderr and b"stdin:2:1: PKV901" in done.stderr


def test_a_patch_of_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(jsonl(SHUFFLED).encode())))
    assert main(["-", "--diff", "--stdin-filename", "requests.jsonl"]) == 1
    assert capsys.readouterr().out.startswith("--- requests.jsonl\n+++ requests.jsonl\n@@ ")


def test_compressed_files_are_refused_and_others_fixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed, plain = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl"
    packed.write_bytes(gzip.compress(jsonl(SHUFFLED).encode()))
    plain.write_text(jsonl(SHUFFLED))
    data = packed.read_bytes()
    assert main([str(packed), str(plain), "--fix"]) == 2
    assert packed.read_bytes() == data and plain.read_text() == jsonl(MENDED)
    assert f"{packed}: is compressed; fixes are made in plain files only\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("no gain", "would not raise reuse (about 1,600 tokens reused before, 1,616 after)"),
        (
            "no saving",
            "would make prompts longer by more than it saves (about 1,600 tokens reused before, 1,616 after)",
        ),
        ("refused", "the server would refuse a request then"),
        ("nothing to do", "not possible in a.json, b.json, c.json and 2 other files"),
    ],
)
def test_why_a_fix_is_not_made(result: Result, said: str) -> None:
    files = tuple(f"{name}.json" for name in "abcde")
    step = Step(FIXES[-1], ("PKV101",), files, result, requests=3, before=1600, after=1616)
    (note,) = notes(Outcome(Documents("stdin"), Batch((report(*SHUFFLED),), (), ()), (step,)), made=True)
    assert note == f"PKV101 not fixed ({FIXES[-1].does}): {said}"


def test_a_file_that_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folder would let it be replaced."""
    file = tmp_path / "traffic.jsonl"
    file.write_text(jsonl(SHUFFLED))
    monkeypatch.setattr(os, "access", lambda path, mode: os.fspath(path) != str(file))
    assert main([str(file), "--fix"]) == 2
    assert f"{file}: cannot be written: permission denied\n" in capsys.readouterr().err
    assert file.read_text() == jsonl(SHUFFLED)


class TestHints:
    """What the report says of fixes, without one."""

    @pytest.fixture(autouse=True)
    def wide(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "140")

    def hint(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
        main([*arguments, "--offline"])
        out = capsys.readouterr().out
        return out.count(" [*]\n"), [line for line in out.splitlines() if line.startswith("[*]")]

    def test_findings_that_may_be_fixable_are_marked(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        safe, unsafe, alone = (tmp_path / f"{name}.jsonl" for name in ("safe", "unsafe", "alone"))
        safe.write_text(jsonl(SHUFFLED))
        unsafe.write_text(jsonl(conversation(3, clocked)))
        alone.write_text(jsonl(conversation(1, clocked)))
        assert self.hint(capsys, str(safe)) == (1, ["[*] 1 finding may be fixable: --diff shows how."])
        assert self.hint(capsys, str(unsafe), str(alone)) == (
            1,
            ["[*] 1 finding may be fixable: --diff --unsafe-fixes shows how."],
        )
        assert self.hint(capsys, str(safe), str(unsafe)) == (
            2,
            ["[*] 2 findings may be fixable, 1 of them only with --unsafe-fixes: --diff shows how."],
        )
        assert self.hint(capsys, str(unsafe), "--fix") == (0, [])
        assert self.hint(capsys, str(safe), "--ignore", "PKV201") == (0, [])

    def test_not_in_packed_files(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        packed = tmp_path / "a.jsonl.gz"
        packed.write_bytes(gzip.compress(jsonl(SHUFFLED).encode()))
        assert self.hint(capsys, str(packed)) == (0, [])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_cannot_be_written(fix: Fix, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert fix(SHUFFLED).status == 2


@pytest.mark.parametrize(
    "options",
    [
        ["--fix", "--diff"],
        ["--diff", "--output", "patch"],
        ["--diff", "--statistics"],
        ["--unsafe-fixes"],
        ["--fix", "--baseline", "b.json", "--update-baseline"],
        ["--output", "out", "--baseline", "b.json", "--update-baseline"],
    ],
    ids=" ".join,
)
def test_options_that_do_not_go_together(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"messages": [{"role": "user", "content": SYSTEM}]}))
    assert main([str(file), *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1
