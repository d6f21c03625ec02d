"""`--step-log`: what arrived and what each step did, as JSON lines: enough to replay the run through the simulator."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any, BinaryIO

from pkv_sim.exact.request import Request
from pkv_sim.exact.scheduler_output import SchedulerOutput, StepResult


class StepLog:
    """Writes one line for each arrival, abort, reset and step. Times are seconds since the log began."""

    def __init__(self, file: BinaryIO) -> None:
        """`file` is not buffered."""
        self._file = file
        self._start = time.perf_counter()
        self._num_steps = 0

    def arrival(self, request: Request) -> None:
        self._write(
            {
                "event": "arrival",
                "id": request.request_id,
                "prompt": request.token_ids[: request.num_prompt_tokens].tolist(),
                "max_tokens": request.max_tokens,
                "cache_salt": request.cache_salt,
                "priority": request.priority,
                "arrival": request.arrival,
            }
        )

    def aborted(self, request_ids: Iterable[str]) -> None:
        """Requests that ended between two steps, before they were done."""
        for request_id in request_ids:
            self._write({"event": "abort", "id": request_id})

    def reset(self) -> None:
        """The prefix cache was forgotten."""
        self._write({"event": "reset"})

    def step(self, output: SchedulerOutput, result: StepResult) -> None:
        """`scheduled` has [request, first position, new tokens], `sampled` the token of each request that got one."""
        self._write(
            {
                "event": "step",
                "number": self._num_steps,
                "scheduled": [
                    [item.request.request_id, item.first_position, item.num_new_tokens] for item in output.scheduled
                ],
                "preempted": list(output.preempted),
                "finished": list(output.finished),
                "sampled": {item.request.request_id: item.token_id for item in result.outputs},
            }
        )
        self._num_steps += 1

    def _write(self, row: dict[str, Any]) -> None:
        line = json.dumps(row | {"time": round(time.perf_counter() - self._start, 6)}) + "\n"
        self._file.write(line.encode())
