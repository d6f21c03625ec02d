"""Causes put together: one group for one fault, in however many requests it shows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pkv_lint.causes import Cause, Replayed
from pkv_lint.changes import reached, serialised, tool_name
from pkv_lint.nature import Nature, located
from pkv_lint.prompt.source import parse_path

FIRST_WORD = re.compile(r"[^\W\d_]+(?:[-_.][^\W\d_]+)*(?=\W|$)")
HEADING = re.compile(r"[ \t]*(?:#.*|<\w[^>]*>|\*\*.*|.*[:\uff1a])[ \t*]*")
NEAR = 12
"""Lines above replaced lines in which their heading is looked for."""
OF_TEXT: tuple[Nature, ...] = ("timestamp", "identifier", "context", "per_user", "volatile")
"""What a change of text can be, the most specific first."""
BY_PATH: frozenset[Nature] = frozenset({"context", "per_user"})
"""Natures that are one fault per message, however many of its lines they show in."""
SET_BEHIND = 128
"""Tokens that must be shared behind the tools of different sessions: less is the template's own text."""

CountTokens = Callable[[str], int]
Spot = tuple[str, str, str]
"""The kind of a cause, the field, and for text what stands in front of it."""


@dataclass(frozen=True, slots=True)
class Group:
    """The same cause in one or more requests, in their order."""

    nature: Nature
    causes: tuple[Cause, ...]

    @property
    def first(self) -> Cause:
        return self.causes[0]

    @property
    def requests(self) -> list[int]:
        return sorted({cause.turn.index for cause in self.causes})

    @property
    def within_conversation(self) -> list[int]:
        """The requests whose own conversation had the other version."""
        return sorted({cause.turn.index for cause in self.causes if is_inside(cause)})

    @property
    def consecutive(self) -> bool:
        """Whether it shows in a request and in the one that this goes on from."""
        requests = {cause.turn.index for cause in self.causes}
        return any(cause.earlier.index in requests for cause in self.causes)

    @property
    def tokens_lost(self) -> int:
        return sum(cause.tokens_lost for cause in self.causes)

    @property
    def names(self) -> list[str]:
        """The tools concerned, each once, in the order they were seen."""
        return list(dict.fromkeys(name for cause in self.causes for name in cause.change.names))


def grouped(replayed: Sequence[Replayed], block_size: int, count: CountTokens) -> Mapping[Nature, list[Group]]:
    """All causes that something could be done about, by what they are; those at the same spot together."""
    spots: dict[tuple[str, str, str], list[Cause]] = {}
    for item in replayed:
        for cause in item.causes:
            if gains(item, cause, block_size, count):
                spots.setdefault(spot(cause), []).append(cause)
    turns = Counter(item.session for item in replayed)
    session_of = {item.turn.index: item.session for item in replayed}
    causes: dict[tuple[Nature, str, str], list[Cause]] = {}
    for (_, path, anchor), members in apart(spots):
        continued = any(turns[session_of[cause.turn.index]] > 1 for cause in members)
        nature = settled(members, continued)
        causes.setdefault((nature, path, "" if nature in BY_PATH else anchor), []).extend(members)
    groups: dict[Nature, list[Group]] = {}
    for (nature, _, _), members in causes.items():
        members.sort(key=lambda cause: cause.turn.index)
        groups.setdefault(nature, []).append(Group(nature, tuple(members)))
    return groups


def apart(spots: Mapping[Spot, Sequence[Cause]]) -> Iterator[tuple[Spot, Sequence[Cause]]]:
    """The causes of each spot; a date and an identifier that change in one line of one request are two faults, and so
    are a clock and the name of a user."""
    for key, members in spots.items():
        natures: dict[int, set[Nature]] = {}
        for cause in members:
            natures.setdefault(cause.turn.index, set()).add(cause.nature)
        both = any(found >= {"timestamp", "identifier"} for found in natures.values()) or any(map(is_name, members))
        for part in (True, False) if both else ():
            chosen = [cause for cause in members if (cause.nature == "timestamp") is part]
            if chosen:
                yield key, chosen
        if not both:
            yield key, members


