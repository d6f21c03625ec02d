"""The pages of the rules are generated from what the rules say about themselves, in one form."""

from __future__ import annotations

import inspect
import io
import json
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from pkv_lint import probes, rule_api
from pkv_lint.changes import Change
from pkv_lint.cli import main
from pkv_lint.findings import SEVERITIES
from pkv_lint.linting import lint_traffic
from pkv_lint.nature import Nature
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.traffic import read_requests
from pkv_rules import all_rules

ROOT = Path(__file__).parent.parent
HEADINGS = ["What it does", "Why it matters", "Example", "Use instead", "Fix safety"]
RULES = {rule.CODE: rule for rule in all_rules()}

each = pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))


def sections(rule: ModuleType) -> dict[str, str]:
    parts = re.split(r"^## (.*)$", inspect.cleandoc(rule.__doc__ or ""), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_pages_are_up_to_date() -> None:
    script = ROOT / "scripts" / "build_rule_docs.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@each
def test_the_constants(rule: ModuleType) -> None:
    assert re.fullmatch(r"PKV\d{3}", rule.CODE) and rule.__name__ == f"pkv_rules.{rule.CODE.lower()}"
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", rule.NAME)
    assert rule.SEVERITY in SEVERITIES
    assert re.fullmatch(r"https://\S+\.\S+", rule.SOURCE_URL)


def test_codes_and_names_are_told_apart() -> None:
    assert len({rule.NAME for rule in RULES.values()}) == len(RULES)


@each
def test_the_docstring_has_a_summary_and_five_sections(rule: ModuleType) -> None:
    text = inspect.cleandoc(rule.__doc__ or "")
    summary, blank, *_ = text.split("\n")
    assert summary.endswith(".") and len(summary) < 100 and blank == ""
    assert list(sections(rule)) == HEADINGS
    assert all(section.strip() for section in sections(rule).values())


@each
def test_the_example_is_well_formed(rule: ModuleType) -> None:
    lines = [line for line in sections(rule)["Example"].splitlines() if line.startswith("    ")]
    assert lines, "an example stands in a block of its own"
    checked = [*lines, *(line for line in sections(rule)["Use instead"].splitlines() if line.startswith("    "))]
    if rule.CODE == "PKV901":
        checked.remove(lines[0])  # an example of what is not JSON
    for line in checked:
        fragment = re.sub(r"\s{2,}\(.*\)$", "", line.strip()).rstrip(",")
        if not fragment.startswith(('"', "{")) or fragment.startswith(("{{", "{%")):
            continue
        text = fragment if fragment.startswith("{") else f"{{{fragment}}}"
        json.loads(re.sub(r"(?:, )?\.\.\.(?=[\]}])|, \.\.\.(?=, )", "", text))


@each
def test_explain_prints_the_page(rule: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--explain", rule.CODE]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{rule.CODE} {rule.NAME} ({rule.SEVERITY})\n")
    assert all(f"\n{heading}\n" in printed for heading in HEADINGS) and rule.SOURCE_URL in printed


def test_every_rule_is_listed_and_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list-rules"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == sorted(RULES)
    file = tmp_path / "request.json"
    file.write_text('{"messages": [{"role": "user", "content": "Hi"}]}', encoding="utf-8")
    for code in RULES:
        assert main([str(file), "--select", code, "--ignore", code, "--format", "json"]) == 0


def test_what_cannot_be_judged_is_ignored_by_name_only(tmp_path: Path) -> None:
    file = tmp_path / "traffic.jsonl"
    file.write_text('{"messages": [{"role": "user", "content": "Hi"}]}\n{\n{"messages": []}\n', encoding="utf-8")
    assert main([str(file), "--select", "PKV1"]) == 2
    assert main([str(file), "--ignore", "PKV901"]) == 2
    assert main([str(file), "--ignore", "PKV901,PKV902"]) == 0


GUIDE = (ROOT / "docs" / "writing-rules.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"[A-Za-z_]+", " ".join(re.findall(r"`([^`\n]+)`", GUIDE))))
DESCRIBED: list[type] = [
    rule_api.Facts,
    rule_api.Replayed,
    rule_api.Turn,
    rule_api.Group,
    rule_api.Cause,
    Change,
    rule_api.Pattern,
    rule_api.Repeated,
    probes.Probes,
    probes.Clock,
    probes.Broken,
    probes.Unprinted,
    probes.Escaped,
    probes.Spotted,
]


def public(described: type) -> set[str]:
    names = {name for name in vars(described) if not name.startswith("_")}
    return names | {field.name for field in fields(described)} if is_dataclass(described) else names


@pytest.mark.parametrize("described", DESCRIBED, ids=lambda described: described.__name__)
def test_the_guide_names_all_that_a_rule_sees(described: type) -> None:
    assert public(described) - NAMED == set()


def test_the_guide_names_all_of_the_api_and_every_nature() -> None:
    assert set(rule_api.__all__) - NAMED == set()
    assert set(get_args(Nature)) - NAMED == set()
    assert vars(rule_api.Facts([], Renderer.load(), 16)).keys() - NAMED <= {"_renderer"}


def test_the_rule_of_the_guide_works() -> None:
    (source,) = re.findall(r"```python\n(.*?)```", GUIDE, re.S)
    rule = ModuleType("house002")
    sys.modules["house002"] = rule
    try:
        exec(compile(source, "house002", "exec"), rule.__dict__)
        body = {"messages": [{"role": "user", "content": "word " * 9000}]}
        lines = read_requests(io.BytesIO(json.dumps(body).encode()), name="traffic.jsonl")
        (finding,) = lint_traffic(lines, Renderer.load(), rules=[rule]).findings  # type: ignore[list-item]
    finally:
        del sys.modules["house002"]
    assert (finding.code, finding.severity, finding.path) == ("HOUSE002", "info", "messages")
    assert list(sections(rule)) == HEADINGS
