"""What kind of fault a change is: one name for one cause, the most specific that fits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from pkv_lint.changes import Change, ChangeKind, Chat, reached, role
from pkv_lint.patterns import Match, identifiers, timestamps
from pkv_lint.prompt.source import parse_path
from pkv_lint.sessions import Relation
from pkv_lint.timestamps import find_timestamps
from pkv_lint.turns import Turn

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
    "reminder",
    "compaction",
    "pruned",
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
    "reminder": "reminder",
    "history_compacted": "compaction",
    "history_pruned": "pruned",
    "history_window": "window",
    "head": "auxiliary",
    "arguments": "arguments",
    "call_ids": "call_ids",
    "reasoning": "reasoning",
    "argument": "argument",
}


Search = Callable[[str, int, int], Iterator[Match]]
SEARCHES: dict[Nature, Search] = {"timestamp": timestamps, "identifier": identifiers}
READ_FOR_VALUES: frozenset[ChangeKind] = frozenset({"text", "tool_definition", "argument", "history_edited"})
"""Changes of text that may be one of a date or an identifier."""
LONGEST = 400
"""Characters of a change that may be nothing but dates or identifiers."""
CONTEXT_TOKENS = 20
"""Tokens of replaced text from which on it is retrieved context rather than a value."""
WIDE = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Scripts written without spaces, where a character is about a token."""


def nature_of(change: Change, relation: Relation, earlier: Turn, turn: Turn) -> Nature:
    """What a change between a request and an earlier one is; the most specific that fits."""
    if change.kind in READ_FOR_VALUES and not said_by_model(change, turn.chat):
        for nature in SEARCHES:
            if only_values(change, turn.chat, nature):
                return nature
    if change.kind == "argument":
        return "context" if relation == "continued" and is_context(change) else "argument"
    if change.kind != "text":
        return BY_KIND[change.kind]
    if relation == "continued" and is_context(change):
        return "context"
    if relation == "other session" and None not in (earlier.line.session_id, turn.line.session_id):
        return "per_user"
    return "volatile"


def said_by_model(change: Change, chat: Chat) -> bool:
    """Whether the text is one of the conversation that only a rewritten history changes: a reply or a tool's result."""
    steps = parse_path(change.path)
    return change.kind == "history_edited" and role(reached(chat, steps[:2])) not in ("user", "system", "developer")


def only_values(change: Change, chat: Chat, nature: Nature) -> bool:
    """Whether nothing but dates (or identifiers) differs between the two versions of the text."""
    value = reached(chat, parse_path(change.path))
    if not isinstance(value, str) or change.span is None or max(map(len, (change.before, change.after))) > LONGEST:
        return False
    start, end = change.span
    search = SEARCHES[nature]
    old = value[:start] + change.before + value[end:]
    sides = (old, start, start + len(change.before)), (value, start, end)
    found = [list(search(*side)) for side in sides]
    if not all(found):
        return nature == "identifier" and any(found) and one_word_each(change)
    if frame(*sides[0], found[0]) != frame(*sides[1], found[1]):
        return False
    pairs = [
        (old[one.start : one.end], value[other.start : other.end], old[max(0, one.start - 40) : one.start])
        for one, other in zip(*found, strict=True)
    ]
    return nature == "identifier" or all(ticks(*pair) for pair in pairs)


def frame(text: str, start: int, end: int, values: Sequence[Match]) -> list[str]:
    """The text of a change without the values in it."""
    at = min(start, values[0].start)
    pieces = []
    for value in values:
        pieces.append(text[at : value.start])
        at = value.end
    return [*pieces, text[at:end]]


def one_word_each(change: Change) -> bool:
    """One word for another: a short hash may happen to look like a number or a word."""
    return all(re.fullmatch(r"\s*(?=\S*[^\W\d_])\S{3,}\s*", text) is not None for text in (change.before, change.after))


def ticks(before: str, after: str, ahead: str) -> bool:
    """Whether two dates or times can be readings of one clock: later goes on from earlier. A birthday does not."""
    one, other = (find_timestamps(text, 0, len(text)) for text in (before, after))
    if before == after or not one or not other or one[0].order is None or other[0].order is None:
        return True
    step = other[0].order - one[0].order
    if one[0].epoch is not None or other[0].epoch is not None:
        # Ten digits may be any number: either they are called a time, or they move as a clock does.
        return CALLED_TIME.search(ahead) is not None or 0 <= step <= 7 * DAY
    if "day" in (one[0].granularity, other[0].granularity):
        return 0 <= step <= 400 * DAY
    return step >= -DAY


DAY = 86_400
CALLED_TIME = re.compile(
    r"time|zeit|now|epoch|unix|stamp|date|clock|(?<![a-z])ts(?![a-z])|utc|heure|hora|tijd|[a-z]_at|время|时间|時刻|시간|الوقت",
    re.I,
)


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
    return any(
        text.strip("\n").count("\n") >= 1 or about_tokens(text) >= CONTEXT_TOKENS
        for text in (change.before, change.after)
    )


def about_tokens(text: str) -> int:
    """A guess at how many tokens a text has."""
    wide = len(WIDE.findall(text))
    return wide + max(len(text.split()) * 4 // 3, (len(text) - wide) // 6)
