"""What each replica got and served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pkv_sim.simulation import Simulation, share


@dataclass(frozen=True, slots=True)
class ReplicaTotal:
    """The requests that one replica served; tokens are those of their prompts."""

    replica: int
    requests: int
    prompt_tokens: int
    cached_tokens: int

    @property
    def computed_tokens(self) -> int:
        return self.prompt_tokens - self.cached_tokens

    @property
    def hit_rate(self) -> float:
        return share(self.cached_tokens, self.prompt_tokens)


def replica_totals(simulation: Simulation) -> tuple[ReplicaTotal, ...]:
    """By the number of the replica."""
    count = simulation.settings.replicas
    requests, prompts, cached = [0] * count, [0] * count, [0] * count
    for item in simulation.served:
        requests[item.replica] += 1
        prompts[item.replica] += item.request.num_prompt_tokens
        cached[item.replica] += item.cached_tokens
    return tuple(map(ReplicaTotal, range(count), requests, prompts, cached))


def imbalance(values: Sequence[int]) -> float:
    """The largest of the replicas' values over their mean: 1 when all are equal, their number when one has it all."""
    return share(max(values) * len(values), sum(values))
