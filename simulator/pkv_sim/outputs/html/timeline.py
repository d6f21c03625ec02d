"""What became of the prompts in the course of the traffic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from pkv_lint.findings import counted
from pkv_sim.outputs.html.axes import Tick
from pkv_sim.outputs.html.parts import Part, parts_together, request_title, title_of
from pkv_sim.simulation import Served, Simulation

BINS = 120
"""Bars; of more requests, those of a stretch of time (or neighbours, where that says little) are put together."""
FULLEST = 0.1
"""Where one stretch of time would hold more than this share of the requests, bars are of equal numbers of them."""
TICKS = 6
SPANS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Stretches of time that people think in, in seconds; beyond, whole days."""
ENDS = (Tick(0.0, "first"), Tick(100.0, "last"))
UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True, slots=True)
class Bar:
    """The requests of one bin. `at` is its number; bins without requests have no bar."""

    at: int
    title: str
    tokens: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """`bars` of `bins` equal ones. `each` says what a bar is. `most` tokens are in the fullest bar."""

    bars: tuple[Bar, ...]
    bins: int
    each: str
    ticks: tuple[Tick, ...]

    @property
    def most(self) -> int:
        return max((bar.tokens for bar in self.bars), default=0)

    @property
    def most_label(self) -> str:
        return short(self.most)


def timeline(simulation: Simulation) -> Timeline:
    """A bar for each request where they are few, else by the time of arrival, where that is known and not all at
    once."""
    served = simulation.served
    if len(served) <= BINS:
        several = simulation.settings.replicas > 1
        bars = (bar(at, [item], request_title(item, several_replicas=several)) for at, item in enumerate(served))
        return Timeline(tuple(bars), len(served), "one bar for each request, in the order of arrival", ENDS)
    starts = [item.request.start for item in served if item.request.start is not None]
    if len(starts) < len(served):
        return by_number(served)
    first, last = min(starts), max(starts)
    span = span_of((last - first) / (BINS - 1)) if last > first else 1.0
    bins = int((last - first) // span) + 1
    places = [int((start - first) // span) for start in starts]
    if max(Counter(places).values()) > FULLEST * len(served):
        return by_number(served, [start - first for start in starts])
    return by_time(served, places, bins, span)


def by_time(served: Sequence[Served], places: Sequence[int], bins: int, span: float) -> Timeline:
    """Bars of equal stretches of time; `places` are the bins of the requests."""
    groups: dict[int, list[Served]] = {}
    for item, place in zip(served, places, strict=True):
        groups.setdefault(place, []).append(item)
    bars = []
    for at, group in sorted(groups.items()):
        what = f"{duration(at * span)} to {duration((at + 1) * span)}, {counted(len(group), 'request')}"
        bars.append(bar(at, group, title_of(group, what)))
    whole = bins * span
    between = span_of(whole / TICKS)
    ticks = (Tick(100 * between * at / whole, duration(between * at)) for at in range(ceil(whole / between)))
    return Timeline(tuple(bars), bins, f"{duration(span)} a bar, from the first arrival on", tuple(ticks))


def by_number(served: Sequence[Served], seconds: Sequence[float] = ()) -> Timeline:
    """Bars of equal numbers of requests. `seconds` are their arrivals since the first one, where these are known."""
    size = -(-len(served) // BINS)
    firsts = range(0, len(served), size)
    bars = []
    for at, first in enumerate(firsts):
        group = served[first : first + size]
        what = f"requests {first + 1:,} to {first + len(group):,}"
        if seconds:
            what += f" (after {duration(seconds[first])} to {duration(seconds[first + len(group) - 1])})"
        bars.append(bar(at, group, title_of(group, what)))
    each = f"{counted(size, 'request')} a bar, in the order of arrival"
    if not seconds:
        return Timeline(tuple(bars), len(bars), each, ENDS)
    step = ceil(len(bars) / TICKS)
    ticks = (Tick(100 * at / len(bars), duration(seconds[firsts[at]])) for at in range(0, len(bars), step))
    return Timeline(tuple(bars), len(bars), f"{each}; labels are times since the first one", tuple(ticks))


def bar(at: int, items: Sequence[Served], title: str) -> Bar:
    parts = parts_together(items)
    return Bar(at, title, sum(part.tokens for part in parts), parts)


def span_of(seconds: float) -> float:
    """The shortest round stretch of time that is not shorter; below a second none is round."""
    if seconds < SPANS[0]:
        return seconds
    return next((float(span) for span in SPANS if span >= seconds), ceil(seconds / SPANS[-1]) * float(SPANS[-1]))


def duration(seconds: float) -> str:
    """`0 s`, `30 s`, `1.5 h`: in the largest unit of which it is at least one."""
    size, unit = next(((size, unit) for size, unit in UNITS if seconds >= size), UNITS[-1])
    number = seconds / size
    return f"{round(number, 1 if number >= 10 else 2):g} {unit}"


def short(number: int) -> str:
    """`950`, `12k`, `3.4M`, `1.2B`"""
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}" if number < 100 * size else f"{number // size}{unit}"
    return str(number)
