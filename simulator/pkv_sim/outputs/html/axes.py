"""Axes of charts. Places are in per cent of the axis, from its start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil, floor, log, log10

RATES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Ends of an axis of rates."""
DENSE = 3
"""Decades up to which an axis also has ticks at 2 and 5."""
CLOSE = 9.0
"""Ticks that are closer than this (per cent) to the one before are left out."""
RIGHT = 50.0
"""From this place on (per cent) what is written beside a mark stands to its left."""


@dataclass(frozen=True, slots=True)
class Tick:
    place: float
    label: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A line across the chart with a text on its own `level` above it, on the `left` of the line where the right lacks
    room."""

    place: float
    label: str
    level: int

    @property
    def left(self) -> bool:
        return self.place > RIGHT


@dataclass(frozen=True, slots=True)
class LogAxis:
    """From `first` to `last` (both above 0), equal factors at equal distances."""

    first: float
    last: float

    def place(self, value: float) -> float:
        """A single value stands in the middle."""
        if self.last <= self.first:
            return 50.0
        return 100 * log(value / self.first) / log(self.last / self.first)

    def ticks(self, label: Callable[[float], str]) -> tuple[Tick, ...]:
        """Round values; the ends as well where fewer than two of them lie in between."""
        low, high = floor(log10(self.first)), ceil(log10(self.last))
        dense = log10(self.last / self.first) <= DENSE
        values = [step * 10.0**power for power in range(low, high + 1) for step in ((1, 2, 5) if dense else (1,))]
        found = [value for value in values if self.first <= value <= self.last]
        if len(found) < 2:
            found = sorted({self.first, *found, self.last})
        return spread(Tick(self.place(value), label(value)) for value in found)


def spread(ticks: Iterable[Tick]) -> tuple[Tick, ...]:
    """Without those that stand too close to be read."""
    kept: list[Tick] = []
    for tick in ticks:
        if not kept or tick.place - kept[-1].place >= CLOSE:
            kept.append(tick)
    return tuple(kept)


def marks(items: Iterable[tuple[float, str]]) -> tuple[Mark, ...]:
    """One under the other, from the outside in, so that no line runs through the text of another."""
    ordered = sorted(items, key=lambda item: -abs(item[0] - RIGHT))
    return tuple(Mark(place, label, level) for level, (place, label) in enumerate(ordered))


def top_rate(rate: float) -> float:
    """Where an axis of rates ends that has this one on it."""
    return next(top for top in RATES if rate <= top)


def rate_ticks(top: float) -> tuple[Tick, ...]:
    """From the bottom: nothing, half and all of it."""
    return tuple(Tick(100 * part, f"{top * part * 100:g} %") for part in (0.0, 0.5, 1.0))
