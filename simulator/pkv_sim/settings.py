"""How a workload is simulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pkv_sim.generated import Generated
from pkv_sim.profile import DEFAULT_PROFILE, Profile
from pkv_sim.routing import RouterName

Schedule = Literal["sequential", "recorded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`num_gpu_blocks` is that of each replica and counts the null block, as vLLM does; None is a cache without
    bounds."""

    num_gpu_blocks: int | None = None
    schedule: Schedule = "sequential"
    generated: Generated = "recorded"
    profile: Profile = DEFAULT_PROFILE
    replicas: int = 1
    router: RouterName = "round-robin"
