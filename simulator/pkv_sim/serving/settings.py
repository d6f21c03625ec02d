"""How a workload is simulated."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from pkv_lint.prompt.errors import InputError
from pkv_sim.exact.profile import DEFAULT_PROFILE, Profile
from pkv_sim.serving.limits import SchedulerLimits
from pkv_sim.serving.routing import RouterName
from pkv_sim.timing.timing_profile import TimingProfile
from pkv_sim.traffic.generated import REPLIES, Generated, Replies

Schedule = Literal["sequential", "recorded", "simulated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`num_gpu_blocks` is that of each replica and counts the null block, as vLLM does; None is a cache without
    bounds. `limits` are those of a step of the scheduler. `timing` says how long steps take; it is needed for the
    simulated schedule, and times nothing where it is None."""

    num_gpu_blocks: int | None = None
    schedule: Schedule = "sequential"
    generated: Generated = "recorded"
    profile: Profile = DEFAULT_PROFILE
    replicas: int = 1
    router: RouterName = "round-robin"
    limits: SchedulerLimits = field(default_factory=SchedulerLimits)
    timing: TimingProfile | None = None

    def __post_init__(self) -> None:
        """Raises InputError for simulated time without times of steps."""
        if self.schedule == "simulated" and self.timing is None:
            raise InputError(
                "--schedule simulated needs the times of steps: --timing FILE (measured), or --gpu NAME and a --model "
                "(estimated)"
            )

    @property
    def replies(self) -> Replies:
        """What of the replies is cached. In simulated time all that were generated take time and room as well."""
        replies = REPLIES[self.generated]
        return replace(replies, counted=self.generated != "none") if self.schedule == "simulated" else replies
