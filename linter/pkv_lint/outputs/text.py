"""Findings for a person: what to blame, where, both versions, and the cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click

from pkv_lint.columns import fitting, fitting_end, terminal_columns, visible, width, wrapped
from pkv_lint.findings import Finding, counted, nth
from pkv_lint.linting import Report
from pkv_lint.outputs.excerpts import excerpts
from pkv_lint.outputs.wording import APPROXIMATE, costs, counted_by_severity, headline, place, sentence
from pkv_lint.places import region_of
from pkv_lint.turns import Turn

COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
IN_FRONT = 30
"""Columns of a source line shown in front of what is blamed."""
CUT = "..."
MARK = "[*]"
"""Stands behind findings that may be fixable."""


def lines(reports: Sequence[Report], fix_options: Sequence[Mapping[int, str]] = ()) -> Iterator[str]:
    """Every finding, then what they come to. `fix_options` are, for each report, the options that may fix findings, by
    their places in it."""
    for report, options in zip(reports, fix_options or [{}] * len(reports), strict=True):
        for at, finding in enumerate(report.findings):
            yield from one(report, finding, fixable=at in options)
            yield ""
    if any(report.findings or report.facts.replayed for report in reports):
        yield from wrapped(f"{counted_by_severity(reports)} in {headline(reports)}", columns())
        yield from wrapped(fixable(fix_options), columns())
        if any(report.facts.approximate for report in reports):
            yield from wrapped(APPROXIMATE, columns())


def fixable(fix_options: Sequence[Mapping[int, str]]) -> str:
    """How many findings are marked, and what to do about it."""
    found = [option for options in fix_options for option in options.values()]
    unsafe = found.count("--unsafe-fixes")
    some = f", {unsafe:,} of them only with --unsafe-fixes" if 0 < unsafe < len(found) else ""
    command = "--diff --unsafe-fixes" if unsafe == len(found) else "--diff"
    return f"{MARK} {counted(len(found), 'finding')} may be fixable{some}: {command} shows how." if found else ""


def columns() -> int:
    """How wide lines may grow: as the terminal, but no shorter than 80 and no longer than can be read."""
    return max(80, min(terminal_columns(112), 140))


def one(report: Report, finding: Finding, *, fixable: bool) -> Iterator[str]:
    colour = COLOURS[finding.severity]
    mark = f" {MARK}" if fixable else ""
    yield (
        f"{click.style(visible(place(finding)), bold=True)}  "
        f"{click.style(f'{finding.code} {finding.severity}', fg=colour, bold=True)}  {finding.name}{mark}"
    )
    yield from wrapped(visible(sentence(finding)), columns(), "  ")
    turn = report.turn(finding.request)
    if turn is not None:
        yield from source_lines(turn, finding)
        yield from prompt_lines(report, finding)
    advice = [*costs(report, finding), *filter(None, [finding.fix])]
    if advice:
        yield ""
    for sentences in advice:
        yield from wrapped(sentences, columns(), "  ")


def source_lines(turn: Turn, finding: Finding) -> Iterator[str]:
    """The line of the file around the blamed characters, with carets under them."""
    region = region_of(turn.line, finding.path, finding.span)
    if region is None:
        return
    start, end = region
    text = file_line(turn, start.line)
    if text is None:
        return
    first = start.column - 1
    last = max(end.column - 1 if end.line == start.line else len(text), first + 1)
    number = str(start.line)
    left, right = window(text, first, columns() - len(number) - len(f"   |  {CUT}  {CUT}"))
    head, tail = (f"{CUT} " if left else ""), (f" {CUT}" if right < len(text) else "")
    gap = " " * (len(head) + width(text[left:first]))
    carets = "^" * max(1, width(text[first : min(last, right)]))
    yield ""
    yield f"  {number} |  {head}{visible(text[left:right])}{tail}"
    yield f"  {' ' * len(number)} |  {gap}{click.style(carets, fg=COLOURS[finding.severity], bold=True)}"


def window(text: str, first: int, room: int) -> tuple[int, int]:
    """The part of a line that is shown in so many columns: what is blamed from `first` on, and a little in front."""
    near = max(0, first - IN_FRONT)
    left = near + fitting_end(text[near:first], IN_FRONT)
    right = left + fitting(text[left : left + room], room)
    if right == len(text):
        near = max(0, right - room)
        left = min(left, near + fitting_end(text[near:], room))
    return left, right


def file_line(turn: Turn, number: int) -> str | None:
    """A line of the file as far as it belongs to the request."""
    own = turn.line.text.split("\n")
    index = number - turn.line.line
    if not 0 <= index < len(own):
        return None
    # Columns count from the start of the file's line; a request may begin in the middle of its first one.
    return " " * (turn.line.column - 1) + own[0] if index == 0 else own[index]


def prompt_lines(report: Report, finding: Finding) -> Iterator[str]:
    """Both prompts around the first character that differs."""
    half = (columns() - len(f"        {nth(finding.request or 0)} request{CUT}{CUT}")) // 2
    shown = list(excerpts(report, finding, half))
    labels = [f"{nth(excerpt.turn.index)} request" for excerpt in shown]
    for excerpt, label, colour in zip(shown, labels, ("green", COLOURS[finding.severity]), strict=False):
        head = (CUT if excerpt.cut_in_front else "") + excerpt.head
        mark = click.style(excerpt.tail + (CUT if excerpt.cut_behind else ""), fg=colour)
        yield f"      {label:<{max(map(len, labels))}}  {head}{mark}"
