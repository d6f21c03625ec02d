"""Replay by recorded times: requests overlap as they did, as far as the cache is large enough."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from pkv_sim.fast.cache import FastCache, Lease
from pkv_sim.fast.prefix_tree import BlockRequest


@dataclass(frozen=True, slots=True)
class _Arrival:
    index: int
    request: BlockRequest
    start: float
    end: float


class RecordedReplay:
    """Admits requests at their recorded starts and lets go of them at their recorded ends, ends first at equal times.

    A request has all its blocks, those for its output too, from its start. What its prompt fills is findable from then
    on, what its output fills from its end. While blocks are lacking requests wait, first come, first served, and end
    later by the time that they waited. Requests that end at the same time do so in the order of their arrival.

    `cached_tokens` has an item for each request in the order of arrival: None while it waits, and for good when it is
    larger than the cache. `num_waited` requests waited, `time_waited` in all, in the unit of the given times.
    """

    def __init__(self, cache: FastCache) -> None:
        self.cache = cache
        self.cached_tokens: list[int | None] = []
        self.num_waited = 0
        self.time_waited = 0.0
        self._running: list[tuple[float, int, Lease]] = []
        self._waiting: deque[_Arrival] = deque()
        self._time = -inf

    def add(self, request: BlockRequest, start: float, end: float) -> None:
        """Takes the next request. Raises ValueError when it starts before the last one, or ends before it starts."""
        if not self._time <= start <= end:
            raise ValueError(f"a request from {start} to {end} cannot follow one that started at {self._time}")
        self._time = start
        self.run_until(start)
        arrival = _Arrival(len(self.cached_tokens), request, start, end)
        self.cached_tokens.append(None)
        if request.num_blocks > self.cache.num_usable_blocks:
            self.cache.num_refused += 1
        elif self._waiting or not self._admit(arrival, start):
            self._waiting.append(arrival)

    def finish(self) -> None:
        """Lets all requests run to their ends."""
        self.run_until(inf)

    @property
    def next_end(self) -> float:
        """When the next request ends; infinity when none runs."""
        return self._running[0][0] if self._running else inf

    def run_until(self, time: float) -> None:
        """Lets the requests end that end by then, and others take their place."""
        running, waiting = self._running, self._waiting
        while running and running[0][0] <= time:
            now, _, lease = heappop(running)
            self.cache.finish(lease)
            while waiting and not (running and running[0][0] == now) and self._admit(waiting[0], now):
                self.num_waited += 1
                self.time_waited += now - waiting.popleft().start

    def _admit(self, arrival: _Arrival, now: float) -> bool:
        lease = self.cache.admit(arrival.request)
        if lease is None:
            return False
        self.cached_tokens[arrival.index] = lease.num_hit * self.cache.tree.block_size
        heappush(self._running, (arrival.end + (now - arrival.start), arrival.index, lease))
        return True
