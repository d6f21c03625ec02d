"""Findings as JSON: a stable contract for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from pkv_lint.findings import SEVERITIES, Finding
from pkv_lint.linting import Report, all_findings

VERSION = 1


def document(reports: Sequence[Report]) -> dict[str, Any]:
    """`{"version", "layout", "approximate", "findings": [...], "summary": {...}}`."""
    facts = [report.facts for report in reports]
    findings = [finding for _, finding in all_findings(reports)]
    return {
        "version": VERSION,
        "layout": min((fact.layout for fact in facts), default=None),  # `builtin` where any is
        "approximate": any(fact.approximate for fact in facts),
        "findings": [as_dict(finding) for finding in findings],
        "summary": {
            "requests": sum(len(fact.replayed) for fact in facts),
            "prompt_tokens": sum(fact.prompt_tokens for fact in facts),
            "cached_tokens": sum(report.cached_tokens for report in reports),
            "tokens_lost": sum(finding.tokens_lost for finding in findings),
            **{severity: sum(finding.severity == severity for finding in findings) for severity in SEVERITIES},
        },
    }


def as_dict(finding: Finding) -> dict[str, Any]:
    data = asdict(finding)
    data["span"] = list(finding.span) if finding.span else None
    return data


def lines(reports: Sequence[Report]) -> Iterator[str]:
    """One object."""
    yield json.dumps(document(reports), ensure_ascii=False, indent=2)
