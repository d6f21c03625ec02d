"""Discrete-event simulation: requests arrive at their times at engines that run the exact scheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from math import ceil, inf

from pkv_lint.findings import counted
from pkv_lint.prompt.errors import InputError
from pkv_sim.exact.request import Request
from pkv_sim.exact.scheduler import Scheduler
from pkv_sim.exact.scheduler_output import RequestOutput, ScheduledRequest
from pkv_sim.fast.prefix_tree import BlockRequest, PrefixTree
from pkv_sim.progress import Progress, silently
from pkv_sim.serving.chains import ChainHasher, SchedulerCache, chain_names, prompt_without_content
from pkv_sim.serving.engine_loop import EngineLoop
from pkv_sim.serving.reasons import Reasons
from pkv_sim.serving.replay import Replayed, cached_tokens_on
from pkv_sim.serving.routing import ROUTERS
from pkv_sim.serving.settings import Settings
from pkv_sim.serving.times import Times
from pkv_sim.traffic.generated import Replies
from pkv_sim.traffic.workload import TrafficRequest

MOST_BLOCKS = 1 << 26
"""On all replicas together: each takes about 100 bytes of memory, used or not."""


class _UnderWay:
    """A request between arrival and end: the names of its blocks, and how many of them were findable so far."""

    __slots__ = ("names", "num_findable")

    def __init__(self, names: list[bytes]) -> None:
        self.names = names
        self.num_findable = 0


class SimulatedReplay:
    """Everything happens at the end of a step or at an arrival. At equal times outputs come in first, then requests
    arrive, then the next steps are scheduled; replicas take their turns by number, requests by their order."""

    def __init__(
        self,
        requests: Sequence[TrafficRequest],
        tree: PrefixTree,
        in_blocks: Sequence[BlockRequest],
        settings: Settings,
    ) -> None:
        """Raises InputError for requests without a time, and for what the release lacks."""
        assert settings.timing is not None
        for request in requests:
            if request.start is None:
                message = "has no timestamp, which --schedule simulated needs"
                raise InputError(message, file=request.file, line=request.line)
        config = settings.limits.config(num_gpu_blocks(settings, in_blocks), tree.block_size, settings.profile)
        self._engines = tuple(EngineLoop(Scheduler(config), settings.timing) for _ in range(settings.replicas))
        self.caches = tuple(SchedulerCache(tree, engine.scheduler) for engine in self._engines)
        self._intake = settings.timing.intake
        self._router = ROUTERS[settings.router](settings.replicas)
        self._requests = requests
        self._in_blocks = in_blocks
        self._tree = tree
        self._replies = settings.replies
        self._reasons: Reasons | None = None
        self._under_way: dict[int, _UnderWay] = {}
        # The names of all blocks that were ever findable on some replica.
        self._known: set[bytes] = set()
        self._cached_tokens: list[int | None] = [None] * len(requests)
        self._replicas = [0] * len(requests)
        self._admitted = [0.0] * len(requests)
        self._first_token = [0.0] * len(requests)
        self._times: list[Times | None] = [None] * len(requests)

    def run(self, reasons: Reasons | None = None, progress: Progress = silently) -> Replayed:
        self._reasons = reasons
        for _ in progress(self._until_all_have_ended(), "requests simulated:", len(self._requests)):
            pass
        return Replayed(
            self._cached_tokens,
            self._replicas,
            times=self._times,
            engines=[engine.run for engine in self._engines],
            notes=[*self._notes()],
        )

    def _notes(self) -> Iterator[str]:
        unknown = sum(request.num_generated_tokens is None for request in self._requests)
        if unknown and self._replies.counted:
            yield f"{counted(unknown, 'request')} without a recorded reply: only a first token is simulated"
        for replica, engine in enumerate(self._engines):
            where = f"replica {replica}: " if len(self._engines) > 1 else ""
            yield from (where + note for note in engine.validity.notes())

    def _until_all_have_ended(self) -> Iterator[int]:
        """Yields the places of requests as they end."""
        taken_in = (
            (request.start or 0.0) + self._intake.seconds(request.num_prompt_tokens) for request in self._requests
        )
        arrivals = deque(sorted(enumerate(taken_in), key=lambda arrival: arrival[1]))
        engines = self._engines
        while True:
            now = min(arrivals[0][1] if arrivals else inf, *(engine.next_end for engine in engines))
            if now == inf:
                return
            # An engine that has filled its queue looks at nothing until the oldest step has ended.
            ready = [replica for replica, engine in enumerate(engines) if not now < engine.next_end < inf]
            for replica in ready:
                if engines[replica].next_end < inf:
                    for token in engines[replica].take_output().outputs:
                        if self._sampled(token, replica, now):
                            yield int(token.request.request_id)
            while arrivals and arrivals[0][1] <= now:
                at, _ = arrivals.popleft()
                if not self._arrive(at, now):
                    yield at
            for replica in ready:
                for output in engines[replica].start_steps(now):
                    for item in output.scheduled:
                        self._scheduled(item, replica, now)

    def _arrive(self, at: int, now: float) -> bool:
        """Sends a request to a replica. False when that refuses it."""
        request, blocks = self._requests[at], self._in_blocks[at]
        replica = self._replicas[at] = self._router.route(request, partial(cached_tokens_on, self.caches, blocks))
        names = chain_names(self._tree, blocks.segment, blocks.full_blocks)
        try:
            self._engines[replica].scheduler.add(
                Request(
                    f"{at:010}",
                    prompt_without_content(request.num_prompt_tokens),
                    max_tokens=num_output_tokens(request, self._replies),
                    hasher=ChainHasher(names, self._tree.block_size),
                    arrival=now,
                    priority=request.priority,
                    skip_reading_prefix_cache=not request.reads_cache,
                )
            )
        except InputError:
            self._router.ended(request, replica)
            return False
        self._under_way[at] = _UnderWay(names)
        return True

    def _scheduled(self, item: ScheduledRequest, replica: int, now: float) -> None:
        """A request got its share of a step that was scheduled now."""
        request = item.request
        at = int(request.request_id)
        if item.admitted and self._cached_tokens[at] is None:
            self._admitted[at] = now
            # In some releases the reported figure changes with preemptions; this is the one of the first admission.
            hit = self._cached_tokens[at] = request.num_cached_tokens or 0
            if self._reasons is not None:
                names = self._under_way[at].names[: self._in_blocks[at].prompt_blocks]
                known = next((number for number, name in enumerate(names) if name not in self._known), len(names))
                elsewhere = self._reasons.elsewhere(at, replica)
                self._reasons.admitted(at, replica, hit // self._tree.block_size, elsewhere, known)
        # Sampled tokens that have not come back do not count (`KVCacheManager.allocate_slots`).
        self._findable(at, min(item.first_position + item.num_new_tokens, request.num_tokens))

    def _findable(self, at: int, num_tokens: int) -> None:
        """The full blocks among the first tokens of a request can be hit from now on."""
        under_way, count = self._under_way[at], num_tokens // self._tree.block_size
        if count > under_way.num_findable:
            self._known.update(under_way.names[under_way.num_findable : count])
            under_way.num_findable = count

    def _sampled(self, token: RequestOutput, replica: int, now: float) -> bool:
        """A step that has ended now brought a token. True when it was the request's last one."""
        request = token.request
        if request.num_output_tokens > 1 and not token.finish_reason:
            return False
        at = int(request.request_id)
        if request.num_output_tokens == 1:
            self._first_token[at] = now
            self._router.answered(self._requests[at], replica)
        if not token.finish_reason:
            return False
        self._times[at] = Times(
            self._requests[at].start or 0.0,
            self._admitted[at],
            self._first_token[at],
            now,
            request.num_output_tokens,
            request.num_preemptions,
        )
        self._findable(at, request.num_tokens - 1)
        del self._under_way[at]
        self._router.ended(self._requests[at], replica)
        if self._reasons is not None:
            self._reasons.ended(at, replica)
        return True


def num_gpu_blocks(settings: Settings, in_blocks: Sequence[BlockRequest]) -> int:
    """The blocks of a replica. More than are ever computed, above the watermark, change nothing but the memory that the
    simulation takes; as many stand in where there is no limit. Raises InputError for more than memory should hold."""
    computed = sum(blocks.num_blocks for blocks in in_blocks)
    most = 2 + ceil((computed + 1) / (1 - settings.limits.watermark))
    found = min(settings.num_gpu_blocks or most, most)
    if found * settings.replicas > MOST_BLOCKS:
        raise InputError(
            f"--schedule simulated keeps each block of the cache in memory: {found * settings.replicas:,} are more "
            f"than {MOST_BLOCKS:,}, say fewer with --num-gpu-blocks"
        )
    return found


def num_output_tokens(request: TrafficRequest, replies: Replies) -> int:
    """How many tokens a request generates: those of the reply whose text counts, else as many as are recorded. At least
    one: without a recorded length a request ends with its first token."""
    if replies.text and request.generated:
        return len(request.generated) + 1
    return max(1, request.num_generated_tokens or 1) if replies.counted else 1
