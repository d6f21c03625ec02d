"""Which tokens are computed in the next step (vLLM: `v1/core/sched/scheduler.py`, `async_scheduler.py`).

Knows no clock and does no I/O: the caller says when a step happens and what it sampled. A synchronous caller alternates
`schedule` and `update_from_output`; an asynchronous one calls `schedule` once more before it hands in the output of the
step before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pkv_lint.prompt.errors import InputError
from pkv_sim.exact.cache_manager import KVCacheManager
from pkv_sim.exact.request import Request, RequestStatus
from pkv_sim.exact.request_queue import build_request_queue
from pkv_sim.exact.scheduler_config import SchedulerConfig
from pkv_sim.exact.scheduler_output import RequestOutput, ScheduledRequest, SchedulerOutput, StepResult


class _Step:
    """A step while it is being put together: the budget left, and how many tokens each chosen request computes."""

    __slots__ = ("admitted", "budget", "chosen", "long_prefill_threshold", "num_preempted")

    def __init__(self, budget: int, long_prefill_threshold: int) -> None:
        self.budget = budget
        self.long_prefill_threshold = long_prefill_threshold
        self.chosen: dict[Request, int] = {}
        self.admitted: set[Request] = set()
        self.num_preempted = 0

    def chunk(self, num_tokens: int) -> int:
        """How many of `num_tokens` a request may compute in this step."""
        if 0 < self.long_prefill_threshold < num_tokens:
            num_tokens = self.long_prefill_threshold
        return min(num_tokens, self.budget)

    def choose(self, request: Request, num_tokens: int) -> None:
        self.chosen[request] = num_tokens
        self.budget -= num_tokens


class Scheduler:
    """Continuous batching over a paged KV cache: prefix caching, chunked prefill, preemption by recomputation."""

    def __init__(self, config: SchedulerConfig) -> None:
        """Raises InputError for a policy or KV cache groups that are not modelled."""
        self.config = config
        self.cache = KVCacheManager(
            config.num_gpu_blocks,
            config.cache_groups,
            max_model_len=config.max_model_len,
            enable_prefix_caching=config.enable_prefix_caching,
            enable_kv_cache_events=config.enable_kv_cache_events,
            watermark=config.watermark,
            profile=config.profile,
        )
        self.requests: dict[str, Request] = {}
        self.running: list[Request] = []
        self.waiting = build_request_queue(config.policy)
        self._preempted: list[str] = []
        self._finished: list[str] = []

    def add(self, request: Request) -> None:
        """Puts a new request at its place among the waiting ones.

        Raises InputError for one that can never run: its prompt leaves no room for an output token within
        `max_model_len`, or the cache cannot hold it even alone (vLLM checks that at start-up, for `max_model_len`).
        """
        if request.request_id in self.requests:
            raise ValueError(f"a request {request.request_id!r} is there already")
        if request.num_tokens >= self.config.max_model_len:
            raise InputError(
                f"request {request.request_id}: its {request.num_tokens} prompt tokens leave no room for an output "
                f"token within max_model_len = {self.config.max_model_len}"
            )
        # The last output token needs no slot.
        most = min(request.num_prompt_tokens + request.max_tokens, self.config.max_model_len) - 1
        needed = sum(group.blocks_needed(most) for group in self.cache.groups)
        usable = self.cache.pool.num_gpu_blocks - 1
        if needed > usable:
            raise InputError(
                f"request {request.request_id}: needs {needed} blocks for its {most} tokens, "
                f"and the KV cache has {usable} in all"
            )
        self.requests[request.request_id] = request
        self.waiting.add(request)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Ends requests that wait or run, in the given order, and frees their blocks at once; ignores unknown ids."""
        for request_id in request_ids:
            request = self.requests.get(request_id)
            if request is not None:
                self._remove(request)
                self._finish(request, RequestStatus.FINISHED_ABORTED)

    def reset(self, *, reset_running_requests: bool = False) -> bool:
        """Forgets the prefix cache (`POST /reset_prefix_cache`). Refused (False) while any block is in use, unless
        running requests may be preempted; their outputs in flight are then dropped and computed again."""
        while reset_running_requests and self.running:
            # From the back, so that they wait in the order in which they ran.
            self._preempt(self.running.pop(), drop_stale_output=True)
        return self.cache.reset_prefix_cache()

    @property
    def has_unfinished_requests(self) -> bool:
        return bool(self.requests)

    def schedule(self) -> SchedulerOutput:
        """Decides the next step, admits and preempts as needed, and counts its tokens as computed."""
        config = self.config
        alone = config.profile.long_prefill_alone and len(self.running) + len(self.waiting) <= 1
        step = _Step(config.max_num_batched_tokens, 0 if alone else config.long_prefill_token_threshold)
        self._schedule_running(step)
        if not step.num_preempted:
            self._schedule_waiting(step)
        output = SchedulerOutput(
            scheduled=[self._advance(request, count, step) for request, count in step.chosen.items()],
            preempted=self._preempted,
            finished=self._finished,
        )
        self._preempted, self._finished = [], []
        return output

    def _schedule_running(self, step: _Step) -> None:
        index = 0
        while index < len(self.running) and step.budget > 0:
            request = self.running[index]
            index += 1
            if self._certain_to_finish(request):
                continue
            num_new_tokens = min(
                step.chunk(request.num_tokens + request.num_output_placeholders - request.num_computed_tokens),
                # The last position within the model's length is only ever sampled.
                self.config.max_model_len - 1 - request.num_computed_tokens,
            )
            if num_new_tokens <= 0:
                continue
            while not self.cache.allocate_slots(request, num_new_tokens):
                position = self._preempt_lowest(step)
                if position < index:
                    index -= 1
                if request.status is RequestStatus.PREEMPTED:
                    # Nobody was left to give way but the request itself.
                    return
            step.choose(request, num_new_tokens)

    @staticmethod
    def _certain_to_finish(request: Request) -> bool:
        """Whether the outputs in flight reach max_tokens, so that another step would be for nothing (async only)."""
        return (
            request.num_output_placeholders > 0
            and request.num_computed_tokens + 2 - request.num_output_placeholders
            >= request.num_prompt_tokens + request.max_tokens
        )

    def _preempt_lowest(self, step: _Step) -> int:
        """Preempts the running request that is last in order, and returns where it stood."""
        if self.config.policy == "priority":
            victim = max(self.running, key=lambda request: (request.priority, request.arrival))
            position = self.running.index(victim)
            del self.running[position]
            # It may have been chosen for this step already.
            step.budget += step.chosen.pop(victim, 0)
        else:
            position = len(self.running) - 1
            victim = self.running.pop()
        self._preempt(victim)
        step.num_preempted += 1
        return position

    def _preempt(self, request: Request, *, drop_stale_output: bool = False) -> None:
        """Takes a request's blocks away; it will compute its tokens again, or hit those that are still cached."""
        self.cache.free(request)
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        # Outputs in flight are still delivered, unless they must be dropped; they no longer move the counters.
        request.drop_stale_output = drop_stale_output or (
            request.drop_stale_output and request.num_stale_output_tokens > 0
        )
        request.num_stale_output_tokens = request.num_in_flight_tokens
        request.num_output_placeholders = 0
        request.num_preemptions += 1
        self.waiting.prepend(request)
        self._preempted.append(request.request_id)

    def _schedule_waiting(self, step: _Step) -> None:
        passed_over = []
        while self.waiting and step.budget > 0 and len(self.running) < self.config.max_num_seqs:
            request = self.waiting.peek()
            if request.num_stale_output_tokens and not request.drop_stale_output:
                # An output that is still to be delivered could otherwise be sampled a second time.
                passed_over.append(self.waiting.pop())
                continue
            computed = self.cache.get_computed_blocks(request)
            num_new_tokens = step.chunk(request.num_tokens - computed.num_tokens)
            if not self.cache.allocate_slots(
                request,
                num_new_tokens,
                computed,
                full_sequence_must_fit=self.config.reserve_full_isl,
                has_running_requests=bool(self.running),
            ):
                # Head-of-line blocking: nobody overtakes. The lookup is done anew next time.
                break
            self.cache.record_admission(request, computed)
            self.running.append(self.waiting.pop())
            request.status = RequestStatus.RUNNING
            request.num_computed_tokens = computed.num_tokens
            if self._reports_hit(request):
                request.num_cached_tokens = computed.num_tokens
            step.choose(request, num_new_tokens)
            step.admitted.add(request)
        for request in reversed(passed_over):
            self.waiting.prepend(request)

    def _reports_hit(self, request: Request) -> bool:
        """Whether the hit of this admission is the one that usage reports as cached_tokens."""
        if self.config.profile.cached_tokens_rewritten:
            return not request.num_output_tokens
        return request.num_cached_tokens is None

    def _advance(self, request: Request, num_new_tokens: int, step: _Step) -> ScheduledRequest:
        first_position = request.num_computed_tokens
        request.num_computed_tokens += num_new_tokens
        request.num_in_flight_tokens += num_new_tokens
        samples = request.num_computed_tokens >= request.num_tokens + request.num_output_placeholders
        if samples and self.config.async_scheduling:
            request.num_output_placeholders += 1
        return ScheduledRequest(
            request,
            num_new_tokens,
            first_position,
            self.cache.block_tables(request.request_id),
            admitted=request in step.admitted,
            samples=samples,
        )

    def update_from_output(self, output: SchedulerOutput, sampled: Mapping[str, int]) -> StepResult:
        """Takes in what a step computed: `sampled` has the token of each request id whose share `samples`.

        Steps come in in the order in which they were scheduled. Requests that have ended meanwhile are passed over.
        """
        outputs = []
        for item in output.scheduled:
            request = item.request
            if request.finished:
                continue
            request.num_in_flight_tokens -= item.num_new_tokens
            stale = request.num_stale_output_tokens > 0
            if stale:
                request.num_stale_output_tokens -= item.num_new_tokens
                if request.drop_stale_output:
                    continue
            if not item.samples:
                continue
            token_id = sampled[request.request_id]
            self._append_output(request, token_id, stale=stale)
            if status := self._stop_status(request, token_id):
                self._remove(request)
                self._finish(request, status)
            outputs.append(RequestOutput(request, token_id, request.finish_reason))
        return StepResult(outputs, self.cache.take_events())

    def _append_output(self, request: Request, token_id: int, *, stale: bool) -> None:
        request.append_output_token(token_id)
        if self.config.async_scheduling:
            if not stale:
                request.num_output_placeholders -= 1
            if request.status is RequestStatus.RUNNING:
                # The token was not known when its slot was scheduled, so a block that it fills is registered only now.
                self.cache.cache_blocks(request, request.num_computed_tokens - request.num_output_placeholders)

    def _stop_status(self, request: Request, token_id: int) -> RequestStatus | None:
        if token_id in request.stop_token_ids:
            return RequestStatus.FINISHED_STOPPED
        if request.num_tokens >= self.config.max_model_len or request.num_output_tokens >= request.max_tokens:
            return RequestStatus.FINISHED_LENGTH_CAPPED
        return None

    def _remove(self, request: Request) -> None:
        if request.status is RequestStatus.RUNNING:
            self.running.remove(request)
        else:
            self.waiting.remove(request)

    def _finish(self, request: Request, status: RequestStatus) -> None:
        request.status = status
        self.cache.free(request)
        del self.requests[request.request_id]
        self._finished.append(request.request_id)

    def check_invariants(self) -> None:
        """Raises AssertionError when queues, counters and cache contradict each other. For tests: it is slow."""
        self.cache.check_invariants()
        assert len(self.running) + len(self.waiting) == len(self.requests)
        assert len(self.running) <= self.config.max_num_seqs
        running = {request.request_id for request in self.running}
        for group in self.cache.groups:
            assert group.tables.keys() == running
        for request in self.running:
            assert request.status is RequestStatus.RUNNING
            assert request.num_computed_tokens <= request.num_tokens + request.num_output_placeholders
            for group, table in zip(self.cache.groups, self.cache.block_tables(request.request_id), strict=True):
                assert len(table) == group.blocks_needed(request.num_computed_tokens)
        for request in self.requests.values():
            assert 0 <= request.num_stale_output_tokens <= request.num_in_flight_tokens
