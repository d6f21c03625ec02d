"""What one step of the scheduler decided, and what came of it (vLLM: `v1/core/sched/output.py`, `v1/engine`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pkv_sim.exact.events import KVCacheEvent
from pkv_sim.exact.request import Request


class ScheduledRequest(NamedTuple):
    """The share of one request in a step: tokens [first_position, first_position + num_new_tokens) are computed.

    `block_ids` is its block table in each KV cache group, from token 0 on and long enough for this step. The lists are
    the cache manager's own: read them, do not change them; later steps append to them until the request is preempted or
    ends.
    `admitted` tells that the request was waiting (for the first time or after a preemption), so its table is new.
    `samples` tells that the step computes the last known token, so that a token is to be sampled behind it.
    """

    request: Request
    num_new_tokens: int
    first_position: int
    block_ids: tuple[list[int], ...]
    admitted: bool
    samples: bool


@dataclass(frozen=True, slots=True)
class SchedulerOutput:
    """One step. `preempted` and `finished` are ids of requests that lost their place or ended since the last one."""

    scheduled: Sequence[ScheduledRequest]
    preempted: Sequence[str]
    finished: Sequence[str]

    @property
    def num_scheduled_tokens(self) -> int:
        return sum(item.num_new_tokens for item in self.scheduled)


class RequestOutput(NamedTuple):
    """A token that was sampled for a request; `finish_reason` (`stop` or `length`) with its last one."""

    request: Request
    token_id: int
    finish_reason: str | None


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step's output brought: tokens in the order of the schedule, and the KV cache events so far."""

    outputs: Sequence[RequestOutput]
    events: Sequence[KVCacheEvent]
