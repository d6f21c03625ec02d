"""Cache markers taken out, which automatic prefix caching does not read."""

from __future__ import annotations

from collections.abc import Iterator

from pkv_lint.facts import Facts
from pkv_lint.fixes.bodies import Path, in_line
from pkv_lint.fixes.documents import LineEdit
from pkv_lint.fixes.json_edits import without_members
from pkv_lint.probes.fields import markers


def edits(facts: Facts) -> Iterator[LineEdit]:
    for turn in facts.turns:
        line = turn.line
        names: dict[Path, set[str]] = {}
        for steps in markers(line.request, ()):
            names.setdefault(steps[:-1], set()).add(str(steps[-1]))
        for outer, of_object in names.items():
            for edit in without_members(line.text, in_line(line, outer), of_object):
                yield line, edit
