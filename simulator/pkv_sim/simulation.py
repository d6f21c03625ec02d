"""Replay of a traffic on one cache: what each request hits, and why not more."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pkv_lint.prompt.errors import InputError
from pkv_sim.elsewhere import CountingCache, Namespaces
from pkv_sim.fast.cache import FastCache, Lease
from pkv_sim.fast.prefix_tree import BlockRequest, PrefixTree
from pkv_sim.fast.recorded import RecordedReplay
from pkv_sim.fast.run_tree import BlockRunTree
from pkv_sim.fast.token_tree import TokenTree
from pkv_sim.generated import REPLIES, Generated, Replies, with_next_turns
from pkv_sim.misses import Misses, misses_of, total
from pkv_sim.profile import DEFAULT_PROFILE, Profile
from pkv_sim.progress import Progress, silently
from pkv_sim.runs import pairs
from pkv_sim.seen import Seen, SeenBlocks, SeenTokens
from pkv_sim.workload import Blame, Refused, TrafficRequest, Workload

Schedule = Literal["sequential", "recorded"]


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


def simulate(workload: Workload, settings: Settings, progress: Progress = silently) -> Simulation:
    """Serve the requests of a workload in their order. `progress` shows how far it is.

    Raises InputError for a schedule that the workload lacks the times for.
    """
    requests = _with_replies(workload, settings)
    watch = _Watch(requests, workload.block_size, settings)
    in_blocks = progress(watch.in_blocks, "requests simulated:", len(requests))
    waits = None
    if settings.schedule == "recorded":
        hits, waits = _recorded(watch.cache, requests, in_blocks)
    else:
        hits = watch.sequential(in_blocks)
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
    requests = _with_replies(workload, settings)
    tree, in_blocks = in_blocks_of(requests, workload.block_size, REPLIES[settings.generated])
    cache = FastCache(tree, settings.num_gpu_blocks, profile=settings.profile)
    if settings.schedule == "recorded":
        return _recorded(cache, requests, in_blocks)[0]
    return cache.replay(in_blocks)


def _with_replies(workload: Workload, settings: Settings) -> Sequence[TrafficRequest]:
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


def _recorded(
    cache: FastCache, requests: Sequence[TrafficRequest], in_blocks: Iterable[BlockRequest]
) -> tuple[list[int | None], Waits]:
    """The cached tokens of each request, None for what is larger than the cache."""
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


class _WatchedCache(CountingCache):
    """Tells a watch when a request asks to be admitted, when it is, and when it ends."""

    def __init__(self, watch: _Watch, tree: PrefixTree, settings: Settings) -> None:
        super().__init__(tree, settings.num_gpu_blocks, profile=settings.profile)
        self._watch = watch

    def admit(self, request: BlockRequest) -> Lease | None:
        index = self._watch.index_of[id(request)]
        self._watch.arrives(index)
        lease = super().admit(request)
        if lease is not None:
            self._watch.admitted(index, lease.num_hit)
        return lease

    def finish(self, lease: Lease) -> None:
        super().finish(lease)
        self._watch.finished(self._watch.index_of[id(lease.request)])


class _Watch:
    """A cache, and why its requests missed: `misses`, None for what was not served."""

    def __init__(self, requests: Sequence[TrafficRequest], block_size: int, settings: Settings) -> None:
        self.misses: list[Misses | None] = [None] * len(requests)
        self._requests = requests
        self._replies = REPLIES[settings.generated]
        tree, self.in_blocks = in_blocks_of(requests, block_size, self._replies)
        self._block_size = block_size
        self._bounded = settings.num_gpu_blocks is not None
        self.cache: CountingCache
        if settings.schedule == "recorded":
            self.index_of = {id(request): index for index, request in enumerate(self.in_blocks)}
            self.cache = _WatchedCache(self, tree, settings)
        else:
            self.cache = CountingCache(tree, settings.num_gpu_blocks, profile=settings.profile)
        self._elsewhere = 0
        self._namespaces: Namespaces | None = None
        self._seen: Seen
        if isinstance(tree, TokenTree):
            self._seen = SeenTokens(block_size)
            if self._bounded and len({request.namespace for request in requests}) > 1:
                self._namespaces = Namespaces(tree, self.cache)
        else:
            self._seen = SeenBlocks(block_size)

    def sequential(self, in_blocks: Iterable[BlockRequest]) -> list[int | None]:
        """The cached tokens of each request, None for what is larger than the cache."""
        hits = []
        for index, request in enumerate(in_blocks):
            self.arrives(index)
            (hit,) = self.cache.replay((request,))
            if hit is not None:
                self.admitted(index, hit // self._block_size)
                self.finished(index)
            hits.append(hit)
        return hits

    def arrives(self, index: int) -> None:
        if self._namespaces is not None:
            self._elsewhere = self._namespaces.cached_blocks(self._requests[index])

    def admitted(self, index: int, num_hit: int) -> None:
        request = self._requests[index]
        shared = self._seen.enter(request)
        if self._namespaces is not None:
            self._namespaces.use(request)
        elif not self._bounded:
            self._elsewhere = shared.any if shared.any > shared.namespace else 0
        reads = request.reads_cache
        self.misses[index] = misses_of(
            request.num_prompt_tokens,
            self._block_size,
            hit=num_hit,
            seen=shared.namespace if reads else 0,
            diverges=shared.diverges if reads else shared.touched,
            other_namespace=self._elsewhere if reads else 0,
        )

    def finished(self, index: int) -> None:
        request = self._requests[index]
        if self._replies.text:
            self._seen.leave(request)
        if self._namespaces is not None:
            self._namespaces.use(request)


def in_blocks_of(
    requests: Sequence[TrafficRequest], block_size: int, replies: Replies
) -> tuple[TokenTree | BlockRunTree, list[BlockRequest]]:
    """Requests as the fast core takes them, and the tree that they are in."""
    if requests and requests[0].ids is None:
        runs = BlockRunTree(block_size)
        return runs, [_by_runs(request, runs, replies) for request in requests]
    tokens = TokenTree(block_size)
    return tokens, [_by_tokens(request, tokens, replies) for request in requests]


def _by_tokens(request: TrafficRequest, tree: TokenTree, replies: Replies) -> BlockRequest:
    assert request.ids is not None
    # The last sampled token has no KV, so any will do.
    output = request.generated + array("i", [0]) if request.generated and replies.text else ()
    counted = request.num_generated_tokens or 0 if replies.counted else 0
    made = tree.request(request.ids, output, num_output_tokens=counted, namespace=request.namespace)
    return made if request.reads_cache else made._replace(max_hit=0)


def _by_runs(request: TrafficRequest, tree: BlockRunTree, replies: Replies) -> BlockRequest:
    assert request.runs is not None
    prompt = request.num_prompt_tokens
    generated = request.num_generated_tokens or 0 if replies.counted else 0
    if not request.generated_runs:
        return tree.request(pairs(request.runs), prompt, num_output_tokens=generated)
    size = tree.block_size
    whole = tree.request(pairs(request.runs + request.generated_runs), prompt + generated - 1)
    return whole._replace(max_hit=(prompt - 1) // size, prompt_blocks=prompt // size, num_prompt_tokens=prompt)
