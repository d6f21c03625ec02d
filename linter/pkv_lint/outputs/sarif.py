"""Findings in the Static Analysis Results Interchange Format 2.1.0, which code scanning services read."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pkv_lint.changes import reached
from pkv_lint.findings import Finding, nth
from pkv_lint.linting import Report, all_findings, documentation, load_rules
from pkv_lint.outputs.wording import costs, sentence
from pkv_lint.places import region_of
from pkv_lint.prompt.source import Position, parse_path
from pkv_lint.rule_api import Rule
from pkv_lint.turns import Turn

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {"error": "error", "warning": "warning", "info": "note"}
ROOT = "%SRCROOT%"
"""What paths are relative to; services take it for the root of the repository."""
FINGERPRINT = "pkvFinding/v1"
LABEL = 40
"""Characters in front of what is blamed that tell it apart."""


def lines(reports: Sequence[Report]) -> Iterator[str]:
    """One log with one run."""
    yield json.dumps(document(reports), ensure_ascii=False, indent=2)


def document(reports: Sequence[Report]) -> dict[str, Any]:
    found = all_findings(reports)
    used = {finding.code for _, finding in found}
    rules = [rule for rule in load_rules() if rule.CODE in used]
    places = {rule.CODE: index for index, rule in enumerate(rules)}
    seen: Counter[str] = Counter()
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "pkv-lint",
                        "version": version("pkv-lint"),
                        "rules": [descriptor(rule) for rule in rules],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {ROOT: {"description": {"text": "The folder that pkv-lint was run in."}}},
                "results": [result(report, finding, places, seen) for report, finding in found],
            }
        ],
    }


def descriptor(rule: Rule) -> dict[str, Any]:
    page = documentation(rule)
    lead = page.partition("\n")[0]
    return {
        "id": rule.CODE,
        "name": rule.NAME,
        "shortDescription": {"text": lead},
        "fullDescription": {"text": " ".join(page.partition("## What it does")[2].partition("## ")[0].split()) or lead},
        "help": {"text": page, "markdown": f"# {rule.CODE} {rule.NAME}\n\n{page}"},
        "helpUri": rule.SOURCE_URL,
        "defaultConfiguration": {"level": LEVELS[rule.SEVERITY]},
    }


def result(report: Report, finding: Finding, places: dict[str, int], seen: Counter[str]) -> dict[str, Any]:
    turn, earlier = report.turn(finding.request), report.turn(finding.evidence.get("earlier_request"))
    region = region_of(turn.line, finding.path, finding.span) if turn else None
    message = ". ".join([sentence(finding).rstrip("."), *costs(report, finding), finding.fix]).replace(".. ", ". ")
    value: dict[str, Any] = {
        "ruleId": finding.code,
        "level": LEVELS[finding.severity],
        "message": {"text": message.rstrip(" ")},
        "locations": [location(finding.file, finding.line, finding.column, region, finding.path)],
        "partialFingerprints": {FINGERPRINT: fingerprint(finding, turn, seen)},
        "properties": {
            "request": finding.request,
            "requestsAffected": finding.requests_affected,
            "tokensLost": finding.tokens_lost,
            "blame": finding.blame,
        },
    }
    if finding.code in places:
        value["ruleIndex"] = places[finding.code]
    if earlier is not None:
        start = region_of(earlier.line, finding.path, None)
        line, column = (start[0].line, start[0].column) if start else (earlier.line.line, earlier.line.column)
        text = f"The {nth(earlier.index)} request, which this one is held against."
        value["relatedLocations"] = [
            location(earlier.line.file, line, column, None, None) | {"id": 0, "message": {"text": text}}
        ]
    return value


def location(
    file: str, line: int, column: int, region: tuple[Position, Position] | None, path: str | None
) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": artifact(file)}
    if line:
        physical["region"] = {"startLine": line} | ({"startColumn": column} if column else {})
        if region is not None and region[0] < region[1]:
            physical["region"] |= {"endLine": region[1].line, "endColumn": region[1].column}
    value: dict[str, Any] = {"physicalLocation": physical}
    if path is not None:
        value["logicalLocations"] = [{"fullyQualifiedName": path, "kind": "member"}]
    return value


def artifact(file: str) -> dict[str, str]:
    """Relative where the file is below the working directory."""
    relative = os.path.relpath(file)
    if relative.startswith(os.pardir):
        return {"uri": Path(file).absolute().as_uri()}
    return {"uri": quote(os.fsencode(Path(relative).as_posix())), "uriBaseId": ROOT}


def fingerprint(finding: Finding, turn: Turn | None, seen: Counter[str]) -> str:
    """The same for the same fault after edits elsewhere: made of the rule, the file, the field and the words in front
    of what is blamed, but not of lines, numbers of requests or what the text was this time. Equal ones are counted."""
    field = re.sub(r"\[\d+\]", "[]", finding.path or "")
    parts = [finding.code, Path(os.path.relpath(finding.file)).as_posix(), field, label(finding, turn)]
    own = "\n".join(parts)
    seen[own] += 1
    return hashlib.sha256(f"{own}\n{seen[own]}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def label(finding: Finding, turn: Turn | None) -> str:
    """What stands in front of a blamed span in its line, without digits."""
    if turn is None or turn.line.request is None or finding.path is None or finding.span is None:
        return ""
    text = reached(turn.line.request, parse_path(finding.path))
    if not isinstance(text, str):
        return ""
    return re.sub(r"\d", "", text[: finding.span[0]].rpartition("\n")[2])[-LABEL:]
