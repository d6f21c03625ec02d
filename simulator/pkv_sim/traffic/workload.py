"""Requests as the simulator takes them: token ids or block ids, where their namespace, session and times are known."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from pkv_lint.findings import counted
from pkv_lint.prompt.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TrafficRequest:
    """One request. `index` is its place among all requests of its file (`line` of `file`), from 0.

    The prompt is known by its token `ids`, or by `runs`: the ids of its full blocks as first id, last id, first id,
    last id and so on. `namespace` is what keeps equal content apart (adapter, salt). `generated` are the token
    ids of the reply that are kept in the cache (the last one is not), `generated_runs` the ids of the blocks that it
    fills, the first one together with the end of the prompt; None where that is not known. `num_generated_tokens` is
    how many there were, the last one included. `start` and `end` are in seconds.
    `reads_cache` is False when the server skips the lookup (prompt_logprobs). `priority` orders requests under the
    priority policy, lower is sooner.
    """

    index: int
    file: str
    line: int
    num_prompt_tokens: int
    ids: array[int] | None = None
    runs: array[int] | None = None
    namespace: Hashable = None
    session_id: str | None = None
    tenant: str | None = None
    start: float | None = None
    end: float | None = None
    generated: array[int] | None = None
    generated_runs: array[int] | None = None
    num_generated_tokens: int | None = None
    reads_cache: bool = True
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that the server would not serve, and why."""

    index: int
    file: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Blame:
    """What the linter holds against a request: a finding by `code`, `name` and `path` (None: no place in the body), the
    reason under which its tokens are counted as missed, and how many it cost this request."""

    code: str
    name: str
    path: str | None
    reason: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Workload:
    """The requests of one traffic in their order of arrival, by `arranged`.

    `format` is the one of the file, `block_size` in tokens, `blames` are by the index of the request, in prompt order.
    `content_known` is False when only lengths are recorded, `end_token` the id that ends replies, where that is known.
    `layout` and `approximate` are what the renderer said of its prompts, `notes` sentences about the traffic as a
    whole.
    """

    name: str
    format: str
    block_size: int
    requests: tuple[TrafficRequest, ...]
    refused: tuple[Refused, ...] = ()
    unusable: tuple[InputError, ...] = ()
    notes: tuple[str, ...] = ()
    blames: dict[int, tuple[Blame, ...]] | None = None
    content_known: bool = True
    end_token: int | None = None
    layout: str = "model"
    approximate: bool = False

    def arranged(self) -> Workload:
        """With the requests in their order of arrival, see `by_time`; a note says where that is not the order of the
        file."""
        times = [request.start for request in self.requests]
        known = [time for time in times if time is not None]
        if len(known) < len(times):
            if not known:
                return self
            untimed = counted(len(times) - len(known), "request")
            note = f"{untimed} without a time, so all are taken in the order of the file"
            return replace(self, notes=(*self.notes, note))
        late = next((at for at, (before, time) in enumerate(pairwise(known), 1) if time < before), None)
        if late is None:
            return self
        ordered = tuple(by_time(self.requests, lambda request: request.start))
        if self.format == "weka":
            return replace(self, requests=ordered)  # sessions stand one after the other, each with its own time
        note = (
            f"time runs backwards at line {self.requests[late].line}: requests are taken by their time, those of equal "
            "times in the order of the file"
        )
        return replace(self, requests=ordered, notes=(*self.notes, note))


def by_time(items: Sequence[T], time_of: Callable[[T], float | None]) -> list[T]:
    """Items by their time, equal times in the order given; all in that order when some have no time."""
    times = [time for time in map(time_of, items) if time is not None]
    if len(times) < len(items):
        return list(items)
    return [items[at] for at in sorted(range(len(items)), key=times.__getitem__)]
