"""Points over two axes of the same scale, as the numbers that an SVG needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Literal, NamedTuple

SIZE = 320
"""Pixels of the square between the axes."""
MARKS = 5
"""Ticks of a linear axis, about."""


class Dot(NamedTuple):
    """A point in pixels from the left and from the top."""

    x: float
    y: float
    state: str
    title: str


class Tick(NamedTuple):
    """A labelled place of an axis in pixels from its start."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Scatter:
    """Both axes have the same `ticks`, so that what is as predicted lies on the diagonal."""

    title: str
    across: str
    up: str
    ticks: tuple[Tick, ...]
    dots: tuple[Dot, ...]
    size: int = SIZE


class Measured(NamedTuple):
    """A point in the units of the axes."""

    x: float
    y: float
    state: str
    title: str


def scatter(
    title: str,
    across: str,
    up: str,
    points: Sequence[Measured],
    label: Callable[[float], str],
    *,
    scale: Literal["linear", "log"] = "linear",
) -> Scatter | None:
    """None for no points. A logarithmic scale leaves out what is not positive."""
    if scale == "log":
        points = [point for point in points if point.x > 0 and point.y > 0]
    if not points:
        return None
    values = [value for point in points for value in (point.x, point.y)]
    marks = _powers(min(values), max(values)) if scale == "log" else _steps(max(values))
    place = log10 if scale == "log" else float
    low, high = place(marks[0]), place(marks[-1])

    def at(value: float) -> float:
        return round((place(value) - low) / (high - low) * SIZE, 1)

    dots = tuple(Dot(at(point.x), SIZE - at(point.y), point.state, point.title) for point in points)
    return Scatter(title, across, up, tuple(Tick(at(mark), label(mark)) for mark in marks), dots)


def _steps(highest: float) -> list[float]:
    """Round numbers from 0 to at least the highest value."""
    rough = max(highest, 1.0) / MARKS
    power = 10 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [step * number for number in range(ceil(max(highest, 1.0) / step) + 1)]


def _powers(lowest: float, highest: float) -> list[float]:
    """1, 2, 5, 10, 20 and so on, around both values."""
    scale = [
        mantissa * 10.0**power
        for power in range(floor(log10(lowest)) - 1, ceil(log10(highest)) + 1)
        for mantissa in (1, 2, 5)
    ]
    first = max(at for at, mark in enumerate(scale) if mark <= lowest)
    last = next((at for at, mark in enumerate(scale) if mark >= highest), len(scale) - 1)
    return scale[first : max(last, first + 1) + 1]
