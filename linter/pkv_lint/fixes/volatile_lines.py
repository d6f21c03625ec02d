"""Lines of the system message that change, moved into the user's messages: each keeps the lines that it first got.

Where a paragraph changes in part, its sentences are such lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise

from pkv_lint.causes import Cause
from pkv_lint.changes import reached, role
from pkv_lint.facts import Facts
from pkv_lint.fixes.bodies import Path, in_line, system_texts, user_texts
from pkv_lint.fixes.documents import LineEdit
from pkv_lint.fixes.families import families
from pkv_lint.fixes.json_edits import TextEdit, without_items
from pkv_lint.groups import HEADING
from pkv_lint.nature import Nature
from pkv_lint.prompt.json_spans import character, elements, span_of
from pkv_lint.prompt.source import parse_path
from pkv_lint.prompt.traffic import TrafficLine
from pkv_lint.text_changes import SENTENCE_END
from pkv_lint.turns import Turn

MOVED: tuple[Nature, ...] = ("timestamp", "identifier", "volatile", "context")
CLOSING = re.compile(r"[ \t]*</\w+>[ \t]*")
LINE_END = re.compile("\n")
LONG = 200
"""Characters from which on a line is a paragraph: where only a part of it changes it is not moved as a whole."""
PARTLY = 0.5
"""Share of a line that stays the same, from which on only a part of it changes."""


@dataclass(frozen=True, slots=True)
class Line:
    """`text[start:end]` of the string at `steps`, a line or a sentence, without the white space that ends it."""

    steps: Path
    start: int
    end: int
    text: str


def edits(facts: Facts) -> Iterator[LineEdit]:
    causes = [cause for nature in MOVED for group in facts.of(nature) for cause in group.causes if in_system(cause)]
    moved: dict[int, list[Line]] = {}
    for family in families((cause.earlier, cause.turn) for cause in causes):
        moved |= {
            turn.index: lines
            for turn, lines in zip(family, movable(family), strict=True)
            if lines and user_texts(turn.line)
        }
    sessions = {facts.session(turn) for turn in facts.turns if turn.index in moved}
    kept: dict[tuple[str, str, int], str] = {}
    for turn in facts.turns:
        session, line, lines = facts.session(turn), turn.line, moved.get(turn.index, [])
        if session not in sessions:
            continue
        for edit in without_lines(line, lines):
            yield line, edit
        count: Counter[str] = Counter()
        said = user_texts(line)
        for place, (steps, text) in enumerate(said):
            count[text] += 1
            key = session, text, count[text]
            if place == len(said) - 1 and lines:
                kept.setdefault(key, "".join(f"{written(line, one)}\\n" for one in lines))
            if key in kept:
                at = start_of(line, steps)
                yield line, TextEdit(at, at, kept[key])


def in_system(cause: Cause) -> bool:
    steps = parse_path(cause.change.path)
    return cause.change.kind == "text" and role(reached(cause.turn.chat, steps[:2])) in ("system", "developer")


def movable(family: Sequence[Turn]) -> list[list[Line]]:
    """What is moved from each request: whole lines, or sentences where that is not possible."""
    by_line = changing([lines_of(turn.line, LINE_END) for turn in family])
    return by_line if any(by_line) else changing([lines_of(turn.line, SENTENCE_END) for turn in family])


def lines_of(line: TrafficLine, end: re.Pattern[str]) -> list[Line]:
    """The lines of the texts in front of the conversation."""
    found = []
    for steps, text in system_texts(line):
        edges = [0, *(edge for match in end.finditer(text) for edge in match.span()), len(text)]
        found += [
            Line(steps, start, stop, text[start:stop]) for start, stop in zip(edges[::2], edges[1::2], strict=True)
        ]
    return found


def changing(versions: Sequence[Sequence[Line]]) -> list[list[Line]]:
    """The lines of each version that not all have, with the headings of which nothing else is left. None at all where
    nothing would stay, or where a paragraph changes in part."""
    counts = [Counter(line.text for line in lines if line.text.strip()) for lines in versions]
    common = counts[0].copy()
    for other in counts[1:]:
        common &= other
    found = [with_headings(lines, changed(lines, common)) for lines in versions]
    if not common or any(map(changes_in_part, found, found[1:])):
        return [[] for _ in versions]
    return found


def changed(lines: Sequence[Line], common: Mapping[str, int]) -> list[bool]:
    """For each line whether it is none of the common ones."""
    left = Counter(common)
    marks = []
    for line in lines:
        marks.append(bool(line.text.strip()) and left[line.text] <= 0)
        left[line.text] -= 1
    return marks


def with_headings(lines: Sequence[Line], marks: list[bool]) -> list[Line]:
    """The marked lines. A heading goes with the lines below it, up to an empty one, and so does the tag that closes
    them, where all of these are marked."""
    at = 0
    while at < len(lines):
        end = next((index for index in range(at, len(lines)) if not lines[index].text.strip()), len(lines))
        last = end - 1 if end > at and CLOSING.fullmatch(lines[end - 1].text) else end
        first = next((index for index in range(at, last) if marks[index]), last)
        if at < first < last and all(marks[first:last]) and HEADING.fullmatch(lines[first - 1].text):
            marks[first - 1 : end] = [True] * (end - first + 1)
        at = end + 1
    return [line for line, marked in zip(lines, marks, strict=True) if marked]


def changes_in_part(before: Sequence[Line], after: Sequence[Line]) -> bool:
    long = [line.text for line in after if len(line.text) > LONG]
    old = {line.text for line in before}.difference(long)
    return any(
        SequenceMatcher(None, parts(was), parts(now), autojunk=False).ratio() > PARTLY
        for now in long
        for was in old
        for parts in (str.split, SENTENCE_END.split)  # words, and what there is where no space parts them
    )


def without_lines(line: TrafficLine, lines: Sequence[Line]) -> Iterator[TextEdit]:
    """Take lines out of their texts, and texts of which nothing is left out of their list."""
    empty: dict[Path, set[int]] = {}
    for steps, text in system_texts(line):
        runs = joined([one for one in lines if one.steps == steps])
        left = "".join(text[end:start] for (_, end), (start, _) in pairwise([(0, 0), *runs, (len(text), len(text))]))
        number = max((at for at, step in enumerate(steps) if isinstance(step, int)), default=None)
        if runs and not left.strip() and number is not None:
            empty.setdefault(steps[:number], set()).add(int(steps[number]))
            continue
        for run in runs:
            yield TextEdit(*raw(line, steps, *with_end(text, *run)), "")
    for steps, gone in empty.items():
        span = span_of(line.text, in_line(line, steps))
        assert span is not None, "the list is in the request"
        yield from without_items(list(elements(line.text, span[0])), gone)


def with_end(text: str, start: int, end: int) -> tuple[int, int]:
    """What is cut out with some lines: the white space that ends them; of those at the end of a text, and of the last
    sentences of a line, what is in front."""
    is_last = end == len(text) or (text[end] == "\n" and start > 0 and text[start - 1] != "\n")
    return (start - text[start - 1 : start].isspace(), end) if is_last else (start, end + text[end].isspace())


def joined(lines: Sequence[Line]) -> list[tuple[int, int]]:
    """The spans of runs of lines."""
    runs: list[tuple[int, int]] = []
    for line in lines:
        if runs and line.start - runs[-1][1] <= 1:
            runs[-1] = runs[-1][0], line.end
        else:
            runs.append((line.start, line.end))
    return runs


def raw(line: TrafficLine, steps: Path, start: int, end: int) -> tuple[int, int]:
    """Where the code points `[start, end)` of a string are written."""
    at = start_of(line, steps) - 1
    return character(line.text, at, start), character(line.text, at, end)


def start_of(line: TrafficLine, steps: Path) -> int:
    """Where the first character of a string is written."""
    span = span_of(line.text, in_line(line, steps))
    assert span is not None, "the string is in the request"
    return span[0] + 1


def written(line: TrafficLine, one: Line) -> str:
    """A line as it is written in the request."""
    return line.text[slice(*raw(line, one.steps, one.start, one.end))]