def is_name(cause: Cause) -> bool:
    """Whether what differs between users is a name: nothing of a date that is written in an unknown way."""
    return cause.nature == "per_user" and re.search(r"\d", cause.change.before + cause.change.after) is None


def settled(causes: Sequence[Cause], continued: bool) -> Nature:
    """The one nature of the causes at a spot.

    What changes inside a conversation says more than what differs between two, and what most of them are more than an
    exception (a hash that looks like a number, a birthday that moves forward).
    """
    nature = causes[0].nature
    if nature not in OF_TEXT:
        return nature
    inside = [cause for cause in causes if is_inside(cause)]
    counts = Counter(cause.nature for cause in inside or causes)
    nature = max(counts, key=lambda name: (counts[name], -OF_TEXT.index(name)))
    # Requests that continue each other show that the text is constant in a conversation, whatever its session.
    return "per_user" if nature == "volatile" and not inside and continued else nature


def is_inside(cause: Cause) -> bool:
    """Whether the change is one inside a conversation. A session can hold several (of sub-agents)."""
    return cause.relation in ("continued", "auxiliary")


def spot(cause: Cause) -> tuple[str, str, str]:
    """What makes two causes the same: the kind, the field, and for text what stands in front of it."""
    change = cause.change
    kind = "text" if cause.nature in OF_TEXT else cause.nature
    if change.kind != "text":
        return kind, re.sub(r"\[.*", "", change.path), ""
    span = located(change, cause.turn.chat, cause.nature)
    value = reached(cause.turn.chat, parse_path(change.path))
    if span is None or not isinstance(value, str):
        return kind, change.path, ""
    line = value[max(value.rfind("\n", 0, span[0]), value.rfind(". ", 0, span[0])) + 1 : span[0]]
    # Only how the line begins: what stands further on may have changed itself.
    rest = value[span[1] :].partition("\n")[0]
    if "\n" in value[slice(*span)]:
        anchor = first_word(line) or f"lines below {heading(value, span[0])}"
    else:
        frame = re.sub(r"\w", "", line + rest)
        anchor = first_word(line) or first_word(rest) or f"{frame} below {heading(value, span[0])}"
    return kind, change.path, anchor


def heading(text: str, start: int) -> str:
    """How the nearest line above begins that looks like a heading of what follows."""
    above = text[max(0, start - 2000) : start].splitlines()[-NEAR:]
    return next((first_word(line) for line in reversed(above) if HEADING.fullmatch(line)), "")


def first_word(text: str) -> str:
    found = FIRST_WORD.search(text)
    return found[0] if found else ""


def gains(item: Replayed, cause: Cause, block_size: int, count: CountTokens) -> bool:
    """Whether anything that could be shared stands behind the blamed text itself. In a conversation there always is its
    history; between conversations, different text at the end of what they share loses nothing but itself."""
    if is_inside(cause):
        return True
    if cause.change.kind not in ("text", "argument", "tool_definition", "tool_set"):
        return True
    rest = item.causes[item.causes.index(cause) :]
    own = sum(count(text) for other in rest for text in replaced(other))
    behind = item.causes[-1].hit_without - cause.token - own
    return behind >= (SET_BEHIND if cause.change.kind == "tool_set" else block_size)


def replaced(cause: Cause) -> Iterator[str]:
    """What the earlier request had in the place of the change."""
    change = cause.change
    tools = cause.earlier.chat.get("tools")
    if change.kind == "tool_set" and isinstance(tools, list):
        removed = {name[1:] for name in change.names if name.startswith("-")}
        yield from (serialised(tool) for tool in tools if tool_name(tool) in removed)
    elif change.kind == "tool_definition":
        yield serialised(change.edits[0].value)
    elif change.kind in ("text", "argument"):
        yield change.before
