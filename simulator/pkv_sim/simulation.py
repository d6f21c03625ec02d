"""Replay of a traffic on one cache: what each request hits, and why not more."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

from pkv_lint.prompt.errors import InputError
from pkv_sim.elsewhere import CountingCache, FindingTokenTree, Namespaces
from pkv_sim.fast.cache import FastCache, Lease
from pkv_sim.fast.prefix_tree import BlockRequest, PrefixTree
from pkv_sim.fast.recorded import RecordedReplay
from pkv_sim.fast.run_tree import BlockRunTree
from pkv_sim.generated import Generated, with_generated
from pkv_sim.misses import Misses, misses_of, total
from pkv_sim.profile import DEFAULT_PROFILE, Profile
from pkv_sim.runs import pairs
from pkv_sim.seen import Seen, SeenBlocks, SeenTokens
from pkv_sim.workload import Blame, Refused, TrafficRequest, Workload

Schedule = Literal["sequential", "recorded"]
Progress = Callable[[Sequence[BlockRequest]], Iterable[BlockRequest]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`num_gpu_blocks` counts the null block, as vLLM does; None is a cache without bounds."""

    num_gpu_blocks: int | None = None
    schedule: Schedule = "sequential"
    generated: Generated = "recorded"
    profile: Profile = DEFAULT_PROFILE


@dataclass(frozen=True, slots=True)
class Served:
    """One request after the simulation; tokens are those of its prompt."""

    request: TrafficRequest
    cached_tokens: int
    misses: Misses
    blames: tuple[Blame, ...] = ()


@dataclass(frozen=True, slots=True)
class Waits:
    """How many requests waited for blocks under the recorded schedule, and for how long in all."""

    requests: int
    seconds: float


@dataclass(frozen=True)
class Simulation:
    """What the cache did for a workload: `served` in the order of arrival, `refused` by their place in the file."""

    workload: Workload
    settings: Settings
    served: tuple[Served, ...]
    refused: tuple[Refused, ...]
    waits: Waits | None = None

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


def simulate(workload: Workload, settings: Settings, progress: Progress = iter) -> Simulation:
    """Serve the requests of a workload in their order. `progress` is what they are passed through meanwhile.

    Raises InputError for a schedule that the workload lacks the times for.
    """
    requests = with_generated(workload.requests, settings.generated, workload.block_size)
    watch = _Watch(requests, workload.block_size, settings)
    hits, waits = _run(watch.cache, requests, progress(watch.in_blocks), settings.schedule)
    blames = workload.blames or {}
    served: list[Served] = []
    refused = list(workload.refused)
    for request, hit, misses in zip(requests, hits, watch.misses, strict=True):
        if hit is None or misses is None:
            reason = f"needs more than the {watch.cache.num_usable_blocks:,} usable blocks of the cache"
            refused.append(Refused(request.index, request.file, request.line, reason))
        else:
            served.append(Served(request, hit, misses, tuple(_within(blames.get(request.index, ()), misses))))
    refused.sort(key=lambda item: item.index)
    return Simulation(workload, settings, tuple(served), tuple(refused), waits)


def cached_tokens(workload: Workload, settings: Settings) -> list[int | None]:
    """Only what each request hits, in tokens; None for one that is larger than the cache. Raises as `simulate`."""
    requests = with_generated(workload.requests, settings.generated, workload.block_size)
    tree, in_blocks = in_blocks_of(requests, workload.block_size)
    cache = FastCache(tree, settings.num_gpu_blocks, profile=settings.profile)
    if settings.schedule == "sequential":
        return cache.replay(in_blocks)
    return _run(cache, requests, in_blocks, settings.schedule)[0]


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


def _run(
    cache: FastCache, requests: Sequence[TrafficRequest], in_blocks: Iterable[BlockRequest], schedule: Schedule
) -> tuple[list[int | None], Waits | None]:
    """The cached tokens of each request, None for what is larger than the cache."""
    if schedule == "sequential":
        return [_served_alone(cache, request) for request in in_blocks], None
    replay = RecordedReplay(cache)
    for request, blocks in zip(requests, in_blocks, strict=True):
        if request.start is None:
            message = "has no timestamp, which --schedule recorded needs"
            raise InputError(message, file=request.file, line=request.line)
        end = request.start if request.end is None else request.end
        if end < request.start:
            raise InputError("ends before it starts", file=request.file, line=request.line)
        replay.add(blocks, request.start, end)
    replay.finish()
    return replay.cached_tokens, Waits(replay.num_waited, replay.time_waited)


