"""The replicas of a simulation side by side, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pkv_sim.balance import ReplicaTotal, imbalance, replica_totals
from pkv_sim.outputs.json import rounded
from pkv_sim.outputs.text import percent
from pkv_sim.simulation import Simulation


def lines(simulation: Simulation) -> Iterator[str]:
    """One line for each replica, and how even the load is."""
    totals = replica_totals(simulation)
    yield f"{len(totals)} replicas, routed {simulation.settings.router}, each with a cache of its own"
    yield f"  {'replica':>7}  {'requests':>9}  {'prompt':>14}  {'cached':>14}  {'hit rate':>8}  {'computed':>14}"
    for total in totals:
        yield (
            f"  {total.replica:>7}  {total.requests:>9,}  {total.prompt_tokens:>14,}  {total.cached_tokens:>14,}  "
            f"{percent(total.hit_rate):>8}  {total.computed_tokens:>14,}"
        )
    yield f"  {balance(totals)}"


def balance(totals: Sequence[ReplicaTotal]) -> str:
    """How even the load is."""
    prompts = imbalance([total.prompt_tokens for total in totals])
    computed = imbalance([total.computed_tokens for total in totals])
    return f"the busiest replica over the mean: {prompts:.2f} in prompt tokens, {computed:.2f} in computed ones"


def members(simulation: Simulation) -> dict[str, Any]:
    totals = replica_totals(simulation)
    return {
        "replicas": [
            {
                "replica": total.replica,
                "requests": total.requests,
                "prompt_tokens": total.prompt_tokens,
                "cached_tokens": total.cached_tokens,
                "hit_rate": rounded(total.hit_rate),
            }
            for total in totals
        ],
        "imbalance": {
            "requests": rounded(imbalance([total.requests for total in totals])),
            "prompt_tokens": rounded(imbalance([total.prompt_tokens for total in totals])),
            "computed_tokens": rounded(imbalance([total.computed_tokens for total in totals])),
        },
    }
