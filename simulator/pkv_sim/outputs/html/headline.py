"""What a page says first."""

from __future__ import annotations

from collections.abc import Sequence

from pkv_sim.outputs.text import percent
from pkv_sim.serving.misses import Misses
from pkv_sim.simulation import Simulation, share

BIGGEST = {
    "other_replica": "{} are cached on another replica",
    "other_namespace": "{} are cached under another salt or adapter",
    "evicted": "{} were evicted",
    "last_block": "{} stand in last blocks, which are always computed",
    "diverged": "{} stand behind a divergence",
    "first_seen": "{} are new",
    "partial_block": "{} stand behind the last full block",
    "below_block": "{} stand in prompts shorter than a block",
}
"""What the headline says of the biggest part that is not cached."""


def headline(simulations: Sequence[Simulation]) -> str:
    """The hit rate and the biggest reason why it is not higher; of two, how it changes."""
    last = simulations[-1]
    if not any(simulation.prompt_tokens for simulation in simulations):
        return "No request was simulated"
    if len(simulations) > 1:
        old, new = (simulation.hit_rate for simulation in simulations)
        if percent(old, 2) == percent(new, 2):
            return f"The hit rate stays at {percent(new, 2)}"
        return f"The hit rate {'rises' if new > old else 'falls'} from {percent(old, 2)} to {percent(new, 2)}"
    if not last.workload.content_known:
        return "Only lengths are recorded, so nothing is known of what could be cached"
    first = f"{percent(last.hit_rate)} of the prompt tokens are cached"
    if not last.misses.tokens:
        return first
    tokens, reason = max(zip(last.misses, Misses._fields, strict=True))
    part = percent(share(tokens, last.prompt_tokens))
    return f"{first}; {BIGGEST[reason].format(part)}"
