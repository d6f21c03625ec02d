"""What kind of fault a change is: one name for one cause, the most specific that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from .changes import Change, ChangeKind, Chat, reached
from .patterns import Match, identifiers, timestamps
from .prompt.source import parse_path
from .sessions import Relation
from .turns import Turn

Nature = Literal[
    "timestamp",
    "identifier",
    "volatile",
    "per_user",
    "context",
    "tools_reordered",
    "tool_set",
    "tool_definition",
    "schema_keys",
    "history",
    "window",
    "arguments",
    "call_ids",
    "reasoning",
    "argument",
    "auxiliary",
    "clock",
    "generation_prompt",
    "reasoning_dropped",
    "moved",
    "reasoning_not_replayed",
    "generated",
    "salt",
]
BY_KIND: dict[ChangeKind, Nature] = {
    "tools_reordered": "tools_reordered",
    "tool_set": "tool_set",
    "tool_definition": "tool_definition",
    "schema_keys": "schema_keys",
    "history_edited": "history",
    "history_removed": "history",
    "history_inserted": "history",
    "history_window": "window",
    "arguments": "arguments",
    "call_ids": "call_ids",
    "reasoning": "reasoning",
    "argument": "argument",
}


Search = Callable[[str, int, int], Iterator[Match]]
SEARCHES: dict[Nature, Search] = {"timestamp": timestamps, "identifier": identifiers}


def nature_of(change: Change, relation: Relation, earlier: Turn, turn: Turn) -> Nature:
    if relation == "auxiliary" and change.kind in ("text", "tool_set"):
        return "auxiliary"
    if change.kind != "text":
        return BY_KIND[change.kind]
    if both(change, turn.chat, timestamps):
        return "timestamp"
    if both(change, turn.chat, identifiers):
        return "identifier"
    if relation == "continued" and is_context(change):
        return "context"
    if relation == "other session" and None not in (earlier.line.session_id, turn.line.session_id):
        return "per_user"
    return "volatile"


def both(change: Change, chat: Chat, search: Search) -> bool:
    """Whether both versions of the text look the same way."""
    value = reached(chat, parse_path(change.path))
    if not isinstance(value, str) or change.span is None:
        return False
    start, end = change.span
    old = value[:start] + change.before + value[end:]
    return any(search(value, start, end)) and any(search(old, start, start + len(change.before)))


def located(change: Change, chat: Chat, nature: Nature) -> tuple[int, int] | None:
    """The span to point at: the whole date or identifier that a few characters changed in."""
    value = reached(chat, parse_path(change.path))
    search = SEARCHES.get(nature)
    if change.span is None or search is None or not isinstance(value, str):
        return change.span
    found = list(search(value, *change.span))
    if not found:
        return change.span
    return min(found[0].start, change.span[0]), max(found[-1].end, change.span[1])


def is_context(change: Change) -> bool:
    """At least two whole lines, or some twenty tokens: retrieved notes rather than a value."""
    return any(text.strip("\n").count("\n") >= 1 or len(text.split()) >= 15 for text in (change.before, change.after))
