"""What of a deployment the scheduler goes by."""

from __future__ import annotations

from dataclasses import dataclass

from pkv_lint.prompt.errors import InputError
from pkv_sim.exact.cache_group import CacheGroupSpec
from pkv_sim.exact.profile import DEFAULT_PROFILE, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Names and meanings are those of vLLM's engine arguments; lengths are in tokens.

    `num_gpu_blocks` counts the null block. `block_size` is that of the one full-attention group, unless `groups` says
    otherwise. `max_num_batched_tokens` is the token budget of a step, `max_num_seqs` the most requests that run at
    once. `scheduler_reserve_full_isl` None means the release's default.
    """

    num_gpu_blocks: int
    block_size: int
    max_model_len: int
    groups: tuple[CacheGroupSpec, ...] = ()
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    policy: str = "fcfs"
    async_scheduling: bool = True
    enable_prefix_caching: bool = True
    enable_kv_cache_events: bool = False
    watermark: float = 0.0
    long_prefill_token_threshold: int = 0
    scheduler_reserve_full_isl: bool | None = None
    profile: Profile = DEFAULT_PROFILE

    def __post_init__(self) -> None:
        """Raises InputError for values that vLLM would refuse."""
        for name in ("num_gpu_blocks", "block_size", "max_model_len", "max_num_batched_tokens", "max_num_seqs"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0.0 <= self.watermark < 1.0:
            raise InputError(f"watermark must be at least 0 and below 1, not {self.watermark}")
        if self.watermark and not self.profile.watermark:
            raise InputError("watermark came with vLLM 0.24")
        if self.async_scheduling and not self.profile.stale_outputs:
            raise InputError("asynchronous scheduling is modelled from vLLM 0.27 on: give async_scheduling=False")
        if self.long_prefill_token_threshold < 0:
            raise InputError(f"long_prefill_token_threshold must not be negative: {self.long_prefill_token_threshold}")

    @property
    def cache_groups(self) -> tuple[CacheGroupSpec, ...]:
        return self.groups or (CacheGroupSpec("full_attention", self.block_size),)

    @property
    def reserve_full_isl(self) -> bool:
        if self.scheduler_reserve_full_isl is None:
            return self.profile.reserve_full_isl
        return self.scheduler_reserve_full_isl
