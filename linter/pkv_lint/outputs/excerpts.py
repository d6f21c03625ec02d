"""Both prompts around the place where they part."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pkv_lint.columns import fitting, fitting_end, visible
from pkv_lint.findings import Finding
from pkv_lint.linting import Report
from pkv_lint.turns import Turn


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A prompt in front of the break and from there on, as a terminal can show it; `cut` where the prompt goes on."""

    turn: Turn
    head: str
    tail: str
    cut_in_front: bool
    cut_behind: bool


def excerpts(report: Report, finding: Finding, room: int) -> Iterator[Excerpt]:
    """The prompt of the request that a finding is held against, then that of its own, `room` columns on each side of
    the break at most. None where it sees no break or what the tokens stand for is not known."""
    turn, earlier = report.turn(finding.request), report.turn(finding.evidence.get("earlier_request"))
    token = finding.evidence.get("token")
    if turn is None or earlier is None or token is None:
        return
    start = break_in(earlier, turn, token)
    for shown in (earlier, turn):
        excerpt = decoded(report, shown, token, room) if start is None else of_text(shown, start, room)
        if excerpt is not None:
            yield excerpt


def break_in(earlier: Turn, turn: Turn, token: int) -> int | None:
    """The first character that differs between two prompts, from the token where the break is on; None where the
    prompts have no text."""
    old, new = earlier.prompt.text, turn.prompt.text
    if old is None or new is None:
        return None
    spans = turn.prompt.token_spans
    start = spans[token][0] if token < len(spans) else len(new)
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    return start


def of_text(turn: Turn, start: int, room: int) -> Excerpt:
    text = turn.prompt.text or ""
    left, right = around(start, text, turn.prompt.token_spans, room)
    return Excerpt(turn, visible(text[left:start]), visible(text[start:right]), left > 0, right < len(text))


def around(break_at: int, text: str, spans: Sequence[tuple[int, int]], room: int) -> tuple[int, int]:
    """Where the whole tokens begin and end that fit into so many columns on each side of the break (a dozen or so)."""
    near = max(0, break_at - room)
    left = near + fitting_end(text[near:break_at], room)
    right = break_at + fitting(text[break_at : break_at + room], room)
    first = bisect_left(spans, left, key=lambda span: span[0])
    last = bisect_right(spans, right, key=lambda span: span[1])
    if first < len(spans) and spans[first][0] < break_at:
        left = spans[first][0]
    if last > 0 and spans[last - 1][1] > break_at:
        right = spans[last - 1][1]
    return left, right


def decoded(report: Report, turn: Turn, token: int, room: int) -> Excerpt | None:
    """Of a prompt that the server makes as ids (gpt-oss, Mistral): what those around the break stand for."""
    first, end = max(0, token - room), min(token + room, len(turn.ids))  # a token is a character or more, mostly
    head, tail = report.facts.decoded(turn.ids[first:token]), report.facts.decoded(turn.ids[token:end])
    if head is None or tail is None:
        return None
    left, right = fitting_end(head, room), fitting(tail, room)
    cut_in_front, cut_behind = first > 0 or left > 0, end < len(turn.ids) or right < len(tail)
    return Excerpt(turn, visible(head[left:]), visible(tail[:right]), cut_in_front, cut_behind)
