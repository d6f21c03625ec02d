"""The command line of pkv-lint: exit status, errors, options, output."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.cli import main
from pkv_lint.columns import width

SYSTEM = "You are a clerk. " + "Answer in short sentences and name your sources. " * 20


def request(user: str = "hi", system: str = SYSTEM, **further: Any) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": system}, {"role": "user", "content": user}], **further}


def clocked(second: int) -> dict[str, Any]:
    return request(system=f"The time is 2026-11-29 14:05:{second:02d}. {SYSTEM}")


def lines(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


CLEAN = lines(request("one"), request("two"))
CLOCKED = lines(clocked(1), clocked(2), clocked(3))
LOOKS_LIKE_DATE = lines(request(system=f"Today is 2026-11-29. {SYSTEM}"))


class Run:
    """What one call of the command gave."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def document(self) -> dict[str, Any]:
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value

    @property
    def codes(self) -> list[str]:
        return [finding["code"] for finding in self.document["findings"]]


Lint = Callable[..., Run]
Terminal = Callable[..., bytes]


@pytest.fixture
def lint(capsys: pytest.CaptureFixture[str]) -> Iterator[Lint]:
    def call(*arguments: str | Path) -> Run:
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Run(status, captured.out, captured.err)

    yield call


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    def write(content: str | bytes, name: str = "traffic.jsonl") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