def _served_alone(cache: FastCache, request: BlockRequest) -> int | None:
    if request.num_blocks > cache.num_usable_blocks:
        return None
    lease = cache.admit(request)
    assert lease is not None, "nobody else uses blocks"
    cache.finish(lease)
    return lease.num_hit * cache.tree.block_size


class _Watcher(Protocol):
    def arrives(self, request: BlockRequest) -> None: ...

    def admitted(self, request: BlockRequest, num_hit: int) -> None: ...

    def finished(self, request: BlockRequest) -> None: ...


class _WatchedCache(CountingCache):
    """Tells a watcher when a request asks to be admitted, when it is, and when it ends."""

    def __init__(self, tree: PrefixTree, settings: Settings, watcher: _Watcher) -> None:
        super().__init__(tree, settings.num_gpu_blocks, profile=settings.profile)
        self._watcher = watcher

    def admit(self, request: BlockRequest) -> Lease | None:
        self._watcher.arrives(request)
        lease = super().admit(request)
        if lease is not None:
            self._watcher.admitted(request, lease.num_hit)
        return lease

    def finish(self, lease: Lease) -> None:
        super().finish(lease)
        self._watcher.finished(lease.request)


class _Watch:
    """A cache, and why its requests missed: `misses`, None for what was not served."""

    def __init__(self, requests: Sequence[TrafficRequest], block_size: int, settings: Settings) -> None:
        self.requests = requests
        self.misses: list[Misses | None] = [None] * len(requests)
        tree, self.in_blocks = in_blocks_of(requests, block_size)
        self.cache = _WatchedCache(tree, settings, self)
        self._index = {id(request): index for index, request in enumerate(self.in_blocks)}
        self._block_size = block_size
        self._bounded = settings.num_gpu_blocks is not None
        self._elsewhere = 0
        self._namespaces: Namespaces | None = None
        self._seen: Seen
        if isinstance(tree, FindingTokenTree):
            self._seen = SeenTokens(block_size)
            if self._bounded and len({request.namespace for request in requests}) > 1:
                self._namespaces = Namespaces(tree, self.cache)
        else:
            self._seen = SeenBlocks(block_size)

    def arrives(self, request: BlockRequest) -> None:
        if self._namespaces is not None:
            self._elsewhere = self._namespaces.cached_blocks(self.requests[self._index[id(request)]])

    def admitted(self, request: BlockRequest, num_hit: int) -> None:
        index = self._index[id(request)]
        asked = self.requests[index]
        shared = self._seen.enter(asked)
        if self._namespaces is not None:
            self._namespaces.use(asked)
        elif not self._bounded:
            self._elsewhere = shared.any if shared.any > shared.namespace else 0
        reads = asked.reads_cache
        self.misses[index] = misses_of(
            asked.num_prompt_tokens,
            self._block_size,
            hit=num_hit,
            seen=shared.namespace if reads else 0,
            diverges=shared.diverges if reads else shared.touched,
            other_namespace=self._elsewhere if reads else 0,
        )

    def finished(self, request: BlockRequest) -> None:
        asked = self.requests[self._index[id(request)]]
        self._seen.leave(asked)
        if self._namespaces is not None:
            self._namespaces.use(asked)


def in_blocks_of(
    requests: Sequence[TrafficRequest], block_size: int
) -> tuple[FindingTokenTree | BlockRunTree, list[BlockRequest]]:
    """Requests as the fast core takes them, and the tree that they are in."""
    if requests and requests[0].ids is None:
        runs = BlockRunTree(block_size)
        return runs, [_by_runs(request, runs) for request in requests]
    tokens = FindingTokenTree(block_size)
    return tokens, [_by_tokens(request, tokens) for request in requests]


def _by_tokens(request: TrafficRequest, tree: FindingTokenTree) -> BlockRequest:
    assert request.ids is not None
    # The last sampled token has no KV, so any will do.
    output = request.generated + array("i", [0]) if request.generated else ()
    made = tree.request(
        request.ids, output, num_output_tokens=request.num_generated_tokens or 0, namespace=request.namespace
    )
    return made if request.reads_cache else made._replace(max_hit=0)


def _by_runs(request: TrafficRequest, tree: BlockRunTree) -> BlockRequest:
    assert request.runs is not None
    prompt, generated = request.num_prompt_tokens, request.num_generated_tokens or 0
    if not request.generated_runs:
        return tree.request(pairs(request.runs), prompt, num_output_tokens=generated)
    size = tree.block_size
    whole = tree.request(pairs(request.runs + request.generated_runs), prompt + generated - 1)
    return whole._replace(max_hit=(prompt - 1) // size, prompt_blocks=prompt // size, num_prompt_tokens=prompt)
