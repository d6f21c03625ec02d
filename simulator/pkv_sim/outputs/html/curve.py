"""The capacity curve over the logarithm of the size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pkv_sim.capacity import CapacityCurve
from pkv_sim.kv_memory import KVMemory
from pkv_sim.outputs.capacity import findings, gib_of, remark, tokens_in
from pkv_sim.outputs.html.axes import LogAxis, Mark, Tick, marks, rate_ticks, top_rate
from pkv_sim.outputs.text import percent
from pkv_sim.report import Report
from pkv_sim.simulation import Simulation


@dataclass(frozen=True, slots=True)
class Dot:
    """A size that was tried, at `x` and `y` (per cent, from the left and the bottom); what lies between `start` and
    `end` is nearest to it. `partial`: some requests are larger than this cache, so the rate is that of the others."""

    x: float
    y: float
    start: float
    end: float
    title: str
    partial: bool


@dataclass(frozen=True, slots=True)
class Curve:
    """`ideal` is the height of the rate of a cache without limit (per cent); `findings` are sentences, `rows` the
    table: blocks, tokens, GiB per GPU (empty where not known), cached tokens, hit rate, remark."""

    dots: tuple[Dot, ...]
    ideal: float
    ideal_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    findings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def curve_of(report: Report) -> Curve | None:
    """None where it was not asked for."""
    curve, simulation = report.curve, report.simulation
    if curve is None:
        return None
    size = simulation.settings.num_gpu_blocks
    sizes = [point.num_gpu_blocks for point in (*curve.points, curve.near_ideal)] + ([size] if size else [])
    axis = LogAxis(min(sizes), max(sizes))
    top = top_rate(max(point.hit_rate for point in (*curve.points, curve.ideal)))
    block_size = simulation.workload.block_size
    return Curve(
        tuple(dots(curve, axis, top, block_size, report.memory)),
        100 * curve.ideal.hit_rate / top,
        f"no limit: {percent(curve.ideal.hit_rate, 2)}",
        axis.ticks(lambda value: f"{round(value):,}"),
        rate_ticks(top),
        marks((axis.place(blocks), label) for blocks, label in marked(curve, simulation)),
        tuple(findings(curve)),
        tuple(rows(curve, block_size, report.memory)),
    )


def marked(curve: CapacityCurve, simulation: Simulation) -> Iterator[tuple[int, str]]:
    """Sizes that the reader looks for: the one that was simulated, the knee, the smallest that is enough."""
    size = simulation.settings.num_gpu_blocks
    if size is not None:
        yield size, f"now: {size:,} blocks, {percent(simulation.hit_rate, 2)}"
    if curve.knee is not None:
        yield (
            curve.knee.num_gpu_blocks,
            f"knee: {curve.knee.num_gpu_blocks:,} blocks, {percent(curve.knee.hit_rate, 2)}",
        )
    near = curve.near_ideal
    yield (
        near.num_gpu_blocks,
        f"near ideal: {near.num_gpu_blocks:,} blocks, {percent(near.hit_rate, 2)}",
    )


def dots(curve: CapacityCurve, axis: LogAxis, top: float, block_size: int, memory: KVMemory | None) -> Iterator[Dot]:
    places = [axis.place(point.num_gpu_blocks) for point in curve.points]
    borders = [0.0, *((left + right) / 2 for left, right in pairwise(places)), 100.0]
    for at, point in enumerate(curve.points):
        lines = [f"{point.num_gpu_blocks:,} blocks: {percent(point.hit_rate, 2)}"]
        lines.append(f"{tokens_in(point, block_size):,} tokens of room, {point.cached_tokens:,} prompt tokens cached")
        if gib := gib_of(point, block_size, memory):
            lines.append(f"{gib} GiB on each GPU")
        if note := remark(curve, point):
            lines.append(note)
        height = 100 * point.hit_rate / top
        yield Dot(places[at], height, borders[at], borders[at + 1], "\n".join(lines), bool(point.refused))


def rows(curve: CapacityCurve, block_size: int, memory: KVMemory | None) -> Iterator[tuple[str, ...]]:
    for point in curve.points:
        yield (
            f"{point.num_gpu_blocks:,}",
            f"{tokens_in(point, block_size):,}",
            gib_of(point, block_size, memory),
            f"{point.cached_tokens:,}",
            percent(point.hit_rate, 2),
            remark(curve, point),
        )
    ideal = curve.ideal
    filled = f"fills {ideal.num_gpu_blocks:,} blocks"
    yield "no limit", "", "", f"{ideal.cached_tokens:,}", percent(ideal.hit_rate, 2), filled
