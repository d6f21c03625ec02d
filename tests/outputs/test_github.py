"""Workflow commands of GitHub Actions."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.outputs.traffic import clocked, report

from pkv_lint.findings import Finding
from pkv_lint.linting import Report
from pkv_lint.outputs import github

COMMAND = re.compile(r"::(error|warning|notice) ((?:[a-z]+=[^,:\r\n]*)(?:,[a-zA-Z]+=[^,:\r\n]*)*)::([^\r\n]*)")


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """What a runner reads: the kind, the properties, the message."""
    found = COMMAND.fullmatch(line)
    assert found, line
    pairs = (pair.split("=", 1) for pair in found[2].split(","))
    return found[1], {name: unescaped(value) for name, value in pairs}, unescaped(found[3])


def unescaped(text: str) -> str:
    return re.sub("%([0-9A-F]{2})", lambda code: chr(int(code[1], 16)), text)


def with_findings(*findings: Finding) -> Report:
    return replace(report(clocked(1)), findings=findings, unusable=())


@pytest.fixture
def finding() -> Finding:
    return report(clocked(1), clocked(2)).findings[0]


def test_an_annotation(finding: Finding) -> None:
    (line,) = github.lines([report(clocked(1), clocked(2))])
    kind, properties, message = parsed(line)
    assert kind == "error"
    assert properties == {
        "file": "traffic.jsonl",
        "line": "2",
        "col": "58",
        "title": "PKV101 timestamp-in-prefix",
    }
    first, *_, last = message.split("\n")
    assert first == f"messages[0].content [12:31] {finding.message}"
    assert last == finding.fix


def test_severities(finding: Finding) -> None:
    findings = [replace(finding, severity=severity) for severity in ("info", "error", "warning")]
    kinds = [parsed(line)[0] for line in github.lines([with_findings(*findings)])]
    assert kinds == ["error", "warning", "notice"]


def test_what_would_end_a_property_or_the_command_is_escaped(finding: Finding) -> None:
    evil = replace(finding, file="a,b:c%d\n.json", message="50%\r\n::error::x", name="x,y:z")
    (line,) = github.lines([with_findings(evil)])
    _, properties, message = parsed(line)
    assert properties["file"] == "a,b:c%d\n.json"
    assert properties["title"] == "PKV101 x,y:z"
    assert "50%␍⏎::error::x\n" in message


def test_a_log_obeys_no_message(finding: Finding) -> None:
    (line,) = github.lines([with_findings(replace(finding, message="\x1b[2J\u202e"))])
    assert "\x1b" not in line and "\u202e" not in line


@pytest.mark.parametrize("number", [1, 9, 10, 11, 25])
def test_ten_of_a_kind(finding: Finding, number: int) -> None:
    errors = [replace(finding, code=f"PKV10{at % 3}", line=at + 1) for at in range(number)]
    commands = [parsed(line) for line in github.lines([with_findings(*errors, replace(finding, severity="warning"))])]
    shown = [command for command in commands if command[0] == "error"]
    assert len(shown) == min(number, 10)
    assert len(commands) == len(shown) + 1
    if number > 10:
        _, properties, message = shown[-1]
        assert properties == {"title": f"{number - 9} errors more"}
        assert message.startswith("pkv-lint found more: PKV10")
        assert sum(map(int, re.findall(r"\((\d+)\)", message))) == number - 9


def test_what_could_not_be_judged_is_among_them(tmp_path: Path) -> None:
    first, _ = github.lines([report(clocked(1), "{not json", clocked(2))])
    _, properties, message = parsed(first)
    assert (properties["line"], properties["title"]) == ("2", "PKV901 invalid-json")
    assert "JSON" in message
