"""The times of all requests of a simulation together."""

from __future__ import annotations

from dataclasses import dataclass

from pkv_sim.serving.times import Distribution
from pkv_sim.simulation import Simulation, share


@dataclass(frozen=True, slots=True)
class Latency:
    """Distributions in seconds over the requests: of the time to first token, and under the simulated schedule of the
    time in the queue, the time per output token behind the first one (None: no request has two) and the time from
    arrival to the last token."""

    ttft: Distribution
    queued: Distribution | None = None
    tpot: Distribution | None = None
    e2e: Distribution | None = None


@dataclass(frozen=True, slots=True)
class Throughput:
    """From the first arrival to the last token, all replicas together."""

    seconds: float
    requests: int
    prompt_tokens: int
    output_tokens: int
    preemptions: int

    def per_second(self, count: int) -> float:
        return share(count, self.seconds)


def latency_of(simulation: Simulation) -> Latency | None:
    """None where nothing was timed or served."""
    ttft = Distribution.of(item.ttft for item in simulation.served if item.ttft is not None)
    if ttft is None:
        return None
    times = [item.times for item in simulation.served if item.times is not None]
    return Latency(
        ttft,
        Distribution.of(item.queued for item in times),
        Distribution.of(item.tpot for item in times if item.tpot is not None),
        Distribution.of(item.e2e for item in times),
    )


def throughput_of(simulation: Simulation) -> Throughput | None:
    """None under other schedules than the simulated one."""
    times = [item.times for item in simulation.served if item.times is not None]
    if not times:
        return None
    return Throughput(
        max(item.finished for item in times) - min(item.arrival for item in times),
        len(times),
        simulation.prompt_tokens,
        sum(item.output_tokens for item in times),
        sum(item.preemptions for item in times),
    )
