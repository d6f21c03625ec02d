"""Schemas of tools with sorted keys and sorted `required`, where one schema is written in several ways."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from pkv_lint.changes import canonical, reached, serialised, unordered
from pkv_lint.facts import Facts
from pkv_lint.fixes.bodies import Path, in_line, name_of_tool, schema_of_tool, tools_of
from pkv_lint.fixes.documents import LineEdit
from pkv_lint.fixes.json_edits import TextEdit, applied, reordered
from pkv_lint.prompt.json_spans import elements, members, span_of
from pkv_lint.prompt.traffic import TrafficLine

DATA = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose value is data rather than a schema."""
BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose value holds schemas by names of the user's own."""


def edits(facts: Facts) -> Iterator[LineEdit]:
    found = [schema for turn in facts.turns for schema in schemas(turn.line)]
    versions: dict[tuple[str, str], set[str]] = {}
    for _, _, same, text in found:
        versions.setdefault(same, set()).add(text)
    for line, steps, same, _ in found:
        span = span_of(line.text, in_line(line, steps)) if len(versions[same]) > 1 else None
        if span is not None:
            old = line.text[slice(*span)]
            with suppress(RecursionError):  # nobody's schema: nested hundreds of levels deep
                new = sorted_schema(old)
                if new != old:
                    yield line, TextEdit(*span, new)


def schemas(line: TrafficLine) -> Iterator[tuple[TrafficLine, Path, tuple[str, str], str]]:
    """The schemas of a request: where they are, what all ways of writing one share, and how it is written."""
    for index, tool in enumerate(tools_of(line)):
        inner = schema_of_tool(tool)
        if inner is not None:
            schema = reached(tool, inner)
            same = name_of_tool(tool), canonical(unordered(schema))
            yield line, ("tools", index, *inner), same, serialised(schema)


def sorted_schema(text: str) -> str:
    """The text of a schema with its keys sorted, at every depth. Names of arguments are keys as well; of equal ones the
    last still counts."""
    return with_sorted_members(text, schemas_by_name=False)


def with_sorted_members(text: str, *, schemas_by_name: bool) -> str:
    found = list(members(text, 0))
    values = [text[member.start : member.end] for member in found]
    new = [
        value if member.key in DATA and not schemas_by_name else sorted_value(member.key, value, schemas_by_name)
        for member, value in zip(found, values, strict=True)
    ]
    inner = applied(text, [TextEdit(member.start, member.end, value) for member, value in zip(found, new, strict=True)])
    spans = [(member.key_at, member.end) for member in members(inner, 0)]
    places = sorted(range(len(found)), key=lambda index: found[index].key)
    return applied(inner, reordered(inner, spans, places))


def sorted_value(key: str, text: str, is_schema: bool) -> str:
    """The value of a keyword (or of a name of the user's own: `is_schema`)."""
    if text.startswith("{"):
        return with_sorted_members(text, schemas_by_name=key in BY_NAME and not is_schema)
    spans = list(elements(text, 0))
    if key == "required" and not is_schema and all(text.startswith('"', start) for start, _ in spans):
        places = sorted(range(len(spans)), key=lambda index: text[slice(*spans[index])])
        return applied(text, reordered(text, spans, places))
    items = [TextEdit(start, end, sorted_value("", text[start:end], False)) for start, end in spans]
    return applied(text, items)
