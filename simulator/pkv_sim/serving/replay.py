"""Replay of requests on the caches of one or several replicas, by the fast core: one after the other, or at their
recorded times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Protocol

from pkv_lint.prompt.errors import InputError
from pkv_sim.fast.cache import FastCache, Lease
from pkv_sim.fast.prefix_tree import BlockRequest, PrefixTree
from pkv_sim.fast.recorded import RecordedReplay
from pkv_sim.progress import Progress, silently
from pkv_sim.serving.elsewhere import Cache
from pkv_sim.serving.reasons import Reasons
from pkv_sim.serving.routing import ROUTERS
from pkv_sim.serving.settings import Settings
from pkv_sim.serving.times import EngineRun, Times
from pkv_sim.traffic.workload import TrafficRequest


@dataclass(frozen=True, slots=True)
class Waits:
    """How many requests waited for blocks under the recorded schedule, and for how long in all."""

    requests: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Replayed:
    """By the place of a request in the order of arrival: the tokens of its prompt that were cached (None: it is larger
    than the cache), and the replica that it was sent to. In simulated time also its times (None: as above), and by the
    number of the replica what its engine did; `notes` are sentences about the figures."""

    cached_tokens: Sequence[int | None]
    replicas: Sequence[int]
    waits: Waits | None = None
    times: Sequence[Times | None] | None = None
    engines: Sequence[EngineRun] = ()
    notes: Sequence[str] = ()


class CacheOverTree(Protocol):
    """Something that knows what a request made by its prefix tree would hit."""

    @property
    def tree(self) -> PrefixTree: ...

    def hit_of(self, request: BlockRequest) -> int:
        """How many blocks a request would hit now."""


class Replay(Protocol):
    """The replicas with their caches and the router in front of them, ready to run once."""

    @property
    def caches(self) -> Sequence[Cache]: ...

    def run(self, reasons: Reasons | None = None, progress: Progress = silently) -> Replayed:
        """`reasons` are told what happens, where they are wanted."""


def cached_tokens_on(caches: Sequence[CacheOverTree], blocks: BlockRequest, replica: int) -> int:
    """How many tokens of its prompt a request would hit on a replica now."""
    cache = caches[replica]
    return cache.hit_of(blocks) * cache.tree.block_size


class SequentialReplay:
    """Each request is served before the next one arrives."""

    def __init__(
        self,
        requests: Sequence[TrafficRequest],
        tree: PrefixTree,
        in_blocks: Sequence[BlockRequest],
        settings: Settings,
    ) -> None:
        self._requests = requests
        self._in_blocks = in_blocks
        self._router = ROUTERS[settings.router](settings.replicas)
        self.caches = tuple(
            FastCache(tree, settings.num_gpu_blocks, profile=settings.profile) for _ in range(settings.replicas)
        )

    def run(self, reasons: Reasons | None = None, progress: Progress = silently) -> Replayed:
        requests, caches, router = self._requests, self.caches, self._router
        block_size = caches[0].tree.block_size
        if reasons is None and len(caches) == 1:
            return Replayed(caches[0].replay(self._in_blocks), [0] * len(requests))
        hits: list[int | None] = []
        replicas = []
        for at, blocks in enumerate(progress(self._in_blocks, "requests simulated:", len(requests))):
            replica = router.route(requests[at], partial(cached_tokens_on, caches, blocks))
            elsewhere = reasons.elsewhere(at, replica) if reasons is not None else None
            (hit,) = caches[replica].replay((blocks,))
            if reasons is not None and elsewhere is not None and hit is not None:
                reasons.admitted(at, replica, hit // block_size, elsewhere)
                reasons.ended(at, replica)
            router.ended(requests[at], replica)
            hits.append(hit)
            replicas.append(replica)
        return Replayed(hits, replicas)


class _ObservedCache(FastCache):
    """The cache of a replica, which tells a recorded replay what is admitted and has ended."""

    def __init__(self, replay: RecordedReplays, replica: int, tree: PrefixTree, settings: Settings) -> None:
        super().__init__(tree, settings.num_gpu_blocks, profile=settings.profile)
        self._replay = replay
        self._replica = replica

    def admit(self, request: BlockRequest) -> Lease | None:
        reasons = self._replay.reasons
        if reasons is None:
            return super().admit(request)
        at = self._replay.place_of(request)
        elsewhere = reasons.elsewhere(at, self._replica)
        lease = super().admit(request)
        if lease is not None:
            reasons.admitted(at, self._replica, lease.num_hit, elsewhere)
        return lease

    def finish(self, lease: Lease) -> None:
        super().finish(lease)
        self._replay.ended(self._replay.place_of(lease.request), self._replica)


class RecordedReplays:
    """Requests overlap as they did. All replicas share one clock."""

    def __init__(
        self,
        requests: Sequence[TrafficRequest],
        tree: PrefixTree,
        in_blocks: Sequence[BlockRequest],
        settings: Settings,
    ) -> None:
        self.reasons: Reasons | None = None
        self.caches = tuple(_ObservedCache(self, replica, tree, settings) for replica in range(settings.replicas))
        self._requests = requests
        self._in_blocks = in_blocks
        self._places = {id(blocks): at for at, blocks in enumerate(in_blocks)}
        self._router = ROUTERS[settings.router](settings.replicas)
        self._replays = tuple(RecordedReplay(cache) for cache in self.caches)

    def place_of(self, request: BlockRequest) -> int:
        return self._places[id(request)]

    def ended(self, at: int, replica: int) -> None:
        self._router.ended(self._requests[at], replica)
        if self.reasons is not None:
            self.reasons.ended(at, replica)

    def run(self, reasons: Reasons | None = None, progress: Progress = silently) -> Replayed:
        """Raises InputError for a request without a time, or one that ends before it starts."""
        self.reasons = reasons
        replicas, places = [], []
        for at, blocks in enumerate(progress(self._in_blocks, "requests simulated:", len(self._requests))):
            request = self._requests[at]
            start, end = _times(request)
            self._run_until(start)
            replica = self._router.route(request, partial(cached_tokens_on, self.caches, blocks))
            replay = self._replays[replica]
            if blocks.num_blocks > self.caches[replica].num_usable_blocks:
                self._router.ended(request, replica)
            replicas.append(replica)
            places.append(len(replay.cached_tokens))
            replay.add(blocks, start, end)
        self._run_until(inf)
        hits = [self._replays[replica].cached_tokens[place] for replica, place in zip(replicas, places, strict=True)]
        waits = Waits(
            sum(replay.num_waited for replay in self._replays), sum(replay.time_waited for replay in self._replays)
        )
        return Replayed(hits, replicas, waits)

    def _run_until(self, time: float) -> None:
        """Lets requests end on all replicas, in the order of their times."""
        while (due := min(replay.next_end for replay in self._replays)) <= time and due < inf:
            for replay in self._replays:
                if replay.next_end == due:
                    replay.run_until(due)


def _times(request: TrafficRequest) -> tuple[float, float]:
    if request.start is None:
        raise InputError("has no timestamp, which --schedule recorded needs", file=request.file, line=request.line)
    end = request.start if request.end is None else request.end
    if end < request.start:
        raise InputError("ends before it starts", file=request.file, line=request.line)
    return request.start, end
