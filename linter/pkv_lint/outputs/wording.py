"""Sentences about findings that several outputs share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pkv_lint.findings import SEVERITIES, Finding, counted
from pkv_lint.linting import Report

APPROXIMATE = "Figures are approximate: no model was named, so the built-in layout and vocabulary stand in (--model)."


def place(finding: Finding) -> str:
    """`file:line:column`, as far as it is known."""
    return ":".join(str(part) for part in (finding.file, finding.line or None, finding.column or None) if part)


def sentence(finding: Finding) -> str:
    """`messages[0].content [122:145] changes in every request`."""
    span = f"[{finding.span[0]}:{finding.span[1]}]" if finding.span else ""
    return " ".join(part for part in (finding.path, span, finding.message) if part)


def one_line(finding: Finding) -> str:
    """`file:line:column: CODE path: message`, for what could not be judged."""
    path = f"{finding.path}: " if finding.path else ""
    return f"{place(finding)}: {finding.code} {path}{finding.message}"


def costs(report: Report, finding: Finding) -> Iterator[str]:
    """What a finding costs, in one or two sentences; none where that is not known."""
    evidence, size = finding.evidence, report.facts.block_size
    about = "about " if report.facts.approximate else ""
    if "hit" in evidence:
        total, token, without = evidence["prompt_tokens"], evidence["token"], evidence["hit_without"]
        longer = ", in a longer prompt" if without > total else ""  # what was dropped is back in it
        yield (
            f"The prefix breaks at {about}token {token:,} of {total:,}, in block {token // size + 1:,} of "
            f"{-(-total // size):,}: {evidence['hit']:,} tokens reused, {without:,} without the break{longer}."
        )
        share = finding.tokens_lost / max(1, report.facts.prompt_tokens)
        yield (
            f"{finding.requests_affected:,} of {len(report.facts.replayed):,} requests, "
            f"{about}{finding.tokens_lost:,} of {report.facts.prompt_tokens:,} prompt tokens ({share:.0%}) recomputed."
        )
    elif "tokens_behind" in evidence:
        yield (
            f"{about.capitalize()}{evidence['tokens_behind']:,} of {evidence['prompt_tokens']:,} prompt tokens stand "
            "behind it and are recomputed whenever it changes."
        )


def counted_by_severity(reports: Sequence[Report]) -> str:
    """`1 error, 0 warnings, 2 info`."""
    found = [finding.severity for report in reports for finding in report.findings]
    return ", ".join(counted(found.count(name), name) for name in SEVERITIES)


def headline(reports: Sequence[Report]) -> str:
    """`5 requests; 192 of 8,131 prompt tokens reused`."""
    requests = counted(sum(len(report.facts.replayed) for report in reports), "request")
    total = sum(report.facts.prompt_tokens for report in reports)
    return f"{requests}; {sum(report.cached_tokens for report in reports):,} of {total:,} prompt tokens reused"
