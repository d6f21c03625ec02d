"""What rules are given: a whole traffic, replayed, with its causes grouped. Rules neither render nor tokenise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise

from pkv_lint.causes import Replayed
from pkv_lint.changes import reached, tool_name
from pkv_lint.groups import Group, grouped
from pkv_lint.nature import Nature
from pkv_lint.patterns import Granularity, timestamps
from pkv_lint.places import Place, place_of
from pkv_lint.probes import Probes
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.source import parse_path
from pkv_lint.repeated import Repeated, repeated_texts
from pkv_lint.short_prefixes import short_prefixes
from pkv_lint.suspects import Pattern, alone, suspects
from pkv_lint.turns import Turn

BLAME_THE_TEMPLATE: frozenset[Nature] = frozenset(
    {"call_ids", "reasoning_dropped", "generation_prompt", "generated", "clock", "moved"}
)
"""Natures that say something about the template: nothing is said when it is not the server's own."""


class Facts:
    """`block_size` in tokens; `layout` is `builtin` when no model was named, and figures are approximate then."""

    def __init__(self, replayed: Sequence[Replayed], renderer: Renderer, block_size: int) -> None:
        self.replayed = replayed
        self.block_size = block_size
        self.layout = renderer.layout
        self.approximate = renderer.approximate
        self.probes = Probes([item.turn for item in replayed], alone(replayed), renderer)
        self._renderer = renderer

    @property
    def turns(self) -> list[Turn]:
        return [item.turn for item in self.replayed]

    @cached_property
    def prompt_tokens(self) -> int:
        return sum(len(item.turn.ids) for item in self.replayed)

    @cached_property
    def groups(self) -> Mapping[Nature, list[Group]]:
        """All causes that something could be done about, by what they are; those at the same spot together."""
        groups = grouped(self.replayed, self.block_size, self._count)
        if self.layout != "builtin":
            return groups
        return {nature: members for nature, members in groups.items() if nature not in BLAME_THE_TEMPLATE}

    @cached_property
    def _count(self) -> Callable[[str], int]:
        """Tokens of a text on its own."""
        return lru_cache(maxsize=4096)(lambda text: len(self._renderer.encode_completion(text)))

    def decoded(self, ids: Sequence[int]) -> str | None:
        """What token ids stand for, where that is known."""
        return self._renderer.decode(ids)

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

    def session(self, turn: Turn) -> str:
        """The session of a request; one without a name is numbered after its first request."""
        return self._session_of[turn.index]

    def next_in_session(self, turn: Turn) -> int | None:
        """The index of the request that comes after this one in its session."""
        later = (item.turn.index for item in self._sessions[self._session_of[turn.index]])
        return next((index for index in later if index > turn.index), None)

    def granularity(self, group: Group) -> Granularity | None:
        """The finest unit of the date or time that changed in the first request of the group."""
        cause = group.first
        value = reached(cause.turn.chat, parse_path(cause.change.path))
        if cause.change.span is None or not isinstance(value, str):
            return None
        return next((match.granularity for match in timestamps(value, *cause.change.span)), None)

    def place(
        self, turn: Turn, path: str | None, span: tuple[int, int] | None = None, *, as_sent: bool = False
    ) -> Place:
        """Where in its file a path of a request's chat form stands, or of its body as it was sent."""
        return place_of(turn, path, span, None if as_sent else self._renderer)

    @cached_property
    def patterns(self) -> list[Pattern]:
        """Volatile-looking text in front of cacheable text, in requests that nothing could be compared with."""
        return suspects(self.replayed, self.block_size, self._renderer)

    @cached_property
    def short_prefixes(self) -> list[Replayed]:
        """Requests that share text of their own with earlier ones, but less of it than a block, and have no other
        reason to reuse nothing."""
        return short_prefixes(self.replayed, self.block_size)

    @cached_property
    def alone(self) -> list[Turn]:
        """The requests that nothing could be compared with."""
        return alone(self.replayed)

    @property
    def unsorted_tools(self) -> Iterator[tuple[Turn, str, str]]:
        """Requests whose tools are printed and not sorted by name: the first name that stands behind a later one, and
        that one."""
        for turn in self.turns:
            tools = turn.chat.get("tools")
            names = [tool_name(tool) for tool in tools] if isinstance(tools, list) else []
            pair = next(((name, before) for before, name in pairwise(names) if name < before), None)
            if pair and any(origin.source.where.startswith("tools[") for origin in turn.prompt.origins):
                yield turn, *pair

    @cached_property
    def repeated(self) -> list[Repeated]:
        """Text that requests carry word for word behind the point where they part."""
        return repeated_texts(self.replayed, self.block_size, self._count)

    @property
    def tools_hidden_by_choice(self) -> bool:
        """Whether the server takes the tools out of the prompt when `tool_choice` is `none`."""
        return self._renderer.deployment.exclude_tools_when_tool_choice_none

    @cached_property
    def hours(self) -> float | None:
        """How long the traffic lasted, where its lines say when they came and that is a minute at least."""
        moments = [turn.line.moment.seconds for turn in self.turns]
        known = [moment for moment in moments if moment is not None]
        if len(known) < len(moments) or not known or max(known) - min(known) < 60:
            return None
        return (max(known) - min(known)) / 3600
