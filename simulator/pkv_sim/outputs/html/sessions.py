"""The sessions that lost most: their requests as strips, from the start of the prompt to its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest

from pkv_lint.columns import visible
from pkv_sim.outputs.html.parts import Part, lost_tokens, parts_of, parts_together, request_title
from pkv_sim.simulation import Served, Simulation

SESSIONS = 24
"""Sessions that are shown; of more, those that lost most."""
STRIPS = 80
"""Requests of a session that are shown; of more, those that lost most."""


@dataclass(frozen=True, slots=True)
class Strip:
    """One request. `outlines` are the shapes of its states: path data, a row high and as wide as tokens."""

    title: str
    outlines: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Session:
    """`name` is None for requests without a session. `longest` is the longest prompt that is shown (tokens)."""

    name: str | None
    requests: int
    parts: tuple[Part, ...]
    strips: tuple[Strip, ...]
    longest: int
    lost: int

    @property
    def tokens(self) -> int:
        return sum(part.tokens for part in self.parts)

    @property
    def cached(self) -> int:
        return sum(part.tokens for part in self.parts if part.state == "cached")


@dataclass(frozen=True, slots=True)
class Sessions:
    """Those that are `shown`, of `count`."""

    shown: tuple[Session, ...]
    count: int


def sessions(simulation: Simulation) -> Sessions:
    groups: dict[str | None, list[Served]] = {}
    for item in simulation.served:
        groups.setdefault(item.request.session_id, []).append(item)
    shown = nlargest(SESSIONS, groups.items(), key=lambda group: rank(group[1]))
    several = simulation.settings.replicas > 1
    return Sessions(tuple(session(name, items, several) for name, items in shown), len(groups))


def rank(served: Sequence[Served]) -> tuple[int, int]:
    """By tokens that were lost, then by those that were computed."""
    return sum(lost_tokens(item.misses) for item in served), sum(item.misses.tokens for item in served)


def session(name: str | None, served: Sequence[Served], several_replicas: bool) -> Session:
    shown = list(range(len(served)))
    if len(served) > STRIPS:
        shown = sorted(nlargest(STRIPS, shown, key=lambda at: rank([served[at]])))
    strips = (
        Strip(request_title(served[at], several_replicas=several_replicas), tuple(outlines(served[at], row)))
        for row, at in enumerate(shown)
    )
    return Session(
        None if name is None else visible(name),
        len(served),
        parts_together(served),
        tuple(strips),
        max(served[at].request.num_prompt_tokens for at in shown),
        rank(served)[0],
    )


def outlines(item: Served, row: int) -> Iterator[tuple[str, str]]:
    """A rectangle for each state, from where the one before ends."""
    start = 0
    for part in parts_of(item.cached_tokens, item.misses):
        yield part.state, f"M{start} {row}h{part.tokens}v.85h-{part.tokens}z"
        start += part.tokens
