"""The tools of a conversation pinned: every request offers all that any of them does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pkv_lint.facts import Facts
from pkv_lint.fixes.bodies import Path, api, in_line, name_of_tool, tools_of
from pkv_lint.fixes.documents import LineEdit
from pkv_lint.fixes.families import families
from pkv_lint.fixes.json_edits import TextEdit, listed_again, with_member
from pkv_lint.prompt.json_spans import elements, span_of
from pkv_lint.prompt.traffic import TrafficLine


def edits(facts: Facts) -> Iterator[LineEdit]:
    changed = {cause.turn.index for group in facts.of("tool_set") for cause in group.causes}
    steps = [(item.reference, item.turn) for item in facts.replayed if item.reference is not None]
    together = families((one.turn, turn) for one, turn in steps if one.relation in ("continued", "auxiliary"))
    for family in together:
        lines = [turn.line for turn in family]
        if any(turn.index in changed for turn in family) and all(map(has_distinct_names, lines)):
            union: dict[str, str] = {}
            for line in lines:
                union |= {name: text for name, text in written_tools(line).items() if name not in union}
            for line in lines:
                for edit in pinned(line, union, hidden=facts.tools_hidden_by_choice):
                    yield line, edit


def has_distinct_names(line: TrafficLine) -> bool:
    return len(written_tools(line)) == len(tools_of(line))


def written_tools(line: TrafficLine) -> dict[str, str]:
    """The text of each tool, by name."""
    span = span_of(line.text, in_line(line, ("tools",)))
    spans = elements(line.text, span[0]) if span is not None else ()
    return {name_of_tool(tool): line.text[slice(*at)] for tool, at in zip(tools_of(line), spans, strict=True)}


def pinned(line: TrafficLine, union: Mapping[str, str], *, hidden: bool) -> Iterator[TextEdit]:
    """All these tools, in this order, with the request's own text where it has one. A request that offered none is told
    to call none, unless the server then hides them (`hidden`)."""
    own = written_tools(line)
    if [*own] == [*union]:
        return
    wanted = [own.get(name, text) for name, text in union.items()]
    place: Path = in_line(line, ("tools",))
    span = span_of(line.text, place)
    if span is not None:
        yield TextEdit(*span, listed_again(line.text, span, wanted))
    else:
        yield from with_member(line.text, place[:-1], '"tools"', f"[{', '.join(wanted)}]")
    if not own and not hidden and line.request is not None and "tool_choice" not in line.request:
        none = '{"type": "none"}' if api(line) == "messages" else '"none"'
        yield from with_member(line.text, place[:-1], '"tool_choice"', none)
