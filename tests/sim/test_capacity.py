"""Capacity curves: every point is a simulation, the knee, the smallest cache that is enough."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import TypeVar

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkv_sim.capacity import NEAR, CapacityPoint, capacity_curve, grid, knee_of
from pkv_sim.outputs.capacity import lines
from pkv_sim.outputs.plot import area, interpolated
from pkv_sim.serving.settings import Settings
from pkv_sim.simulation import cached_tokens, simulate
from pkv_sim.traffic.workload import TrafficRequest, Workload

T = TypeVar("T")
SIZE = 4
STEMS = (list(range(40)), [*range(9), *range(50, 81)], list(range(100, 140)))


def workload(prompts: Iterable[tuple[int, int, int]]) -> Workload:
    """Requests with the first tokens of a stem, each with a pause in front of it."""
    found = []
    time = 0.0
    for index, (stem, length, pause) in enumerate(prompts):
        time += pause
        ids = array("i", STEMS[stem][:length])
        found.append(TrafficRequest(index, "f", index + 1, length, ids=ids, start=time, end=time + 3))
    return Workload("f", "requests", SIZE, tuple(found))


TRAFFIC = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40), st.integers(0, 4)), min_size=1, max_size=12).map(
    workload
)


def rates(*given: float, first: int = 8) -> list[CapacityPoint]:
    """Points of caches that double in size."""
    return [CapacityPoint(first << at, round(rate * 1000), 1000) for at, rate in enumerate(given)]


@settings(max_examples=60, deadline=None)
@given(TRAFFIC, st.lists(st.integers(2, 60), max_size=4), st.sampled_from(["sequential", "recorded"]))
def test_points_are_simulations(traffic: Workload, sizes: list[int], schedule: str) -> None:
    chosen = Settings(schedule=schedule)  # type: ignore[arg-type]
    curve = capacity_curve(traffic, chosen, sizes)
    assert [point.num_gpu_blocks for point in curve.points] == (
        sorted(set(sizes)) or grid(curve.smallest, curve.ideal.num_gpu_blocks)
    )
    for point in curve.points:
        alone = simulate(traffic, Settings(schedule=schedule, num_gpu_blocks=point.num_gpu_blocks))  # type: ignore[arg-type]
        assert (point.cached_tokens, point.prompt_tokens) == (alone.cached_tokens, alone.prompt_tokens)
        assert point.refused == len(alone.refused) and point.hit_rate == alone.hit_rate
    assert curve.ideal.cached_tokens == simulate(traffic, chosen).cached_tokens


@settings(max_examples=60, deadline=None)
@given(TRAFFIC, st.lists(st.integers(2, 60), max_size=4), st.sampled_from(["sequential", "recorded"]))
def test_the_smallest_cache_that_is_enough(traffic: Workload, sizes: list[int], schedule: str) -> None:
    curve = capacity_curve(traffic, Settings(schedule=schedule), sizes)  # type: ignore[arg-type]

    def enough(blocks: int) -> bool:
        hits = cached_tokens(traffic, Settings(schedule=schedule, num_gpu_blocks=blocks))  # type: ignore[arg-type]
        found = sum(hit or 0 for hit in hits)
        return None not in hits and curve.ideal.hit_rate - found / curve.ideal.prompt_tokens <= NEAR

    found = curve.near_ideal.num_gpu_blocks
    assert enough(found)
    # One request after the other, all that are smaller are too small.
    assert not any(map(enough, range(2 if schedule == "sequential" else max(2, found - 1), found)))


@settings(max_examples=60, deadline=None)
@given(TRAFFIC)
def test_a_larger_cache_never_hits_less_one_at_a_time(traffic: Workload) -> None:
    curve = capacity_curve(traffic, Settings())
    every = range(curve.smallest, curve.ideal.num_gpu_blocks + 1)
    found = [point.cached_tokens for point in capacity_curve(traffic, Settings(), every).points]
    assert found == sorted(found)
    assert curve.ideal.cached_tokens - found[-1] <= curve.ideal.prompt_tokens * NEAR


def test_the_grid() -> None:
    assert grid(8, 16384) == [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]
    assert grid(5, 5) == [5]
    assert grid(5, 7) == [5, 6, 7]


def test_the_knee() -> None:
    points = rates(0.1, 0.5, 0.8, 0.85, 0.9)
    assert knee_of(points) is points[2]
    # A cliff: nothing is reused until everything fits.
    cliff = rates(0, 0, 0.9, 0.9, 0.9)
    assert knee_of(cliff) is cliff[2]
    assert knee_of(rates(0.1, 0.2, 0.3, 0.4)) is None
    assert knee_of(rates(0, 0, 0, 0.9)) is None
    assert knee_of(rates(0.5, 0.5, 0.5)) is None
    assert knee_of(rates(0.5, 0.505, 0.506)) is None
    assert knee_of(points[:2]) is None
    # What serves other requests is another matter.
    refusing = [CapacityPoint(4, 900, 1000, refused=3), *points]
    assert knee_of(refusing) is points[2]


def test_progress_is_shown() -> None:
    seen: dict[str, int] = {}

    def progress(items: Iterable[T], name: str, total: int | None = None) -> Iterator[T]:
        for item in items:
            seen[name] = seen.get(name, 0) + 1
            yield item
        assert seen.get(name, 0) == total

    capacity_curve(workload([(0, 40, 1), (1, 40, 1)] * 4), Settings(), (), progress)
    assert list(seen) == ["sizes of the cache tried:", "smallest cache looked for:"]


class TestText:
    def test_a_plot_of_eighty_columns(self) -> None:
        curve = capacity_curve(workload([(0, 40, 1), (1, 40, 1), (2, 40, 1)] * 4), Settings())
        shown = [click.unstyle(line) for line in lines(curve, SIZE, current=20)]
        plot = [line for line in shown if "┤" in line or "┼" in line or "▲" in line]
        assert len(plot) >= 10 and max(map(len, plot)) <= 80
        assert plot[0].startswith("  69.2 % ┤") and plot[8].startswith("   0.0 % ┼┴")
        assert any(line.endswith("▲ now: 20") for line in plot)
        assert not [line for line in shown if line != line.rstrip()]

    def test_one_point_or_no_hit_is_no_plot(self) -> None:
        for sizes in ([50], [50, 60]):
            curve = capacity_curve(workload([(0, 9, 1)]), Settings(), sizes)
            assert not any("┤" in line for line in lines(curve, SIZE))

    def test_marks_stay_within_the_plot(self) -> None:
        curve = capacity_curve(workload([(0, 40, 1), (1, 40, 1)] * 4), Settings())
        for current in (2, curve.points[0].num_gpu_blocks, curve.points[-1].num_gpu_blocks, 10**9):
            plot = map(click.unstyle, lines(curve, SIZE, current=current))
            assert max(len(line) for line in plot if "▲" in line or "┼" in line) <= 80

    def test_columns(self) -> None:
        assert list(area([0, 0.5, 1, 0.25, 0], 2)) == ["  █", " ██▄"]
        assert interpolated([(0, 0.0), (1, 1.0), (4, 1.0)], 5) == [0, 1, 1, 1, 1]
        assert interpolated([(0, 1.0), (4, 0.0)], 5) == [1, 0.75, 0.5, 0.25, 0]


@pytest.mark.parametrize("schedule", ["sequential", "recorded"])
def test_one_request(schedule: str) -> None:
    curve = capacity_curve(workload([(0, 9, 1)]), Settings(schedule=schedule))  # type: ignore[arg-type]
    assert curve.near_ideal.num_gpu_blocks == curve.smallest == 4
    assert [point.num_gpu_blocks for point in curve.points] == [4] and curve.knee is None
