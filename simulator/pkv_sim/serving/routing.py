"""Which replica a request is sent to.

A router sees the requests in the order of their arrival and decides for each at once; nothing is moved later. All of
them are deterministic: what is equal otherwise goes to the replica with the lowest number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pkv_sim.traffic.workload import TrafficRequest

RouterName = Literal["round-robin", "sticky", "least-loaded", "prefix-aware"]
CachedTokens: TypeAlias = Callable[[int], int]
"""How many tokens of the prompt in question a replica, by its number, would serve from its cache now."""


@dataclass(slots=True)
class Load:
    """What was sent to a replica: requests that have not ended (`in_flight`), their prompt tokens that are still to be
    computed (`backlog`, kept by routers that ask for it), and all prompt tokens so far (`sent`)."""

    in_flight: int = 0
    backlog: int = 0
    sent: int = 0


class Router(ABC):
    """Decides, and keeps count of the replicas' loads."""

    def __init__(self, num_replicas: int) -> None:
        self.loads = tuple(Load() for _ in range(num_replicas))
        self._uncached: dict[int, int] = {}

    def route(self, request: TrafficRequest, cached_tokens: CachedTokens) -> int:
        """The number of the replica for a request that arrives now. It is in flight until it has `ended`."""
        replica = self._choose(request, cached_tokens)
        load = self.loads[replica]
        load.in_flight += 1
        load.sent += request.num_prompt_tokens
        load.backlog += self._uncached.get(request.index, 0)
        return replica

    def answered(self, request: TrafficRequest, replica: int) -> None:
        """The prompt has been computed. Where nobody tells, it counts as computed when the request has `ended`."""
        self.loads[replica].backlog -= self._uncached.pop(request.index, 0)

    def ended(self, request: TrafficRequest, replica: int) -> None:
        self.answered(request, replica)
        self.loads[replica].in_flight -= 1

    @abstractmethod
    def _choose(self, request: TrafficRequest, cached_tokens: CachedTokens) -> int: ...

    def _least_loaded(self) -> int:
        return min(range(len(self.loads)), key=self._load_order)

    def _load_order(self, replica: int) -> tuple[int, int, int]:
        load = self.loads[replica]
        return load.in_flight, load.sent, replica


class RoundRobin(Router):
    """One after the other, whatever is asked."""

    def __init__(self, num_replicas: int) -> None:
        super().__init__(num_replicas)
        self._next = 0

    def _choose(self, request: TrafficRequest, cached_tokens: CachedTokens) -> int:
        replica, self._next = self._next, (self._next + 1) % len(self.loads)
        return replica


class LeastLoaded(Router):
    """The fewest requests in flight, then the fewest prompt tokens so far."""

    def _choose(self, request: TrafficRequest, cached_tokens: CachedTokens) -> int:
        return self._least_loaded()


class Sticky(Router):
    """A session stays where its first request went, which is the least loaded replica. So does what has no session."""

    def __init__(self, num_replicas: int) -> None:
        super().__init__(num_replicas)
        self._homes: dict[str, int] = {}

    def _choose(self, request: TrafficRequest, cached_tokens: CachedTokens) -> int:
        if request.session_id is None:
            return self._least_loaded()
        home = self._homes.get(request.session_id)
        if home is None:
            home = self._homes[request.session_id] = self._least_loaded()
        return home


class PrefixAware(Router):
    """Where the least would be left to compute: prompt tokens of this request that are not cached there, and those that
    requests in flight there still have to compute. Ties go to the least loaded. So a cached prefix is worth the tokens
    that it saves, and no more: a replica that has it and a longer queue loses."""

    def _choose(self, request: TrafficRequest, cached_tokens: CachedTokens) -> int:
        uncached = [request.num_prompt_tokens - cached_tokens(replica) for replica in range(len(self.loads))]
        replica = min(
            range(len(self.loads)),
            key=lambda replica: (self.loads[replica].backlog + uncached[replica], *self._load_order(replica)),
        )
        self._uncached[request.index] = uncached[replica]
        return replica


ROUTERS: dict[RouterName, type[Router]] = {
    "round-robin": RoundRobin,
    "sticky": Sticky,
    "least-loaded": LeastLoaded,
    "prefix-aware": PrefixAware,
}
