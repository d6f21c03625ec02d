"""When the requests of a simulated schedule waited, answered and ended, in seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor


@dataclass(frozen=True, slots=True)
class Times:
    """One request. `arrival`, `admitted` (its first place in a step), `first_token` and `finished` are on the clock of
    the traffic; tokens count as delivered when their step ends."""

    arrival: float
    admitted: float
    first_token: float
    finished: float
    output_tokens: int
    preemptions: int

    @property
    def queued(self) -> float:
        return self.admitted - self.arrival

    @property
    def ttft(self) -> float:
        """Time to first token."""
        return self.first_token - self.arrival

    @property
    def tpot(self) -> float | None:
        """Time per output token behind the first one; None where there is no other."""
        return (self.finished - self.first_token) / (self.output_tokens - 1) if self.output_tokens > 1 else None

    @property
    def e2e(self) -> float:
        """From arrival to the last token."""
        return self.finished - self.arrival


@dataclass(frozen=True, slots=True)
class EngineRun:
    """What the engine of one replica did: `steps`, the `busy` seconds that these took, and the most requests that ran
    and waited at once."""

    steps: int
    busy: float
    peak_running: int
    peak_waiting: int


@dataclass(frozen=True, slots=True)
class Distribution:
    """Percentiles between the two nearest values, as numpy's default has them."""

    mean: float
    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Distribution | None:
        """None of nothing."""
        ordered = sorted(values)
        if not ordered:
            return None
        p50, p95, p99 = (percentile(ordered, share) for share in (0.50, 0.95, 0.99))
        return cls(sum(ordered) / len(ordered), p50, p95, p99, ordered[-1])


def percentile(ordered: list[float], share: float) -> float:
    """The value below which this share of ascending values lies, in proportion between the two nearest."""
    place = share * (len(ordered) - 1)
    low = floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
