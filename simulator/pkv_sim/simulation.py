"""Replay of a traffic: what each request hits, and why not more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pkv_sim.progress import Progress, silently
from pkv_sim.serving.misses import Misses, total
from pkv_sim.serving.reasons import Reasons
from pkv_sim.serving.replay import RecordedReplays, Replay, SequentialReplay, Waits
from pkv_sim.serving.settings import Schedule, Settings
from pkv_sim.serving.simulated import SimulatedReplay
from pkv_sim.serving.times import EngineRun, Times
from pkv_sim.timing.alone import Alone
from pkv_sim.traffic.generated import with_next_turns
from pkv_sim.traffic.in_blocks import in_blocks_of
from pkv_sim.traffic.workload import Blame, Refused, TrafficRequest, Workload

REPLAYS: dict[Schedule, Callable[..., Replay]] = {
    "sequential": SequentialReplay,
    "recorded": RecordedReplays,
    "simulated": SimulatedReplay,
}


@dataclass(frozen=True, slots=True)
class Served:
    """One request after the simulation: tokens are those of its prompt, `replica` is the number of the one that it was
    sent to. `times` are those of the simulated schedule; `ttft` is the time to first token in seconds, under the other
    schedules as if the request were alone; both are None where nothing is timed."""

    request: TrafficRequest
    cached_tokens: int
    misses: Misses
    replica: int = 0
    blames: tuple[Blame, ...] = ()
    ttft: float | None = None
    times: Times | None = None


@dataclass(frozen=True)
class Simulation:
    """What the cache did for a workload: `served` in the order of arrival, `refused` by their place in the file. Under
    the simulated schedule `engines` are the replicas', by number. `notes` are sentences about the figures."""

    workload: Workload
    settings: Settings
    served: tuple[Served, ...]
    refused: tuple[Refused, ...]
    waits: Waits | None = None
    engines: tuple[EngineRun, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def misses(self) -> Misses:
        return total(item.misses for item in self.served)

    @cached_property
    def prompt_tokens(self) -> int:
        return sum(item.request.num_prompt_tokens for item in self.served)

    @cached_property
    def cached_tokens(self) -> int:
        return sum(item.cached_tokens for item in self.served)

    @cached_property
    def full_blocks(self) -> int:
        """Full blocks of all prompts."""
        return sum(item.request.num_prompt_tokens // self.workload.block_size for item in self.served)

    @property
    def hit_blocks(self) -> int:
        return self.cached_tokens // self.workload.block_size

    @property
    def hit_rate(self) -> float:
        """Cached prompt tokens over prompt tokens, which is vLLM's own metric."""
        return share(self.cached_tokens, self.prompt_tokens)

    @property
    def block_hit_rate(self) -> float:
        """Hit blocks over full blocks of the prompts."""
        return share(self.hit_blocks, self.full_blocks)


def share(part: float, whole: float) -> float:
    """A part of a whole; 0 of nothing."""
    return part / whole if whole else 0.0


def simulate(workload: Workload, settings: Settings, progress: Progress = silently) -> Simulation:
    """Serve the requests of a workload in their order. `progress` shows how far it is.

    Raises InputError for a schedule that the workload lacks the times for.
    """
    requests = with_replies(workload, settings)
    tree, in_blocks = in_blocks_of(requests, workload.block_size, settings.replies)
    replay = REPLAYS[settings.schedule](requests, tree, in_blocks, settings)
    bounded = settings.num_gpu_blocks is not None
    reasons = Reasons(requests, in_blocks, tree, replay.caches, replies=settings.replies, bounded=bounded)
    replayed = replay.run(reasons, progress)
    blames = workload.blames or {}
    alone = Alone(settings.timing, settings.limits.max_num_batched_tokens) if settings.timing else None
    served: list[Served] = []
    refused = list(workload.refused)
    times = replayed.times or [None] * len(requests)
    for at, (request, hit, misses) in enumerate(zip(requests, replayed.cached_tokens, reasons.misses, strict=True)):
        if hit is None or misses is None:
            assert settings.num_gpu_blocks is not None
            reason = f"needs more than the {settings.num_gpu_blocks - 1:,} usable blocks of the cache"
            refused.append(Refused(request.index, request.file, request.line, reason))
            continue
        blamed = tuple(_within(blames.get(request.index, ()), misses))
        timed = times[at]
        ttft = timed.ttft if timed else alone.ttft(request.num_prompt_tokens, hit) if alone else None
        served.append(Served(request, hit, misses, replayed.replicas[at], blamed, ttft, timed))
    refused.sort(key=lambda item: item.index)
    notes = [*replayed.notes, *(alone.notes() if alone and not replayed.engines else ())]
    return Simulation(
        workload, settings, tuple(served), tuple(refused), replayed.waits, tuple(replayed.engines), tuple(notes)
    )


def cached_tokens(workload: Workload, settings: Settings) -> Sequence[int | None]:
    """Only what each request hits, in tokens; None for one that is larger than the cache. Raises as `simulate`."""
    requests = with_replies(workload, settings)
    tree, in_blocks = in_blocks_of(requests, workload.block_size, settings.replies)
    return REPLAYS[settings.schedule](requests, tree, in_blocks, settings).run().cached_tokens


def with_replies(workload: Workload, settings: Settings) -> Sequence[TrafficRequest]:
    """The requests with the replies that are taken to be known."""
    if settings.generated == "text":
        return with_next_turns(workload.requests, workload.block_size, workload.end_token)
    return workload.requests


def _within(blames: Sequence[Blame], misses: Misses) -> Iterator[Blame]:
    """What of the blames can be true: no more tokens than were missed for their reason."""
    if not blames:
        return
    left = misses._asdict()
    for blame in blames:
        tokens = min(blame.tokens, left[blame.reason])
        left[blame.reason] -= tokens
        if tokens:
            yield Blame(blame.code, blame.name, blame.path, blame.reason, tokens)
