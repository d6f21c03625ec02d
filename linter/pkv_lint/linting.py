"""From requests to findings."""

from __future__ import annotations

import inspect
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pkv_lint.causes import replay
from pkv_lint.facts import Facts
from pkv_lint.findings import Finding
from pkv_lint.places import position_of
from pkv_lint.prompt.errors import InputError, RenderError
from pkv_lint.prompt.model_config import DEFAULT_BLOCK_SIZE
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.traffic import TrafficLine, read_requests
from pkv_lint.rule_api import Rule
from pkv_lint.turns import Refused, Turn, read_turns

PARTS_OF_A_RULE = ("CODE", "NAME", "SEVERITY", "SOURCE_URL", "__doc__", "check")


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of one traffic, worst first, and what they are about. `unusable` are lines that could not be judged
    (PKV901 and PKV902)."""

    findings: tuple[Finding, ...]
    unusable: tuple[Finding, ...]
    facts: Facts

    def turn(self, index: int | None) -> Turn | None:
        """The request with this index, None where it could not be judged."""
        return next((turn for turn in self.facts.turns if turn.index == index), None)

    @property
    def cached_tokens(self) -> int:
        return sum(item.hit for item in self.facts.replayed)


def all_findings(reports: Iterable[Report]) -> list[tuple[Report, Finding]]:
    """What could not be judged, then the findings, each with its report."""
    given = list(reports)
    unusable = [(report, finding) for report in given for finding in report.unusable]
    return unusable + [(report, finding) for report in given for finding in report.findings]


def load_rules() -> list[Rule]:
    """The rules of all installed packages, by code. Raises InputError for those that cannot be loaded, and when two
    claim one code."""
    rules: dict[str, Rule] = {}
    for entry in entry_points(group="pkv.rules"):
        for rule in rules_of(entry):
            if rules.setdefault(rule.CODE, rule) is not rule:
                raise InputError(f"two installed rules have the code {rule.CODE}")
    return [rules[code] for code in sorted(rules)]


def documentation(rule: Rule) -> str:
    """The page of a rule as Markdown, without its title; the first line sums it up."""
    return inspect.cleandoc(rule.__doc__ or "")


def rules_of(entry: EntryPoint) -> list[Rule]:
    """The rules that one entry point names."""
    try:
        rules = list(entry.load()())
    except Exception as error:  # the code of another package
        raise InputError(f"the rules of the entry point {entry.value} cannot be loaded: {named(error)}") from error
    for rule in rules:
        missing = [name for name in PARTS_OF_A_RULE if not getattr(rule, name, None)]
        if missing:
            raise InputError(f"a rule of the entry point {entry.value} has no {missing[0]}")
    return rules


def named(error: Exception) -> str:
    """One line that names an error of code that is not ours."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def lint_traffic(
    lines: Iterable[TrafficLine | InputError],
    renderer: Renderer,
    *,
    block_size: int = DEFAULT_BLOCK_SIZE,
    rules: Sequence[Rule] | None = None,
    now: datetime | None = None,
) -> Report:
    """Judge the requests of one traffic together, in their order."""
    turns: list[Turn] = []
    refused: list[Finding] = []
    unusable: list[Finding] = []
    for item in read_turns(lines, renderer, now or datetime.now()):
        if isinstance(item, Turn):
            turns.append(item)
        elif isinstance(item, Refused):
            (refused if item.error.from_template else unusable).append(refusal(item.line, item.error))
        else:
            unusable.append(bad_line(item))
    facts = Facts(list(replay(turns, renderer, block_size)), renderer, block_size)
    findings = together(refused)
    for rule in load_rules() if rules is None else rules:
        try:
            findings += rule.check(facts)
        except Exception as error:
            raise InputError(f"the rule {rule.CODE} failed: {named(error)}") from error
    findings.sort(key=lambda finding: finding.order)
    return Report(tuple(findings), tuple(unusable), facts)


def lint(
    requests: Iterable[Mapping[str, Any]],
    *,
    renderer: Renderer | None = None,
    block_size: int = DEFAULT_BLOCK_SIZE,
    name: str = "requests",
) -> list[Finding]:
    """Lint requests from Python: chat bodies, or lines of traffic (`{"request": …, "session_id": …}`), in order.

    `renderer` is `Renderer.load(model=…)`; without one the built-in layout is used and figures are approximate. Returns
    what the command line prints, requests that the server would refuse included.
    """
    report = report_of(requests, renderer or Renderer.load(), block_size=block_size, name=name)
    return [*report.unusable, *report.findings]


def report_of(
    requests: Iterable[Mapping[str, Any]],
    renderer: Renderer,
    *,
    block_size: int,
    rules: Sequence[Rule] | None = None,
    name: str = "requests",
) -> Report:
    """The report on requests from Python; see `lint`."""
    text = "\n".join(json.dumps(request, ensure_ascii=False) for request in requests)
    lines = read_requests(io.BytesIO(text.encode("utf-8", "surrogatepass")), name=name)
    return lint_traffic(lines, renderer, block_size=block_size, rules=rules)


def together(refused: Iterable[Finding]) -> list[Finding]:
    """Requests that a template refuses for the same reason, as one finding at the first of them."""
    reasons: dict[str, list[Finding]] = {}
    for finding in refused:
        reasons.setdefault(finding.message, []).append(finding)
    return [replace(same[0], requests_affected=len(same)) for same in reasons.values()]


def refusal(line: TrafficLine, error: RenderError) -> Finding:
    """The server would not answer this request: PKV903 when its template refuses, PKV902 when its validation does."""
    place = position_of(line, error.path)
    return Finding(
        code="PKV903" if error.from_template else "PKV902",
        name="template-refuses-request" if error.from_template else "invalid-request",
        severity="error",
        message=" ".join(error.message.split()),
        file=line.file,
        line=place.line,
        column=place.column,
        request=line.index,
        path=error.path,
        span=None,
        requests_affected=1,
        tokens_lost=0,
        blame="template" if error.from_template else "input",
        evidence={"status": error.status},
    )


def bad_line(error: InputError) -> Finding:
    return Finding(
        code=error.code or "PKV901",
        name="invalid-request" if error.code == "PKV902" else "invalid-json",
        severity="error",
        message=error.message,
        file=error.file or "",
        line=error.line or 0,
        column=error.column or 0,
        request=None,
        path=error.path,
        span=None,
        requests_affected=1,
        tokens_lost=0,
        blame="input",
    )
