"""Hit rate by the size of the cache: one traffic in one prefix tree, an exact replay for each size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import log

from pkv_sim.progress import Progress, silently
from pkv_sim.serving.replay import Replay
from pkv_sim.serving.settings import Settings
from pkv_sim.simulation import REPLAYS, share, with_replies
from pkv_sim.traffic.in_blocks import in_blocks_of
from pkv_sim.traffic.workload import Workload

GRID = 12
"""Sizes that are tried where none are given."""
NEAR = 0.01
"""How far below the hit rate of a cache without limit one may be to count as near it: one point."""


@dataclass(frozen=True, slots=True)
class CapacityPoint:
    """What a cache of `num_gpu_blocks` blocks (the null block included) serves. `refused` requests are larger than it,
    and do not count for the tokens."""

    num_gpu_blocks: int
    cached_tokens: int
    prompt_tokens: int
    refused: int = 0

    @property
    def hit_rate(self) -> float:
        return share(self.cached_tokens, self.prompt_tokens)


@dataclass(frozen=True, slots=True)
class CapacityCurve:
    """`points` by ascending size. `ideal` is a cache without limit, with the blocks that it fills. `near_ideal` is
    within `NEAR` of its hit rate, and with one block less it would not be. `knee` is where more blocks begin to pay
    less: see `knee_of`. `smallest` blocks hold the largest request."""

    points: tuple[CapacityPoint, ...]
    ideal: CapacityPoint
    near_ideal: CapacityPoint
    knee: CapacityPoint | None
    smallest: int


def capacity_curve(
    workload: Workload, settings: Settings, sizes: Sequence[int] = (), progress: Progress = silently
) -> CapacityCurve:
    """The curve at these sizes in blocks; without any, at some from the smallest cache that serves every request to
    what a cache without limit fills. Raises InputError as `simulate`."""
    requests = with_replies(workload, settings)
    tree, in_blocks = in_blocks_of(requests, workload.block_size, settings.replies)
    prompts = [request.num_prompt_tokens for request in requests]

    def replayed(num_gpu_blocks: int | None) -> tuple[CapacityPoint, Replay]:
        sized = replace(settings, num_gpu_blocks=num_gpu_blocks)
        replay = REPLAYS[settings.schedule](requests, tree, in_blocks, sized)
        hits = replay.run().cached_tokens
        served = sum(tokens for tokens, hit in zip(prompts, hits, strict=True) if hit is not None)
        return CapacityPoint(num_gpu_blocks or 0, sum(hit or 0 for hit in hits), served, hits.count(None)), replay

    def point(num_gpu_blocks: int) -> CapacityPoint:
        return replayed(num_gpu_blocks)[0]

    unbounded, replay = replayed(None)
    smallest = max(blocks.num_blocks for blocks in in_blocks) + 1
    # Next to what it fills there are the null block and one that is partly filled.
    filled = max(smallest, max(cache.num_cached_blocks for cache in replay.caches) + 2)
    ideal = replace(unbounded, num_gpu_blocks=filled)
    tried = sorted(set(sizes)) or grid(smallest, filled)
    points = tuple(map(point, progress(tried, "sizes of the cache tried:", len(tried))))
    return CapacityCurve(points, ideal, near_ideal(ideal, smallest, points, point, progress), knee_of(points), smallest)


def grid(first: int, last: int) -> list[int]:
    """Sizes in between that grow by equal factors, both ends included."""
    return sorted({round(first * (last / first) ** (step / (GRID - 1))) for step in range(GRID)})


def near_ideal(
    ideal: CapacityPoint,
    smallest: int,
    points: Iterable[CapacityPoint],
    point: Callable[[int], CapacityPoint],
    progress: Progress = silently,
) -> CapacityPoint:
    """The smallest cache within `NEAR` of the ideal hit rate, by bisection between the known points.

    One block less is too little. That a still smaller cache does as well is only possible where the hit rate falls as
    the cache grows, as it may at recorded times.
    """
    known = {item.num_gpu_blocks: item for item in points if item.num_gpu_blocks >= smallest}

    def enough(size: int) -> bool:
        if size not in known:
            known[size] = point(size)
        return ideal.hit_rate - known[size].hit_rate <= NEAR

    high = next((size for size in sorted(known) if enough(size)), ideal.num_gpu_blocks)
    while not enough(high):
        high *= 2
    low = max((size for size in known if size < high), default=smallest - 1)
    rounds = (high - low - 1).bit_length()
    for _ in progress(range(rounds), "smallest cache looked for:", rounds):
        middle = (low + high) // 2
        if low < middle and enough(middle):
            high = middle
        else:
            low = middle
    return known[high]


def knee_of(points: Sequence[CapacityPoint]) -> CapacityPoint | None:
    """The point furthest above the chord from the first point to the last, with the size on a logarithmic axis and
    both axes from 0 to 1 (the "Kneedle" of Satopaa et al., 2011). None where no point lies above it, among fewer than
    three points, and where all lie within `NEAR`. Points at which requests are refused do not count: other requests
    make their hit rate."""
    served = [point for point in points if not point.refused]
    if len(served) < 3:
        return None
    first, last = served[0], served[-1]
    width = log(last.num_gpu_blocks / first.num_gpu_blocks)
    height = last.hit_rate - first.hit_rate
    if height <= NEAR:
        return None

    def above(point: CapacityPoint) -> float:
        along = log(point.num_gpu_blocks / first.num_gpu_blocks) / width
        return (point.hit_rate - first.hit_rate) / height - along

    knee = max(served, key=above)
    return knee if above(knee) > 0 else None
