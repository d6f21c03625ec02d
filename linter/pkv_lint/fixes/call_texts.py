"""Arguments and results of calls written as they were when they first came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from pkv_lint.changes import canonical
from pkv_lint.facts import Facts
from pkv_lint.fixes.bodies import in_line, json_texts
from pkv_lint.fixes.documents import LineEdit
from pkv_lint.fixes.json_edits import TextEdit
from pkv_lint.prompt.json_spans import span_of


def edits(facts: Facts) -> Iterator[LineEdit]:
    first: dict[tuple[str, str, str, int], str] = {}
    for turn in facts.turns:
        session, line = facts.session(turn), turn.line
        seen: Counter[tuple[str, str]] = Counter()
        for name, steps, value in json_texts(line):
            with suppress(RecursionError):  # nobody's arguments: nested hundreds of levels deep
                call = name, canonical(value)
                seen[call] += 1
                span = span_of(line.text, in_line(line, steps))
                if span is not None:
                    text = line.text[slice(*span)]
                    known = first.setdefault((session, *call, seen[call]), text)
                    if known != text:
                        yield line, TextEdit(*span, known)
