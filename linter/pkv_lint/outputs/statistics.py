"""How many findings each rule has, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from pkv_lint.columns import padded
from pkv_lint.findings import SEVERITIES, Finding
from pkv_lint.linting import Report, all_findings
from pkv_lint.outputs.text import COLOURS

HEADINGS = ("findings", "requests", "tokens lost", "code", "severity", "name")


def lines(reports: Sequence[Report]) -> Iterator[str]:
    """A table: what occurs most often first. Severity is the worst that was found."""
    codes: dict[str, list[Finding]] = {}
    for _, finding in all_findings(reports):
        codes.setdefault(finding.code, []).append(finding)
    rows = [row(codes[code]) for code in sorted(codes, key=lambda code: (-len(codes[code]), code))]
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    yield click.style(laid_out(HEADINGS, widths), bold=True)
    for cells in rows:
        yield laid_out(cells, widths, COLOURS[cells[4]])


def row(findings: Sequence[Finding]) -> tuple[str, ...]:
    return (
        f"{len(findings):,}",
        f"{sum(finding.requests_affected for finding in findings):,}",
        f"{sum(finding.tokens_lost for finding in findings):,}",
        findings[0].code,
        min((finding.severity for finding in findings), key=SEVERITIES.index),
        findings[0].name,
    )


def laid_out(cells: Sequence[str], widths: Sequence[int], colour: str | None = None) -> str:
    """Numbers to the right, words to the left."""
    numbers = "  ".join(f"{cell:>{width}}" for cell, width in zip(cells[:3], widths[:3], strict=True))
    code, severity, name = (padded(cell, width) for cell, width in zip(cells[3:], widths[3:], strict=True))
    return f"{numbers}  {code}  {click.style(severity, fg=colour) if colour else severity}  {name}".rstrip()
