"""Workflow commands of GitHub Actions, which show findings as annotations of the files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from pkv_lint.columns import visible
from pkv_lint.findings import SEVERITIES, Finding, counted
from pkv_lint.linting import Report, all_findings
from pkv_lint.outputs.wording import costs, sentence

KINDS = {"error": "error", "warning": "warning", "info": "notice"}
MOST = 10
"""Annotations of one kind that GitHub takes from one step; it drops the others without a word."""


def lines(reports: Sequence[Report]) -> Iterator[str]:
    """One command for each finding; where there are too many of a kind, the last one counts the others."""
    found = all_findings(reports)
    for severity in SEVERITIES:
        own = [item for item in found if item[1].severity == severity]
        shown = own if len(own) <= MOST else own[: MOST - 1]
        for report, finding in shown:
            yield annotation(report, finding)
        rest = [finding for _, finding in own[len(shown) :]]
        if rest:
            codes = ", ".join(f"{code} ({number})" for code, number in Counter(f.code for f in rest).most_common())
            yield command(severity, f"{counted(len(rest), severity)} more", f"pkv-lint found more: {codes}", {})


def annotation(report: Report, finding: Finding) -> str:
    place = {"file": PurePath(os.path.relpath(finding.file)).as_posix()} if finding.file else {}
    if finding.line:
        place |= {"line": str(finding.line), "col": str(finding.column)}
    message = "\n".join(map(visible, [sentence(finding), *costs(report, finding), *filter(None, [finding.fix])]))
    return command(finding.severity, f"{finding.code} {finding.name}", message, place)


def command(severity: str, title: str, message: str, place: dict[str, str]) -> str:
    properties = ",".join(f"{name}={escaped(value, ':,')}" for name, value in (place | {"title": title}).items())
    return f"::{KINDS[severity]} {properties}::{escaped(message)}"


def escaped(text: str, further: str = "") -> str:
    """The text as a runner reads it: a line end would end the command, these characters the property."""
    for character in f"%\r\n{further}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text
