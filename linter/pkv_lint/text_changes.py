"""Where two versions of one text differ, in spans a person would point at."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

Values = Callable[[str], Iterable[tuple[int, int]]]
"""Finds the spans of a line that are one value each (a date, an identifier): they change as a whole."""

WORD = re.compile(r"\w+|\s+|[^\w\s]")
LABEL = re.compile(r"[\W_]*\w[^:=\n]{0,40}[:\uff1a]|\s*\W?[\w.-]+\s*=|\s*<[\w-]+>")
SENTENCE_END = re.compile(
    r"\n|(?<=[^\s.]{3}[.!?]) (?=[^\s\da-z])|(?<=[\u3002\uff01\uff1f])(?=[^\s\u3002\uff01\uff1f\u300d\u300f\uff09])"
)
"""What parts two sentences: white space, or nothing behind a full stop of Chinese or Japanese. None ends with a short
word, nor in front of a small letter or a digit: `Dr. No`, `approx. 5`."""
LONG = 4000
"""Characters of two lines up to which their words are compared."""
MANY = 5000
"""Lines up to which the lines of two texts are compared."""
REACH = 200
"""Characters of a shared line that are looked at together with what differs in it."""
ALIKE = 0.5
"""Share of equal words, by their length, from which on two lines count as versions of one line."""
NEARLY_EQUAL = 0.75
"""The same where neighbouring lines changed as well: they could be other lines altogether."""
NEAR = 24
"""Characters that may stay the same between words of one line that are one change."""
FEW = 2
"""Changes of words in one line from which on, with more, the line was rewritten."""
GAP = 4, 300
"""Lines and characters that may stay the same between lines that were replaced together (an entry of a list)."""


@dataclass(frozen=True, slots=True)
class TextChange:
    """`before[start:end]` became `after[start:end]`, each as `(start, end)` code points of the whole value. `lines`:
    whole lines were replaced, put in or taken out."""

    before: tuple[int, int]
    after: tuple[int, int]
    lines: bool = False


@dataclass(frozen=True, slots=True)
class Side:
    """Pieces of a text and where each starts; one more start marks the end."""

    pieces: list[str]
    starts: list[int]

    @classmethod
    def of(cls, pieces: list[str], start: int) -> Side:
        starts = [start]
        for piece in pieces:
            starts.append(starts[-1] + len(piece))
        return cls(pieces, starts)

    def cut(self, first: int, end: int) -> Side:
        return Side(self.pieces[first:end], self.starts[first : end + 1])

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def span(self) -> tuple[int, int]:
        return self.starts[0], self.starts[-1]


def text_changes(before: str, after: str, values: Values | None = None) -> list[TextChange]:
    """The changes that turn one text into the other, in order; none touches another.

    Lines are compared first. Of lines that are versions of one line, the words (or values) that differ are the change;
    else all lines of the stretch are.
    """
    head, tail = shared_ends(before, after)
    if head == len(before) == len(after):
        return []
    head, tail = widened(before, after, head, tail)
    old = Side.of(before[head : len(before) - tail].splitlines(keepends=True), head)
    new = Side.of(after[head : len(after) - tail].splitlines(keepends=True), head)
    changes: list[TextChange] = []
    for stretch in differing(old, new) if max(len(old), len(new)) <= MANY else [(old, new)]:
        changes += stretch_changes(*stretch, values or no_values)
    return joined(changes, before, after)


def no_values(line: str) -> Iterable[tuple[int, int]]:
    return ()


def differing(old: Side, new: Side) -> Iterator[tuple[Side, Side]]:
    """The stretches of pieces that are not the same on both sides."""
    for tag, b0, b1, a0, a1 in SequenceMatcher(None, old.pieces, new.pieces).get_opcodes():
        if tag != "equal":
            yield old.cut(b0, b1), new.cut(a0, a1)


def stretch_changes(old: Side, new: Side, values: Values) -> Iterator[TextChange]:
    """Lines that replace others: pairs of versions at both ends, and what is left between them as one change."""
    lone = len(old) == len(new) == 1
    labels = Counter(found[0] for found in map(LABEL.match, old.pieces) if found)

    def named(was: str, now: str) -> bool:
        if was.rstrip("\n") == now.rstrip("\n"):
            return True  # the last line of a text, which only lost or got its line end
        label = LABEL.match(was) if max(len(was), len(now)) <= LONG else None
        # A label that several lines have says nothing about which of them is which.
        return label is not None and labels[label[0]] == 1 and now.startswith(label[0])

    def versions(was: str, now: str) -> bool:
        return max(len(was), len(now)) <= LONG and (named(was, now) or alike(was, now, values, lone))

    head, tail = paired(old, new, versions)
    if head + tail < max(len(old), len(new)):
        # Next to lines that are others altogether, a line that merely resembles one may be another too.
        head, tail = paired(old, new, named)
    for at in range(head):
        yield from word_changes(old.cut(at, at + 1), new.cut(at, at + 1), values)
    rest = old.cut(head, len(old) - tail), new.cut(head, len(new) - tail)
    if any(map(len, rest)):
        yield TextChange(rest[0].span, rest[1].span, lines=True)
    for at in range(tail, 0, -1):
        yield from word_changes(
            old.cut(len(old) - at, len(old) - at + 1), new.cut(len(new) - at, len(new) - at + 1), values
        )


def paired(old: Side, new: Side, versions: Callable[[str, str], bool]) -> tuple[int, int]:
    """How many lines at the start and at the end are versions of each other."""
    most = min(len(old), len(new))
    head = next((at for at in range(most) if not versions(old.pieces[at], new.pieces[at])), most)
    most -= head
    tail = next((at for at in range(most) if not versions(old.pieces[-1 - at], new.pieces[-1 - at])), most)
    return head, tail


def alike(old: str, new: str, values: Values, lone: bool) -> bool:
    """Whether two lines are versions of one line, by how much of them is the same; `lone`: no line near changed too."""
    if old == new:
        return True
    pieces = [list(units_of(line, values)) for line in (old, new)]
    # The same words around other values.
    if [unit for unit, value in pieces[0] if not value] == [unit for unit, value in pieces[1] if not value]:
        return True
    units = [[unit for unit, _ in side if not unit.isspace()] for side in pieces]
    # One word for another ("A" for "B") is a change of words, however short the line.
    if lone and min(map(len, units)) <= 2:
        return True
    equal = sum(
        len(unit)
        for start, _, size in SequenceMatcher(None, units[0], units[1]).get_matching_blocks()
        for unit in units[0][start : start + size]
    )
    return equal * 2 >= sum(map(len, units[0] + units[1])) * (ALIKE if lone else NEARLY_EQUAL)


def units_of(line: str, values: Values) -> Iterator[tuple[str, bool]]:
    """A line in pieces that change as a whole: words, and values (True)."""
    at = 0
    for start, end in values(line):
        if start > at:
            yield from ((word, False) for word in WORD.findall(line[at:start]))
        yield line[max(start, at) : end], True
        at = end
    yield from ((word, False) for word in WORD.findall(line[at:]))


def word_changes(old: Side, new: Side, values: Values) -> list[TextChange]:
    """The words and values that differ between two versions of a line. Words near each other are one change, and so are
    many in one line; values are changes of their own."""
    units = [list(units_of(side.pieces[0], values)) for side in (old, new)]
    was, now = (Side.of([unit for unit, _ in one], side.starts[0]) for one, side in zip(units, (old, new), strict=True))
    whole = [
        {side.starts[at] for at, (_, value) in enumerate(one) if value}
        for one, side in zip(units, (was, now), strict=True)
    ]
    runs: list[list[TextChange]] = []
    words = False
    for gone, came in differing(was, now):
        change = TextChange(gone.span, came.span)
        value = not whole[0].isdisjoint(gone.starts[:-1]) or not whole[1].isdisjoint(came.starts[:-1])
        if words and not value:
            runs[-1].append(change)
        else:
            runs.append([change])
        words = not value
    return [change for run in runs for change in together(run)]


def together(run: Sequence[TextChange]) -> list[TextChange]:
    out = [run[0]]
    for change in run[1:]:
        if len(run) > FEW or change.after[0] - out[-1].after[1] <= NEAR:
            out[-1] = merged(out[-1], change)
        else:
            out.append(change)
    return out


def merged(one: TextChange, other: TextChange) -> TextChange:
    return TextChange((one.before[0], other.before[1]), (one.after[0], other.after[1]), one.lines)


def joined(changes: Sequence[TextChange], before: str, after: str) -> list[TextChange]:
    """Lines that were replaced near each other were replaced together: entries of one list."""
    out: list[TextChange] = []
    for change in changes:
        if out and change.lines and out[-1].lines:
            gaps = before[out[-1].before[1] : change.before[0]], after[out[-1].after[1] : change.after[0]]
            if all(gap.count("\n") <= GAP[0] and len(gap) <= GAP[1] for gap in gaps):
                out[-1] = merged(out[-1], change)
                continue
        out.append(change)
    return out


def shared_ends(before: str, after: str) -> tuple[int, int]:
    """How many characters the texts share in front and behind, moved outwards to the edges of words."""
    most = min(len(before), len(after))
    head = bisect_equal(most, lambda n: before[:n] == after[:n])
    tail = bisect_equal(most - head, lambda n: before[len(before) - n :] == after[len(after) - n :])
    if head < max(len(before), len(after)):
        while head and not before[head - 1].isspace():
            head -= 1
    while tail and not before[len(before) - tail].isspace():
        tail -= 1
    return head, tail


def widened(before: str, after: str, head: int, tail: int) -> tuple[int, int]:
    """Shared ends without the lines that differ in part, so that these are compared as a whole; of very long lines,
    only what is near."""
    start = before.rfind("\n", 0, head) + 1
    if head - start > REACH:
        start = before.find(" ", head - REACH, head) + 1 or head
    end = before.find("\n", len(before) - tail)
    behind = len(before) - tail
    end = len(before) if end < 0 else end + 1
    # Whole lines only: a line break that only one side has belongs to what differs.
    if end - behind > REACH:
        end = before.rfind(" ", behind, behind + REACH) if " " in before[behind : behind + REACH] else behind
    return start, len(before) - end


def bisect_equal(most: int, equal: Callable[[int], bool]) -> int:
    """The largest count up to `most` for which `equal` holds (it holds for all smaller ones)."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if equal(middle):
            low = middle
        else:
            high = middle - 1
    return low
