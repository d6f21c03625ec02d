"""Where two versions of one text differ, in spans a person would point at."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import SequenceMatcher

WORD = re.compile(r"\w+|\s+|[^\w\s]")
LONG = 4000
"""Characters of two lines up to which their words are compared."""
ALIKE = 0.5
"""Share of equal words from which on two lines count as versions of one line."""


@dataclass(frozen=True, slots=True)
class TextChange:
    """`before[start:end]` became `after[start:end]`, each as `(start, end)` code points of the whole value."""

    before: tuple[int, int]
    after: tuple[int, int]


def text_changes(before: str, after: str) -> list[TextChange]:
    """The changes that turn one text into the other, in order; none touches another.

    Lines are compared first. Where as many lines replace as many that resemble them, the words that differ are the
    change, else all the lines of the stretch are.
    """
    head, tail = shared_ends(before, after)
    if head == len(before) == len(after):
        return []
    sides = before[head : len(before) - tail], after[head : len(after) - tail]
    lines = [side.splitlines(keepends=True) for side in sides]
    starts = [offsets(side) for side in lines]
    changes: list[TextChange] = []
    for tag, b0, b1, a0, a1 in SequenceMatcher(None, lines[0], lines[1], autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        pairs = list(zip(lines[0][b0:b1], lines[1][a0:a1], strict=False))
        if b1 - b0 == a1 - a0 and all(alike(old, new) for old, new in pairs):
            for index, (old, new) in enumerate(pairs):
                here = head + starts[0][b0 + index], head + starts[1][a0 + index]
                changes += [shifted(change, *here) for change in word_changes(old, new)]
        else:
            stretch = TextChange((starts[0][b0], starts[0][b1]), (starts[1][a0], starts[1][a1]))
            changes.append(shifted(stretch, head, head))
    return joined(changes, after)


def alike(old: str, new: str) -> bool:
    if old == new:
        return True
    if max(len(old), len(new)) > LONG:
        return False
    words = WORD.findall(old), WORD.findall(new)
    # One word for another ("A" for "B") is a change of words, however short the line.
    return min(map(len, words)) <= 3 or SequenceMatcher(None, words[0], words[1], autojunk=False).ratio() >= ALIKE


def word_changes(old: str, new: str) -> list[TextChange]:
    words = WORD.findall(old), WORD.findall(new)
    starts = [offsets(side) for side in words]
    return [
        TextChange((starts[0][b0], starts[0][b1]), (starts[1][a0], starts[1][a1]))
        for tag, b0, b1, a0, a1 in SequenceMatcher(None, words[0], words[1], autojunk=False).get_opcodes()
        if tag != "equal"
    ]


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


def offsets(pieces: list[str]) -> list[int]:
    at = [0]
    for piece in pieces:
        at.append(at[-1] + len(piece))
    return at


def shifted(change: TextChange, before: int, after: int) -> TextChange:
    return TextChange(
        (change.before[0] + before, change.before[1] + before), (change.after[0] + after, change.after[1] + after)
    )


def joined(changes: list[TextChange], after: str) -> list[TextChange]:
    """Changes with nothing but a separator between them are one (the three numbers of a clock time)."""
    out: list[TextChange] = []
    for change in changes:
        if out:
            last = out[-1]
            gap = after[last.after[1] : change.after[0]]
            if len(gap) <= 3 and not any(character.isalnum() or character == "\n" for character in gap):
                out[-1] = TextChange((last.before[0], change.before[1]), (last.after[0], change.after[1]))
                continue
        out.append(change)
    return out
