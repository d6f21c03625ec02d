"""What a deployment lets the scheduler do in a step."""

from __future__ import annotations

from dataclasses import dataclass

from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import InputError
from pkv_sim.exact.profile import Profile
from pkv_sim.exact.scheduler_config import SchedulerConfig
from pkv_sim.timing.gpus import Gpu

# What vLLM's server takes on an H100 when nothing is said.
MAX_NUM_BATCHED_TOKENS = 8192
MAX_NUM_SEQS = 1024
NO_LENGTH = 1 << 40
"""More than any request has, where the model's length is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """Names and meanings are those of vLLM's engine arguments; lengths are in tokens. `max_model_len` None: not
    known."""

    max_num_batched_tokens: int = MAX_NUM_BATCHED_TOKENS
    max_num_seqs: int = MAX_NUM_SEQS
    max_model_len: int | None = None
    policy: str = "fcfs"
    async_scheduling: bool = True
    watermark: float = 0.0
    long_prefill_token_threshold: int = 0
    scheduler_reserve_full_isl: bool | None = None

    @classmethod
    def of(cls, deployment: Deployment, max_model_len: int | None, gpu: Gpu | None) -> SchedulerLimits:
        """What was stated, else what vLLM's server takes on this GPU (None: on an H100). Raises InputError for what
        vLLM would refuse."""
        tokens = deployment.max_num_batched_tokens or (gpu.max_num_batched_tokens if gpu else MAX_NUM_BATCHED_TOKENS)
        sequences = deployment.max_num_seqs
        if sequences is None:
            sequences = min(gpu.max_num_seqs if gpu else MAX_NUM_SEQS, tokens)
        elif sequences > tokens:
            raise InputError(f"--max-num-seqs {sequences:,} is more than --max-num-batched-tokens {tokens:,}")
        return cls(
            max_num_batched_tokens=tokens,
            max_num_seqs=sequences,
            max_model_len=max_model_len,
            policy=deployment.scheduling_policy,
            async_scheduling=deployment.async_scheduling,
            watermark=deployment.watermark,
            long_prefill_token_threshold=deployment.long_prefill_token_threshold,
            scheduler_reserve_full_isl=deployment.scheduler_reserve_full_isl,
        )

    def config(self, num_gpu_blocks: int, block_size: int, profile: Profile) -> SchedulerConfig:
        """Raises InputError for what the release lacks."""
        if self.async_scheduling and not profile.stale_outputs:
            raise InputError(
                "asynchronous scheduling is modelled from vLLM 0.27 on: say --no-async-scheduling in --vllm-args"
            )
        return SchedulerConfig(
            num_gpu_blocks=num_gpu_blocks,
            block_size=block_size,
            max_model_len=self.max_model_len or NO_LENGTH,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_num_seqs=self.max_num_seqs,
            policy=self.policy,
            async_scheduling=self.async_scheduling,
            watermark=self.watermark,
            long_prefill_token_threshold=self.long_prefill_token_threshold,
            scheduler_reserve_full_isl=self.scheduler_reserve_full_isl,
            profile=profile,
        )
