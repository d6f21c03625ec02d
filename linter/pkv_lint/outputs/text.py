"""Findings for a person: what to blame, where, both versions, and the cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from pkv_lint.columns import fitting, terminal_columns, visible, width
from pkv_lint.findings import Finding
from pkv_lint.linting import Report
from pkv_lint.prompt.errors import InputError
from pkv_lint.turns import Turn

COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
MARGIN = 16
"""Columns that numbers, dots and labels take beside shown text."""
IN_FRONT = 30
"""Characters of a source line shown in front of what is blamed."""


def lines(report: Report, findings: Sequence[Finding]) -> Iterator[str]:
    """Every finding, then one line that sums up."""
    for finding in findings:
        yield from one(report, finding)
        yield ""


def one(report: Report, finding: Finding) -> Iterator[str]:
    where = ":".join(str(part) for part in (finding.file, finding.line or None, finding.column or None) if part)
    colour = COLOURS[finding.severity]
    yield (
        f"{click.style(where, bold=True)}  {click.style(f'{finding.code} {finding.severity}', fg=colour, bold=True)}  "
        f"{finding.name}"
    )
    place = finding.path or ""
    if finding.span:
        place += f" [{finding.span[0]}:{finding.span[1]}]"
    yield f"  {visible(f'{place} {finding.message}'.strip())}"
    turn = turn_of(report, finding.request)
    if turn is not None:
        yield from source_lines(turn, finding)
        earlier = turn_of(report, finding.evidence.get("earlier_request"))
        if earlier is not None:
            yield from prompt_lines(earlier, turn, finding)
    yield from cost_lines(report, finding)


def room() -> int:
    """Columns for text that is shown; lines grow no longer than 140."""
    return max(64, min(terminal_columns(112), 140) - MARGIN)


def turn_of(report: Report, index: int | None) -> Turn | None:
    return next((turn for turn in report.facts.turns if turn.index == index), None) if index is not None else None


def source_lines(turn: Turn, finding: Finding) -> Iterator[str]:
    """The line of the file around the blamed characters, with carets under them."""
    if finding.path is None:
        return
    try:
        start = turn.line.locate(finding.path, finding.span[0] if finding.span else None)
        end = (
            turn.line.locate(finding.path, finding.span[1] - 1)
            if finding.span and finding.span[1] > finding.span[0]
            else start
        )
    except (InputError, LookupError, ValueError):
        return
    text = file_line(turn, start.line)
    if text is None:
        return
    first, last = start.column - 1, (end.column if end.line == start.line else len(text))
    last = max(last, first + 1)
    left = max(0, min(first - IN_FRONT, len(text) - room()))
    right = left + fitting(text[left : left + room()], room())
    shown = text[left:right]
    cut = ("... " if left else "", " ..." if right < len(text) else "")
    carets = "^" * max(1, width(text[first : min(last, right)]))
    number = str(start.line)
    gap = " " * (len(cut[0]) + width(text[left:first]))
    yield ""
    yield f"  {number} |  {cut[0]}{visible(shown)}{cut[1]}"
    yield f"  {' ' * len(number)} |  {gap}{click.style(carets, fg=COLOURS[finding.severity], bold=True)}"


def file_line(turn: Turn, number: int) -> str | None:
    """A line of the file as far as it belongs to the request."""
    own = turn.line.text.split("\n")
    index = number - turn.line.line
    if not 0 <= index < len(own):
        return None
    # Columns count from the start of the file's line; a request may begin in the middle of its first one.
    return " " * (turn.line.column - 1) + own[0] if index == 0 else own[index]


def prompt_lines(earlier: Turn, turn: Turn, finding: Finding) -> Iterator[str]:
    """Both prompts around the first character that differs."""
    old, new = earlier.prompt.text, turn.prompt.text
    token = finding.evidence.get("token")
    if old is None or new is None or token is None:
        return
    spans = turn.prompt.token_spans
    start = spans[token][0] if token < len(spans) else len(new)
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    label = len(f"request {max(earlier.index, turn.index) + 1}")
    half = (room() - label) // 2
    for shown, text in ((earlier, old), (turn, new)):
        left = start - fitting(text[max(0, start - half) : start][::-1], half)
        right = start + fitting(text[start : start + half], half)
        head = ("..." if left else "") + visible(text[left:start])
        tail = visible(text[start:right]) + ("..." if right < len(text) else "")
        mark = click.style(tail, fg="green" if shown is earlier else COLOURS[finding.severity])
        yield f"      {f'request {shown.index + 1}':<{label}}  {head}{mark}"


def cost_lines(report: Report, finding: Finding) -> Iterator[str]:
    evidence, size = finding.evidence, report.facts.block_size
    about = "about " if report.facts.approximate else ""
    yield ""
    if "hit" in evidence:
        total, token = evidence["prompt_tokens"], evidence["token"]
        yield (
            f"  The prefix breaks at {about}token {token:,} of {total:,}, in block {token // size + 1:,} of "
            f"{-(-total // size):,}: {evidence['hit']:,} tokens reused, {evidence['hit_without']:,} without the break."
        )
        share = finding.tokens_lost / max(1, report.facts.prompt_tokens)
        yield (
            f"  {finding.requests_affected:,} of {len(report.facts.replayed):,} requests, "
            f"{about}{finding.tokens_lost:,} of {report.facts.prompt_tokens:,} prompt tokens ({share:.0%}) recomputed."
        )
    elif "tokens_behind" in evidence:
        yield (
            f"  {about.capitalize()}{evidence['tokens_behind']:,} of {evidence['prompt_tokens']:,} prompt tokens stand "
            "behind it and are recomputed whenever it changes."
        )
    if finding.fix:
        yield f"  {finding.fix}"


def summary(reports: Sequence[Report], findings: Sequence[Finding]) -> str:
    counts = [counted(sum(f.severity == name for f in findings), name) for name in COLOURS]
    requests = counted(sum(len(report.facts.replayed) for report in reports), "request")
    total = sum(report.facts.prompt_tokens for report in reports)
    cached = sum(report.cached_tokens for report in reports)
    approximate = any(report.facts.approximate for report in reports)
    text = f"{', '.join(counts)} in {requests}; {cached:,} of {total:,} prompt tokens reused"
    if approximate:
        text += (
            "\nFigures are approximate: no model was named, so the built-in layout and vocabulary stand in (--model)."
        )
    return text


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 or noun == "info" else "s")
