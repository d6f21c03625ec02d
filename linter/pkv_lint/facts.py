"""What rules are given: a whole traffic, replayed, with its causes grouped. Rules neither render nor tokenise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from .causes import Cause, Replayed
from .changes import reached, split
from .nature import Nature, located
from .patterns import Granularity, Match, identifiers, timestamps
from .places import Place, place_of
from .probes import Probes
from .prompt.renderer import Renderer
from .prompt.source import format_path, parse_path
from .turns import Turn

BLAME_THE_TEMPLATE: frozenset[Nature] = frozenset(
    {"call_ids", "reasoning_dropped", "generation_prompt", "generated", "clock", "moved"}
)
"""Natures that say something about the template: nothing is said when it is not the server's own."""
ANCHOR = 24
"""Characters in front of a changed span by which two requests recognise the same spot."""


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
    def tokens_lost(self) -> int:
        return sum(cause.tokens_lost for cause in self.causes)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Text of one request that looks volatile and stands in front of something that could be cached.

    `path` and `match` are its place in the body, `behind` the tokens between it and the last user message.
    """

    turn: Turn
    path: str
    match: Match
    text: str
    behind: int


class Facts:
    """`block_size` in tokens; `layout` is `builtin` when no model was named, and figures are approximate then."""

    def __init__(self, replayed: Sequence[Replayed], renderer: Renderer, block_size: int) -> None:
        self.replayed = replayed
        self.block_size = block_size
        self.layout = renderer.layout
        self.approximate = renderer.approximate
        self.probes = Probes([item.turn for item in replayed], renderer)
        self._renderer = renderer

    @property
    def turns(self) -> list[Turn]:
        return [item.turn for item in self.replayed]

    @cached_property
    def prompt_tokens(self) -> int:
        return sum(len(item.turn.ids) for item in self.replayed)

    @cached_property
    def groups(self) -> Mapping[Nature, list[Group]]:
        """All causes, by what they are; those at the same spot together."""
        causes: dict[tuple[Nature, str, str], list[Cause]] = {}
        for item in self.replayed:
            for cause in item.causes:
                if self.layout == "builtin" and cause.nature in BLAME_THE_TEMPLATE:
                    continue
                causes.setdefault((cause.nature, *spot(cause)), []).append(cause)
        groups: dict[Nature, list[Group]] = {}
        for (nature, _, _), members in causes.items():
            groups.setdefault(nature, []).append(Group(nature, tuple(members)))
        return groups

    def of(self, nature: Nature) -> list[Group]:
        return self.groups.get(nature, [])

    @cached_property
    def hybrid(self) -> bool:
        """Whether the model keeps states that can be resumed only at stored places."""
        return self._renderer.hybrid

    @cached_property
    def _sessions(self) -> Mapping[str, list[Replayed]]:
        sessions: dict[str, list[Replayed]] = {}
        for item in self.replayed:
            sessions.setdefault(item.session, []).append(item)
        return sessions

    @cached_property
    def _session_of(self) -> Mapping[int, str]:
        return {item.turn.index: item.session for item in self.replayed}

    def next_in_session(self, turn: Turn) -> int | None:
        """The index of the request that comes after this one in its session."""
        later = (item.turn.index for item in self._sessions[self._session_of[turn.index]])
        return next((index for index in later if index > turn.index), None)

    def salts_in_session(self, turn: Turn) -> int:
        """How many cache salts the requests of a turn's session carry."""
        return len({item.turn.namespace[1] for item in self._sessions[self._session_of[turn.index]]})

    @cached_property
    def salt_per_request(self) -> bool:
        """Whether no two requests have a salt in common, in three or more."""
        salts = [item.turn.namespace[1] for item in self.replayed]
        return len(salts) > 2 and len(set(salts)) == len(salts)

    def granularity(self, group: Group) -> Granularity | None:
        """The finest unit of the date or time that changed in the first request of the group."""
        cause = group.first
        value = reached(cause.turn.chat, parse_path(cause.change.path))
        if cause.change.span is None or not isinstance(value, str):
            return None
        return next((match.granularity for match in timestamps(value, *cause.change.span)), None)

    def place(self, turn: Turn, path: str | None, span: tuple[int, int] | None = None) -> Place:
        """Where in its file a path of a request's chat form stands."""
        return place_of(turn, path, span, self._renderer)

    @cached_property
    def patterns(self) -> list[Pattern]:
        """Volatile-looking text in front of cacheable text, in requests that nothing could be compared with."""
        compared = {item.reference.turn.index for item in self.replayed if item.reference is not None}
        compared |= {item.turn.index for item in self.replayed if item.reference is not None}
        return [
            found for item in self.replayed if item.turn.index not in compared for found in self._patterns(item.turn)
        ]

    def _patterns(self, turn: Turn) -> Iterator[Pattern]:
        for path, text in fixed_texts(turn):
            found = [*timestamps(text), *identifiers(text)]
            for match in found:
                if match.kind == "identifier" and any(
                    other.kind == "timestamp" and other.start < match.end and match.start < other.end for other in found
                ):
                    continue
                behind = self._behind(turn, path, match)
                if behind >= self.block_size:
                    yield Pattern(turn, path, match, text[match.start : match.end], behind)

    def _behind(self, turn: Turn, path: str, match: Match) -> int:
        """Tokens between a match and the last user message, as far as the prompt shows both."""
        spans = turn.prompt.token_spans
        start = position_of(turn, path, match.end - 1)
        if start is None:
            return 0
        last = len(turn.chat["messages"]) - 1
        end = next(
            (
                origin.start
                for origin in turn.prompt.origins
                if origin.kind == "value" and origin.source.where.startswith(f"messages[{last}].")
            ),
            len(turn.prompt.text or ""),
        )
        return sum(1 for begin, _ in spans if start < begin < end)


def fixed_texts(turn: Turn) -> Iterator[tuple[str, str]]:
    """System text and tool descriptions: what is sent with every request."""
    for index, message in enumerate(split(turn.chat).system):
        yield from strings(message.get("content"), ("messages", index, "content"))
    tools = turn.chat.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else []):
        text = reached(tool, ("function", "description"))
        if isinstance(text, str):
            yield format_path(("tools", index, "function", "description")), text


def strings(value: object, steps: tuple[str | int, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield format_path(steps), value
    elif isinstance(value, list):
        for index, part in enumerate(value):
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield format_path((*steps, index, "text")), part["text"]


def position_of(turn: Turn, path: str, offset: int) -> int | None:
    """The first character of the prompt that shows this character of the body."""
    for origin in turn.prompt.origins:
        if origin.kind == "value" and origin.source.where == path:
            if origin.linear and origin.offset <= offset < origin.offset + origin.end - origin.start:
                return origin.start + offset - origin.offset
            if not origin.linear and origin.offset == offset:
                return origin.start
    return None


def spot(cause: Cause) -> tuple[str, str]:
    """What makes two causes of one nature the same: the field, and for text what stands in front of it."""
    if cause.change.kind != "text":
        return re.sub(r"\[.*", "", cause.change.path), ""
    path = cause.change.path
    span = located(cause.change, cause.turn.chat, cause.nature)
    value = reached(cause.turn.chat, parse_path(path))
    if span is None or not isinstance(value, str):
        return path, ""
    line = value[max(value.rfind("\n", 0, span[0]) + 1, span[0] - ANCHOR) : span[0]]
    return path, re.sub(r"[\d\W]+", " ", line)