class TestExitStatus:
    def test_nothing_found(self, lint: Lint, file: Callable[..., Path]) -> None:
        assert lint(file(CLEAN)).status == 0

    def test_findings(self, lint: Lint, file: Callable[..., Path]) -> None:
        assert lint(file(CLOCKED)).status == 1

    @pytest.mark.parametrize(
        ("level", "status"), [("error", 0), ("warning", 0), ("info", 1), ("never", 0)], ids=lambda value: str(value)
    )
    def test_fail_on_decides_which_findings_count(
        self, lint: Lint, file: Callable[..., Path], level: str, status: int
    ) -> None:
        run = lint(file(LOOKS_LIKE_DATE), "--fail-on", level, "--format", "json")
        assert [finding["severity"] for finding in run.document["findings"]] == ["info"]
        assert run.status == status

    def test_never_fails_on_an_error_when_told_so(self, lint: Lint, file: Callable[..., Path]) -> None:
        assert lint(file(CLOCKED), "--fail-on", "never").status == 0

    def test_unusable_input_wins_over_findings(self, lint: Lint, file: Callable[..., Path]) -> None:
        run = lint(file(CLOCKED + "not json\n"), "--format", "json", "--fail-on", "never")
        assert run.status == 2
        assert run.codes == ["PKV901", "PKV101"]


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ([], "See pkv-lint --help."),
            (["{file}", "--bogus"], "--bogus"),
            (["{file}", "--block-size", "0"], "--block-size"),
            (["{file}", "--block-size", "x"], "--block-size"),
            (["{file}", "--format", "yaml"], "yaml"),
            (["{file}", "--fail-on", "sometimes"], "sometimes"),
            (["{file}", "--timezone", "Nowhere/Atlantis"], "Nowhere/Atlantis"),
            (["{file}", "--select", "PKV999"], "PKV999"),
            (["{file}", "--ignore", ","], "--ignore"),
            (["--explain", "PKV999"], "PKV999"),
            (["{file}", "--model", "./no-such-model"], "no-such-model"),
            (["{file}", "--model", "nobody/nothing", "--offline"], "nobody/nothing"),
            (["{file}", "--tokenizer", "no-such-tokenizer.json", "--offline"], "no-such-tokenizer.json"),
            (["{file}", "--chat-template", "no-such.jinja"], "no-such.jinja"),
            (["{file}", "--vllm-args", "vllm serve 'x"], "quotation"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    def test_bad_usage_is_one_line_and_2(
        self, lint: Lint, file: Callable[..., Path], arguments: list[str], said: str
    ) -> None:
        path = str(file(CLEAN))
        run = lint(*(argument.replace("{file}", path) for argument in arguments))
        assert run.status == 2
        assert run.out == ""
        assert run.err.startswith("pkv-lint: ") and run.err.count("\n") == 1
        assert said in run.err

    def test_help_names_the_exit_status(self, lint: Lint) -> None:
        run = lint("--help")
        assert run.status == 0
        assert "Exit status" in run.out

    def test_version(self, lint: Lint) -> None:
        run = lint("--version")
        assert run.status == 0
        assert run.out.startswith("pkv-lint")

    def test_explain(self, lint: Lint) -> None:
        run = lint("--explain", "pkv101")
        assert run.status == 0
        assert run.out.startswith("PKV101 timestamp-in-prefix")
        for heading in ("What it does", "Why it matters", "Example", "Use instead", "Fix safety"):
            assert f"\n\n{heading}\n\n" in run.out

    @pytest.mark.parametrize("name", ["PKV203", "203", "tool-set-changed", "Tool-Set-Changed"])
    def test_explain_by_code_number_or_name(self, lint: Lint, name: str) -> None:
        assert lint("--explain", name).out == lint("--explain", "pkv203").out != ""

    def test_what_is_explained_fits_the_terminal(self, lint: Lint, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "70")
        prose = [line for line in lint("--explain", "203").out.splitlines() if not line.startswith("    ")]
        assert 60 < max(map(len, prose)) <= 70

    def test_list_rules(self, lint: Lint) -> None:
        run = lint("--list-rules")
        assert run.status == 0
        codes = [line.split()[0] for line in run.out.splitlines()]
        assert codes == sorted(codes)
        assert {"PKV101", "PKV103", "PKV201", "PKV301"} <= set(codes)


class TestChoice:
    @pytest.mark.parametrize(
        ("arguments", "codes"),
        [
            (["--select", "PKV101"], ["PKV101"]),
            (["--select", "pkv1"], ["PKV101"]),
            (["--select", "PKV2, PKV301"], []),
            (["--ignore", "PKV1"], []),
            (["--ignore", "PKV201"], ["PKV101"]),
            (["--select", "PKV1", "--ignore", "PKV101"], []),
        ],
        ids=" ".join,
    )
    def test_select_and_ignore(
        self, lint: Lint, file: Callable[..., Path], arguments: list[str], codes: list[str]
    ) -> None:
        run = lint(file(CLOCKED), "--format", "json", *arguments)
        assert run.codes == codes
        assert run.status == (1 if codes else 0)


class TestFiles:
    def test_missing(self, lint: Lint, tmp_path: Path) -> None:
        run = lint(tmp_path / "none.json")
        assert (run.status, run.out) == (2, "")
        assert run.err == f"pkv-lint: {tmp_path / 'none.json'}: no such file\n"

    def test_directory(self, lint: Lint, tmp_path: Path) -> None:
        run = lint(tmp_path)
        assert (run.status, run.out) == (2, "")
        assert "directory" in run.err

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
    def test_a_pipe_that_nobody_writes_to_does_not_hang(self, lint: Lint, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        run = lint(pipe)
        assert (run.status, run.out) == (2, "")
        assert "regular file" in run.err

    @pytest.mark.parametrize(
        ("content", "code", "said"),
        [
            (b"", "PKV901", "no request"),
            (b"  \n \n", "PKV901", "no request"),
            (b"[]", "PKV901", "no request"),
            (b'{"messages": [', "PKV901", "JSON"),
            (b'{"messages": [{"role": "user", "content": "\xc3\x28"}]}', "PKV901", "UTF-8"),
            ('{"messages": []}'.encode("utf-16"), "PKV901", "UTF-16"),
            (b"[" * 100_000, "PKV901", "nested too deeply"),
            (b'{"messages": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", "PKV901", "nested too deeply"),
            (b'{"messages": [{"role": "user", "content": "x"}], "seed": ' + b"9" * 6000 + b"}", "PKV901", "digits"),
            (b'"text"', "PKV902", "object"),
            (b"5", "PKV902", "object"),
            (b"null", "PKV902", "object"),
            (b"{}", "PKV902", "messages"),
            (b'{"messages": []}', "PKV902", "messages"),
            (b'{"messages": "hi"}', "PKV902", "messages"),
            (b'{"messages": [{"role": "user", "content": 5}]}', "PKV902", "messages[0].content"),
            (b'{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1e400}', "PKV902", "max_tokens"),
            (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "PKV902", "surrogate"),
            (b'{"timestamp": "soon", "request": {}}', "PKV902", "timestamp"),
            (b'{"token_ids": [1, -2]}', "PKV902", "token_ids[1]"),
            (b'[{"role": "user", "content": "hi"}]', "PKV902", "list of messages"),
        ],
        ids=lambda value: value[:40].decode("latin-1") if isinstance(value, bytes) else "",
    )
    def test_what_cannot_be_judged(
        self, lint: Lint, file: Callable[..., Path], content: bytes, code: str, said: str
    ) -> None:
        path = file(content)
        run = lint(path)
        assert (run.status, run.out) == (2, "")
        assert run.err.startswith(f"pkv-lint: {path}") and run.err.count("\n") == 1
        assert code in run.err and said in run.err
        (finding,) = lint(path, "--format", "json").document["findings"]
        assert finding["code"] == code and finding["severity"] == "error"

    @pytest.mark.parametrize(
        "content",
        [
            b"\xef\xbb\xbf" + json.dumps(request()).encode(),
            b'{"messages": [{"role": "user", "content": "hi"}], "temperature": NaN}',
            b'{"messages": [{"role": "user", "content": "a"}], "messages": [{"role": "user", "content": "b"}]}',
            b'{"messages": [{"role": "user", "content": "a\\u0000b\\u001b[31m"}]}',
            b'{"messages": [{"role": "user", "content": "x", "extra": ' + b'{"a": ' * 300 + b"1" + b"}" * 301 + b"]}",
            b'{"token_ids": [1, 2, 3]}',
        ],
        ids=["byte order mark", "NaN", "duplicate keys", "control characters", "nesting", "token ids"],
    )
    def test_what_looks_odd_but_is_served(self, lint: Lint, file: Callable[..., Path], content: bytes) -> None:
        run = lint(file(content))
        assert (run.status, run.err) == (0, "")

    def test_bad_lines_do_not_hide_the_others(self, lint: Lint, file: Callable[..., Path]) -> None:
        good = CLOCKED.splitlines()
        run = lint(file("\n".join([good[0], "{not json", good[1], '{"messages": 7}', good[2]])), "--format", "json")
        assert run.status == 2
        assert run.codes == ["PKV901", "PKV902", "PKV101"]
        invalid, refused, found = run.document["findings"]
        assert (invalid["line"], refused["line"]) == (2, 4)
        assert found["requests_affected"] == 2 and found["line"] == 3
        assert run.document["summary"]["requests"] == 3

    def test_a_template_that_refuses_a_request_is_a_finding(self, lint: Lint, file: Callable[..., Path]) -> None:
        template = file("{{ raise_exception('No system messages.') }}", "strict.jinja")
        run = lint(file(CLEAN), "--chat-template", template, "--format", "json")
        assert run.status == 1
        assert run.codes == ["PKV903"]
        assert "No system messages." in run.document["findings"][0]["message"]
        assert lint(file(CLEAN), "--chat-template", template, "--ignore", "PKV903").status == 0

    def test_standard_input(self, lint: Lint, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CLOCKED.encode())))
        run = lint("-", "--format", "json")
        assert run.status == 1
        assert run.document["findings"][0]["file"] == "stdin"

    def test_files_are_judged_apart_unless_told_otherwise(self, lint: Lint, file: Callable[..., Path]) -> None:
        files = [file(lines(clocked(second)), f"{second}.json") for second in (1, 2, 3)]
        apart = lint(*files, "--format", "json")
        assert [finding["severity"] for finding in apart.document["findings"]] == ["warning"] * 3
        (finding,) = lint(*files, "--together", "--format", "json").document["findings"]
        assert (finding["severity"], finding["requests_affected"]) == ("error", 2)
        assert finding["file"] == str(files[1])

    def test_one_bad_file_does_not_hide_the_others(self, lint: Lint, file: Callable[..., Path], tmp_path: Path) -> None:
        run = lint(tmp_path / "none.json", file(CLOCKED), "--format", "json")
        assert (run.status, run.codes) == (2, ["PKV101"])
        assert "no such file" in run.err


class TestOutput:
    def test_json_contract(self, lint: Lint, file: Callable[..., Path]) -> None:
        path = file(CLOCKED)
        document = lint(path, "--format", "json").document
        assert list(document) == ["version", "layout", "approximate", "findings", "summary"]
        assert (document["version"], document["layout"], document["approximate"]) == (1, "builtin", True)
        (finding,) = document["findings"]
        assert {
            "code",
            "name",
            "severity",
            "message",
            "file",
            "line",
            "column",
            "request",
            "path",
            "span",
            "requests_affected",
            "tokens_lost",
            "blame",
            "evidence",
            "fix",
        } == set(finding)
        assert (finding["code"], finding["name"]) == ("PKV101", "timestamp-in-prefix")
        assert (finding["file"], finding["line"], finding["request"]) == (str(path), 2, 1)
        assert finding["path"] == "messages[0].content"
        start, end = finding["span"]
        assert clocked(2)["messages"][0]["content"][start:end] == "2026-11-29 14:05:02"
        text = path.read_text().splitlines()[finding["line"] - 1]
        assert text[finding["column"] - 1 :].startswith("2026-11-29 14:05:02")
        summary = document["summary"]
        assert (summary["requests"], summary["error"], summary["warning"], summary["info"]) == (3, 1, 0, 0)
        assert 0 < finding["tokens_lost"] == summary["tokens_lost"] < summary["prompt_tokens"]

    def test_text_shows_place_both_versions_and_cost(self, lint: Lint, file: Callable[..., Path]) -> None:
        path = file(CLOCKED)
        shown = lint(path).out.splitlines()
        assert shown[0].startswith(f"{path}:2:") and "PKV101 error" in shown[0]
        source = next(index for index, line in enumerate(shown) if line.startswith("  2 |"))
        marked = shown[source + 1]
        place = slice(marked.index("^"), marked.rindex("^") + 1)
        assert shown[source][place] == "2026-11-29 14:05:02"
        assert any("1st request" in line and "14:05:01" in line for line in shown)
        assert any("2nd request" in line and "14:05:02" in line for line in shown)
        assert any("2 of 3 requests" in line for line in shown)
        assert any("approximate" in line for line in shown[-2:])

    def test_no_colours_in_a_pipe(self, lint: Lint, file: Callable[..., Path]) -> None:
        assert "\x1b" not in lint(file(CLOCKED)).out

    def test_what_a_terminal_would_obey_is_only_shown(self, lint: Lint, file: Callable[..., Path]) -> None:
        evil = "\x1b]0;title\x07"
        tools = [{"type": "function", "function": {"name": f"{evil}{name}"}} for name in "ab"]
        changing = [request(system=f"{evil} run {run} {SYSTEM}") for run in ("first", "second")]
        shuffled = [request(SYSTEM, tools=tools), request(SYSTEM, tools=tools[::-1])]
        refused = {"messages": [{"role": evil, "content": 5}], evil: evil, "max_tokens": evil}
        run = lint(file(lines(*changing, *shuffled, refused)))
        assert run.status == 2
        assert not set("\x1b\x07") & set(run.out + run.err)

    @pytest.mark.parametrize("columns", [80, 100, 140])
    def test_shown_text_fits_the_terminal(
        self, lint: Lint, file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, columns: int
    ) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        text = "漢字 e\u0301 " * 30
        wide = [request(system=f"{text}{run} {text}{SYSTEM}") for run in ("first", "second")]
        shown_requests = tuple(f"      {number} request" for number in ("1st", "2nd", "3rd", "4th"))
        shown = lint(file(lines(clocked(1), clocked(2), *wide))).out.splitlines()
        assert max(width(line) for line in shown if "traffic.jsonl:" not in line) <= columns
        shown = [line for line in shown if line.startswith((*shown_requests, "  2 |", "  3 |", "  4 |"))]
        assert len(shown) >= 6
        assert columns - 10 < max(map(width, shown)) <= columns

    @pytest.mark.parametrize(
        ("variables", "coloured"), [({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
    )
    def test_colours_on_a_terminal(
        self, on_terminal: Terminal, file: Callable[..., Path], variables: dict[str, str], coloured: bool
    ) -> None:
        shown = on_terminal(["-m", "pkv_lint.cli", str(file(CLOCKED))], **variables)
        assert b"PKV101" in shown
        assert (b"\x1b[" in shown) is coloured

    @pytest.mark.skipif(sys.platform == "win32", reason="needs pipes that close")
    def test_a_reader_that_goes_away(self, file: Callable[..., Path]) -> None:
        path = file(lines(*(clocked(second) for second in range(60)), *(request(f"{n}") for n in range(200))))
        process = subprocess.Popen(
            [sys.executable, "-m", "pkv_lint.cli", str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
        process.stderr.close()
        assert (process.wait(), errors) == (1, b"")

    def test_an_output_that_cannot_take_all_characters(self, file: Callable[..., Path]) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "pkv_lint.cli", str(file(CLOCKED))],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            check=False,
        )
        assert (done.returncode, done.stderr) == (1, b"")

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
    @pytest.mark.parametrize("argument", ["", "--help", "--list-rules"])
    def test_a_full_disk_is_one_line(self, file: Callable[..., Path], argument: str) -> None:
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "pkv_lint.cli", argument or str(file(CLOCKED))],
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
            )
        assert (done.returncode, done.stderr) == (2, b"pkv-lint: cannot write the output: No space left on device\n")
