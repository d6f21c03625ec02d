"""The loop around a scheduler, with a clock (vLLM: `v1/engine/core.py:EngineCore.step`, `step_with_batch_queue`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import inf

from pkv_sim.exact.scheduler import Scheduler
from pkv_sim.exact.scheduler_output import SchedulerOutput, StepResult
from pkv_sim.serving.times import EngineRun
from pkv_sim.timing.timing_profile import StepLoad, TimingProfile, Validity


class _SameToken(dict[str, int]):
    """What was sampled: for every request the same token."""

    def __missing__(self, request_id: str) -> int:
        return 0


SAMPLED = _SameToken()


class EngineLoop:
    """Steps follow each other without a gap as long as there is work. A synchronous engine schedules a step when the
    one before has ended; an asynchronous one schedules the next step when one begins, without its outcome."""

    def __init__(self, scheduler: Scheduler, timing: TimingProfile) -> None:
        self.scheduler = scheduler
        self.validity = Validity(timing)
        self._timing = timing
        self._depth = 2 if scheduler.config.async_scheduling else 1
        self._in_flight: deque[tuple[float, SchedulerOutput]] = deque()
        self._free_at = -inf
        self._steps = 0
        self._busy = 0.0
        self._peak_running = 0
        self._peak_waiting = 0

    @property
    def next_end(self) -> float:
        """When the oldest step in flight ends; infinity when there is none."""
        return self._in_flight[0][0] if self._in_flight else inf

    def take_output(self) -> StepResult:
        """Takes in the oldest step in flight."""
        return self.scheduler.update_from_output(self._in_flight.popleft()[1], SAMPLED)

    def start_steps(self, now: float) -> Iterator[SchedulerOutput]:
        """Schedules steps as long as there is work and fewer are in flight than may be."""
        scheduler = self.scheduler
        while len(self._in_flight) < self._depth and scheduler.has_unfinished_requests:
            output = scheduler.schedule()
            if not output.scheduled:
                # Whatever is there waits for the outcome of a step in flight.
                assert self._in_flight or not scheduler.has_unfinished_requests
                return
            load = StepLoad.of((item.first_position, item.num_new_tokens) for item in output.scheduled)
            seconds = self._timing.seconds(load)
            self._free_at = max(now, self._free_at) + seconds
            self._in_flight.append((self._free_at, output))
            self._steps += 1
            self._busy += seconds
            self._peak_running = max(self._peak_running, len(scheduler.running))
            self._peak_waiting = max(self._peak_waiting, len(scheduler.waiting))
            self.validity.add(load)
            yield output

    @property
    def run(self) -> EngineRun:
        """What it has done so far."""
        return EngineRun(self._steps, self._busy, self._peak_running, self._peak_waiting)
