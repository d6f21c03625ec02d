"""Tools sorted by name, where the same tools come in several orders."""

from __future__ import annotations

from collections.abc import Iterator

from pkv_lint.facts import Facts
from pkv_lint.fixes.bodies import in_line, name_of_tool, tools_of
from pkv_lint.fixes.documents import LineEdit
from pkv_lint.fixes.json_edits import reordered
from pkv_lint.prompt.json_spans import elements, span_of


def edits(facts: Facts) -> Iterator[LineEdit]:
    lines = [(turn.line, [name_of_tool(tool) for tool in tools_of(turn.line)]) for turn in facts.turns]
    orders: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for _, names in lines:
        orders.setdefault(tuple(sorted(names)), set()).add(tuple(names))
    for line, names in lines:
        span = span_of(line.text, in_line(line, ("tools",)))
        if span is not None and len(orders[tuple(sorted(names))]) > 1:
            places = sorted(range(len(names)), key=names.__getitem__)
            for edit in reordered(line.text, list(elements(line.text, span[0])), places):
                yield line, edit
