"""A capacity curve for a person and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import Any

import click

from pkv_lint.findings import counted
from pkv_sim.capacity import NEAR, CapacityCurve, CapacityPoint
from pkv_sim.kv_memory import KVMemory
from pkv_sim.outputs.json import rounded
from pkv_sim.outputs.plot import area, interpolated
from pkv_sim.outputs.text import percent

COLUMNS, ROWS = 68, 8
"""Of the plot, without its axis."""


def members(curve: CapacityCurve) -> dict[str, Any]:
    """`capacity_curve` and `capacity` of the JSON output."""
    return {
        "capacity_curve": [point_member(point) for point in curve.points],
        "capacity": {
            "ideal": point_member(curve.ideal),
            "near_ideal": point_member(curve.near_ideal),
            "knee": point_member(curve.knee) if curve.knee is not None else None,
            "smallest": curve.smallest,
        },
    }


def point_member(point: CapacityPoint) -> dict[str, Any]:
    return {
        "num_gpu_blocks": point.num_gpu_blocks,
        "cached_tokens": point.cached_tokens,
        "hit_rate": rounded(point.hit_rate),
        "refused": point.refused,
    }


def lines(
    curve: CapacityCurve, block_size: int, current: int | None = None, memory: KVMemory | None = None
) -> Iterator[str]:
    """The section of the summary. `current` is the size that was simulated in blocks, `memory` says what a block is
    worth in bytes."""
    yield click.style("Hit rate by size of the cache", bold=True)
    if len(curve.points) > 1 and any(point.cached_tokens for point in curve.points):
        yield from plot(curve, current)
    yield ""
    yield from table(curve, block_size, memory)
    yield ""
    yield from findings(curve)


def findings(curve: CapacityCurve) -> Iterator[str]:
    """What the curve says, in sentences."""
    near, ideal = curve.near_ideal, curve.ideal
    yield (
        f"{near.num_gpu_blocks:,} blocks are the smallest cache within {NEAR * 100:g} point of the ideal hit rate: "
        f"{percent(near.hit_rate, 2)} of {percent(ideal.hit_rate, 2)}"
    )
    if curve.knee is not None:
        yield f"the knee is at {curve.knee.num_gpu_blocks:,} blocks: beyond, each further block pays less"
    yield f"the largest request needs a cache of {curve.smallest:,} blocks"


def plot(curve: CapacityCurve, current: int | None) -> Iterator[str]:
    """The curve over the logarithm of the size, with marks under it."""
    points = [(log(point.num_gpu_blocks), point.hit_rate) for point in curve.points]
    top = max(rate for _, rate in points)
    heights = [rate / top for rate in interpolated(points, COLUMNS)]
    for row, shown in enumerate(area(heights, ROWS)):
        label = percent(top * (ROWS - row) / ROWS) if row in (0, ROWS // 2) else ""
        yield f"{label:>8} ┤{click.style(shown, fg='green')}".rstrip()
    ticks = ["─"] * COLUMNS
    first, last = points[0][0], points[-1][0]

    def column(size: int) -> int:
        return round((log(size) - first) / (last - first) * (COLUMNS - 1))

    for point in curve.points:
        ticks[column(point.num_gpu_blocks)] = "┴"
    yield f"{percent(0):>8} ┼{''.join(ticks)}"
    ends = f"{curve.points[0].num_gpu_blocks:,}", f"{curve.points[-1].num_gpu_blocks:,} blocks"
    yield f"{'':10}{ends[0]}{ends[1]:>{COLUMNS - len(ends[0])}}"
    marks = [("knee", curve.knee.num_gpu_blocks if curve.knee else None), ("now", current)]
    for name, size in marks:
        if size is not None and first <= log(size) <= last:
            yield f"{'':10}{mark(column(size), f'{name}: {size:,}')}"


def mark(column: int, text: str) -> str:
    """An arrow up at a column and a text on the side where there is room."""
    if column + 2 + len(text) <= COLUMNS:
        return f"{'':{column}}▲ {text}"
    return f"{text} ▲".rjust(column + 1)


def table(curve: CapacityCurve, block_size: int, memory: KVMemory | None) -> Iterator[str]:
    """One row for each size, the last one for a cache without limit."""
    yield row("blocks", "tokens", "cached tokens", "hit rate", "GiB per GPU" if memory is not None else "")
    for point in curve.points:
        yield row(
            f"{point.num_gpu_blocks:,}",
            f"{tokens_in(point, block_size):,}",
            f"{point.cached_tokens:,}",
            percent(point.hit_rate, 2),
            gib_of(point, block_size, memory),
            remark(curve, point),
        )
    ideal = curve.ideal
    filled = f"fills {ideal.num_gpu_blocks:,}"
    yield row("no limit", "", f"{ideal.cached_tokens:,}", percent(ideal.hit_rate, 2), "-" if memory else "", filled)


def row(blocks: str, tokens: str, cached: str, rate: str, gib: str, notes: str = "") -> str:
    return f"  {blocks:>13}  {tokens:>15}  {cached:>17}  {rate:>9}{f'  {gib:>11}' if gib else ''}  {notes}".rstrip()


def tokens_in(point: CapacityPoint, block_size: int) -> int:
    """The null block holds none."""
    return (point.num_gpu_blocks - 1) * block_size


def gib_of(point: CapacityPoint, block_size: int, memory: KVMemory | None) -> str:
    """On each GPU; empty where a block's size in bytes is not known."""
    return f"{point.num_gpu_blocks * block_size * memory.bytes_per_token / 2**30:,.2f}" if memory is not None else ""


def remark(curve: CapacityCurve, point: CapacityPoint) -> str:
    found = ["knee"] if point == curve.knee else []
    if point.refused:
        found.append(f"{counted(point.refused, 'request')} too large")
    return ", ".join(found)
