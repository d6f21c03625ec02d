"""Times to first token as a histogram over their logarithm, and the percentiles of all times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pkv_lint.findings import counted
from pkv_sim.latency import Latency, latency_of
from pkv_sim.outputs.html.axes import LogAxis, Mark, Tick, marks
from pkv_sim.outputs.times import origin, rows, shown, work_lines
from pkv_sim.simulation import Simulation, share

BARS = 48
LEAST = 1e-6
"""Seconds; shorter times count as this long, since a logarithm has no place for none at all."""


@dataclass(frozen=True, slots=True)
class Bar:
    """`height` is in per cent of the highest bar."""

    at: int
    height: float
    title: str


@dataclass(frozen=True, slots=True)
class Latencies:
    """`bins` are the places of bars. `rows` are the table: what, then mean, p50, p95, p99 and maximum; `sentences` say
    what the times rest on."""

    bars: tuple[Bar, ...]
    bins: int
    ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    rows: tuple[tuple[str, ...], ...]
    sentences: tuple[str, ...]


def latencies(simulation: Simulation) -> Latencies | None:
    """None where nothing was timed."""
    timing, latency = simulation.settings.timing, latency_of(simulation)
    if timing is None or latency is None:
        return None
    times = [max(LEAST, item.ttft) for item in simulation.served if item.ttft is not None]
    axis = LogAxis(min(times), max(times))
    percentiles = (("p50", latency.ttft.p50), ("p95", latency.ttft.p95), ("p99", latency.ttft.p99))
    return Latencies(
        tuple(bars(times, axis)),
        BARS,
        axis.ticks(round_time),
        marks((axis.place(max(LEAST, value)), f"{name} {shown(value)}") for name, value in percentiles),
        tuple(table(latency)),
        (origin(timing), *work_lines(simulation)),
    )


def bars(times: list[float], axis: LogAxis) -> Iterator[Bar]:
    counts = [0] * BARS
    for time in times:
        counts[min(BARS - 1, int(axis.place(time) * BARS / 100))] += 1
    factor = (axis.last / axis.first) ** (1 / BARS)
    for at, count in enumerate(counts):
        if count:
            low, high = axis.first * factor**at, axis.first * factor ** (at + 1)
            part = f"{100 * share(count, len(times)):.1f} %"
            title = f"{shown(low)} to {shown(high)}: {counted(count, 'request')}, {part}"
            yield Bar(at, 100 * count / max(counts), title)


def table(latency: Latency) -> Iterator[tuple[str, ...]]:
    for name, found in rows(latency):
        yield name, *map(shown, (found.mean, found.p50, found.p95, found.p99, found.max))


def round_time(seconds: float) -> str:
    return f"{seconds:,g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
