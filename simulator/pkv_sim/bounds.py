"""How much depends on whether generated text is reused: the hit rate if none of it is, and if all of it is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pkv_sim.serving.settings import Settings
from pkv_sim.simulation import cached_tokens, share
from pkv_sim.traffic.generated import Generated, turns_tell
from pkv_sim.traffic.workload import Workload


@dataclass(frozen=True, slots=True)
class Bounds:
    """Hit rates when replies take up room and are never reused, and when each is reused as its next turn has it."""

    none_reused: float
    all_reused: float


def bounds_of(workload: Workload, settings: Settings) -> Bounds | None:
    """None when nothing can be known of the replies, and in simulated time, which would have to pass twice more."""
    if settings.schedule == "simulated":
        return None
    known = any(request.num_generated_tokens is not None for request in workload.requests)
    if not workload.content_known or not (known or turns_tell(workload.requests, workload.end_token)):
        return None
    rates = []
    modes: tuple[Generated, ...] = ("counted", "text")
    for mode in modes:
        tokens = cached_tokens(workload, replace(settings, generated=mode))
        prompts = sum(
            request.num_prompt_tokens
            for request, cached in zip(workload.requests, tokens, strict=True)
            if cached is not None
        )
        rates.append(share(sum(cached or 0 for cached in tokens), prompts))
    return Bounds(*rates)
