"""Findings as JSON: a stable contract for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pkv_lint.findings import SEVERITIES, Finding
from pkv_lint.linting import Report

VERSION = 1


def document(reports: Sequence[Report], findings: Sequence[Finding]) -> dict[str, Any]:
    """`{"version", "layout", "approximate", "findings": [...], "summary": {...}}`."""
    facts = [report.facts for report in reports]
    return {
        "version": VERSION,
        "layout": facts[0].layout if facts else None,
        "approximate": any(fact.approximate for fact in facts),
        "findings": [as_dict(finding) for finding in findings],
        "summary": {
            "requests": sum(len(fact.replayed) for fact in facts),
            "prompt_tokens": sum(fact.prompt_tokens for fact in facts),
            "cached_tokens": sum(report.cached_tokens for report in reports),
            "tokens_lost": sum(finding.tokens_lost for finding in findings),
            **{severity: sum(f.severity == severity for f in findings) for severity in SEVERITIES},
        },
    }


def as_dict(finding: Finding) -> dict[str, Any]:
    data = asdict(finding)
    data["span"] = list(finding.span) if finding.span else None
    return data


def dumps(reports: Sequence[Report], findings: Sequence[Finding]) -> str:
    return json.dumps(document(reports, findings), ensure_ascii=False, indent=2) + "\n"
