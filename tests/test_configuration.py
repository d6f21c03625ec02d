"""The configuration file: where it is found, what it may say, and that the command line wins."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.outputs.traffic import clocked, lines, request

from pkv_lint.cli import main
from pkv_lint.configuration import KEYS, Configuration, find_configuration, read_configuration
from pkv_lint.prompt.errors import InputError
from pkv_lint.render_cli import main as render

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project that commands run in."""
    (tmp_path / "traffic.jsonl").write_text(lines(clocked(1), clocked(2)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def lint(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any, str]]:
    """The exit status, the JSON document (else the text) and stderr of a run on `traffic.jsonl`."""

    def call(*arguments: str) -> tuple[int, Any, str]:
        status = main([*(arguments or ()), *([] if "." in arguments else ["traffic.jsonl"])])
        out, err = capsys.readouterr()
        return status, json.loads(out) if out.startswith("{") else out, err

    return call


Lint = Callable[..., tuple[int, Any, str]]


class TestFinding:
    def test_the_nearest_folder_wins(self, project: Path) -> None:
        below = project / "a" / "b"
        below.mkdir(parents=True)
        (project / "pyproject.toml").write_text('[tool.pkv]\nfail-on = "error"\n')
        assert find_configuration(below).options == {"fail_on": "error"}
        (project / "a" / "pyproject.toml").write_text('[project]\nname = "pkv"\n')
        assert find_configuration(below).options == {"fail_on": "error"}
        (project / "a" / "pyproject.toml").write_text("[tool.pkv]\n")
        assert find_configuration(below).options == {}
        (project / "a" / "pkv.toml").write_text('fail-on = "info"\n')
        assert find_configuration(below).options == {"fail_on": "info"}

    def test_none(self, project: Path) -> None:
        assert find_configuration(project) == Configuration()

    def test_a_broken_file_that_does_not_speak_of_pkv_is_no_matter_of_ours(self, project: Path) -> None:
        (project / "pyproject.toml").write_text("[[[")
        assert find_configuration(project) == Configuration()

    def test_named(self, project: Path, lint: Lint) -> None:
        (project / "pkv.toml").write_text('format = "json"\n')
        (project / "other.toml").write_text('format = "concise"\nfail-on = "never"\n')
        assert isinstance(lint()[1], dict)
        status, out, _ = lint("--config", "other.toml")
        assert status == 0 and out.startswith("traffic.jsonl:2:58: PKV101")
        assert lint("--config", "none.toml")[2] == "pkv-lint: none.toml: cannot be read: no such file or directory\n"


class TestSettings:
    def test_every_option_can_be_set(self, project: Path, lint: Lint) -> None:
        (project / "layout.jinja").write_text(TEMPLATE)
        (project / "pkv.toml").write_text(
            """
            chat-template = "layout.jinja"
            block-size = 32
            timezone = "Europe/Berlin"
            offline = true
            vllm-args = "--max-model-len 100k"
            select = ["PKV1", "PKV201"]
            ignore = ["PKV104"]
            fail-on = "never"
            format = "json"
            together = true
            [severity]
            PKV1 = "info"
            PKV101 = "warning"
            """
        )
        status, document, _ = lint()
        assert status == 0
        assert [(one["code"], one["severity"]) for one in document["findings"]] == [("PKV101", "warning")]
        assert document["layout"] == "model"
        assert document["findings"][0]["evidence"]["hit"] % 32 == 0
        assert len(KEYS) == 15  # tested here, and below: model, models, tokenizer, baseline

    def test_the_command_line_wins(self, project: Path, lint: Lint) -> None:
        (project / "pkv.toml").write_text('fail-on = "never"\nselect = "PKV201"\nformat = "json"\nblock-size = 64\n')
        assert lint()[:2][1]["findings"] == []
        status, document, _ = lint("--fail-on", "error", "--select", "PKV101", "--block-size", "16")
        assert (status, [one["code"] for one in document["findings"]]) == (1, ["PKV101"])
        assert document["findings"][0]["evidence"]["hit"] == 16

    def test_severities_are_sorted_anew(self, project: Path, lint: Lint) -> None:
        tools = [{"type": "function", "function": {"name": name}} for name in ("a", "b", "c")]
        given = [request(f"It is 14:05:0{n}. {'Be brief. ' * 90}", tools=tools[n:] + tools[:n]) for n in (0, 1, 2)]
        (project / "traffic.jsonl").write_text(lines(*given))
        first = [one["code"] for one in lint("--format", "json")[1]["findings"]]
        assert len(first) >= 1
        (project / "pkv.toml").write_text(f'severity = {{ {first[0]} = "info" }}\n')
        document = lint("--format", "json")[1]
        assert [one["severity"] for one in document["findings"]][-1] == "info"

    def test_paths_are_meant_from_the_file(self, project: Path, lint: Lint, monkeypatch: pytest.MonkeyPatch) -> None:
        (project / "deploy").mkdir()
        (project / "deploy" / "layout.jinja").write_text(TEMPLATE)
        (project / "pyproject.toml").write_text('[tool.pkv]\nchat-template = "deploy/layout.jinja"\n')
        below = project / "tests"
        below.mkdir()
        (below / "traffic.jsonl").write_text(lines(clocked(1)))
        monkeypatch.chdir(below)
        assert lint("--format", "json")[1]["layout"] == "model"

    def test_models_by_the_names_that_requests_use(
        self, project: Path, lint: Lint, capsys: pytest.CaptureFixture[str]
    ) -> None:
        source = Path(__file__).parent.parent / "linter/pkv_lint/prompt/builtin"
        own = project / "models" / "own"
        own.mkdir(parents=True)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (own / name).write_bytes((source / name).read_bytes())
        (own / "chat_template.jinja").write_text(TEMPLATE)
        (project / "pkv.toml").write_text('[models]\n"gpt-4o" = "models/own"\n"broken" = "./none"\n')
        named = {**clocked(2), "model": "gpt-4o"}
        (project / "traffic.jsonl").write_text(
            lines(clocked(1), {**clocked(1), "model": "gpt-4o"}, named, "no", clocked(2), clocked(3))
        )
        status, document, _ = lint("--format", "json")
        found = document["findings"]
        assert status == 2
        assert [
            (one["code"], one["request"], one["line"], one["evidence"].get("earlier_request")) for one in found
        ] == [
            ("PKV901", None, 4, None),
            ("PKV101", 4, 5, 0),
            ("PKV101", 2, 3, 1),
        ]
        assert found[1]["requests_affected"] == 2 and found[2]["requests_affected"] == 1
        assert (document["layout"], document["summary"]["requests"]) == ("builtin", 5)
        # Naming a model on the command line is about all requests.
        assert len(lint("--format", "json", "--model", "models/own")[1]["findings"]) == 2
        assert render(["traffic.jsonl", "--request", "2"]) == 0
        assert capsys.readouterr().out.startswith("<system>The time is")
        assert render(["traffic.jsonl", "--request", "0"]) == 0
        assert capsys.readouterr().out.startswith("<|im_start|>")
        (project / "traffic.jsonl").write_text(lines({**clocked(1), "model": "broken"}))
        status, _, err = lint()
        assert (status, err) == (2, "pkv-lint: ./none: no such model directory\n")

    def test_a_model_on_the_command_line_comes_with_its_own_files(self, project: Path, lint: Lint) -> None:
        (project / "pkv.toml").write_text('chat-template = "none.jinja"\ntokenizer = "./none"\n')
        source = Path(__file__).parent.parent / "linter/pkv_lint/prompt/builtin"
        own = project / "own"
        own.mkdir()
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (own / name).write_bytes((source / name).read_bytes())
        (own / "chat_template.jinja").write_text(TEMPLATE)
        assert lint()[0] == 2
        assert lint("--model", "own", "--format", "json")[1]["layout"] == "model"

    def test_other_commands_read_what_is_about_the_server(
        self, project: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (project / "layout.jinja").write_text(TEMPLATE)
        (project / "pkv.toml").write_text(
            'chat-template = "layout.jinja"\nblock-size = 8\nformat = "sarif"\nselect = "PKV1"\n'
        )
        assert render(["traffic.jsonl", "--request", "0"]) == 0
        out, err = capsys.readouterr()
        assert out.startswith("<system>") and "blocks of 8" in err
        simulate = pytest.importorskip("pkv_sim.cli").main
        assert simulate(["traffic.jsonl", "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["summary"]["requests"] == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("selct = 'PKV1'", "selct: is no setting of pkv; did you mean select?"),
        ("fail_on = 'error'", "fail_on: is no setting of pkv; did you mean fail-on?"),
        ("xyz = 1", "xyz: is no setting of pkv; known are model, "),
        ("block-size = '16'", 'block-size: needs a whole number from 1 to 1000000, not "16"'),
        ("block-size = 0", "block-size: needs a whole number from 1 to 1000000, not 0"),
        ("block-size = true", "not true"),
        ("model = 5", "model: needs a string that is not empty, not 5"),
        ("tokenizer = ''", "tokenizer: needs a string that is not empty"),
        ("fail-on = 'sometimes'", 'fail-on: needs one of error, warning, info, never, not "sometimes"'),
        ("fail-on = ['error']", "fail-on: needs one of error, warning, info, never, not a list"),
        ("format = 'yaml'", "format: needs one of text, "),
        ("offline = 1", "offline: needs true or false, not 1"),
        ("select = 5", "select: needs a list of codes, not 5"),
        ("select = [5]", 'select: needs codes such as "PKV101", not 5'),
        ("select = []", "{file}: {at}select names no code"),
        ("select = ['PKV999']", "no rule has the code PKV999 ({file}: {at}select; see --list-rules)"),
        ("ignore = ','", "{file}: {at}ignore names no code"),
        ("severity = 'info'", 'severity: needs a table of codes, not "info"'),
        ("severity = { PKV101 = 'loud' }", 'severity: PKV101: needs one of error, warning, info, not "loud"'),
        ("severity = { PKV999 = 'info' }", "no rule has the code PKV999 ({file}: {at}severity; see --list-rules)"),
        ("models = ['a']", "models: needs a table of model names, not a list"),
        ("models = { a = 5 }", "models: a: needs a string that is not empty, not 5"),
        ("timezone = 'Nowhere/Atlantis'", "timezone: unknown time zone 'Nowhere/Atlantis'"),
        ("timezone = 2020-01-01", "timezone: needs a string that is not empty, not a date or time"),
        ("select = [", "{file}: is not valid TOML: "),
        ("model = 'a'\nmodel = 'b'", "{file}: is not valid TOML: "),
        ("chat-template = 'none.jinja'", "none.jinja: cannot read the chat template"),
        ("baseline = 'none.json'", "none.json: no such baseline"),
    ],
)
@pytest.mark.parametrize("file", ["pkv.toml", "pyproject.toml"])
def test_what_is_wrong_is_one_line_with_file_and_key(
    project: Path, lint: Lint, text: str, said: str, file: str
) -> None:
    (project / file).write_text(text if file == "pkv.toml" else f"[tool.pkv]\n{text}\n")
    status, out, err = lint()
    assert (status, out) == (2, "")
    assert err.startswith("pkv-lint: ") and err.count("\n") == 1
    assert said.format(file=file, at="" if file == "pkv.toml" else "tool.pkv.") in err
    if "{" not in said and "none" not in said:
        assert err.startswith(f"pkv-lint: {file}: {'' if file == 'pkv.toml' else 'tool.pkv.'}")


def test_an_empty_list_ignores_nothing(project: Path, lint: Lint) -> None:
    (project / "pkv.toml").write_text("ignore = []")
    assert lint()[0] == 1


def test_a_table_that_belongs_into_pyproject(project: Path, lint: Lint) -> None:
    (project / "pkv.toml").write_text("[tool.pkv]\nfail-on = 'error'")
    assert lint()[2].endswith(
        "tool: is no setting of pkv; settings stand at the top here, [tool.pkv] is for pyproject.toml\n"
    )


def test_files_that_are_no_configuration(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    for content, said in ((b"x = '\xff'", "UTF-8"), (b"", "no [tool.pkv]"), (b"[tool]\npkv = 5", "needs a table")):
        file.write_bytes(content)
        with pytest.raises(InputError, match=said.replace("[", r"\[")):
            read_configuration(file)
    with pytest.raises(InputError, match="is a directory"):
        read_configuration(tmp_path)
