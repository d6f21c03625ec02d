"""What of the generated tokens counts: nothing, the room that they take, or their text as well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from pkv_sim.workload import TrafficRequest

Generated = Literal["none", "counted", "text", "next-turn"]

MODES: tuple[Generated, ...] = ("none", "counted", "text", "next-turn")


def with_generated(requests: Sequence[TrafficRequest], mode: Generated, block_size: int) -> list[TrafficRequest]:
    """The requests with what is to be cached of their replies.

    `none`: nothing. `counted`: as many blocks as the reply filled, which nobody reuses. `text`: where the reply itself
    is recorded it can be reused; others count for nothing. `next-turn`: where it is not recorded but its length is, it
    is taken from the next request that begins with this one's whole prompt; where there is none it is counted.
    """
    if mode == "none":
        return [_without(request) for request in requests]
    if mode == "counted":
        return [replace(request, generated=None, generated_runs=None) for request in requests]
    if mode == "text":
        return [request if request.generated is not None else _without(request) for request in requests]
    return list(_from_next_turns(requests, block_size))


def _without(request: TrafficRequest) -> TrafficRequest:
    if request.generated is None and request.num_generated_tokens is None:
        return request
    return replace(request, generated=None, generated_runs=None, num_generated_tokens=None)


def _from_next_turns(requests: Sequence[TrafficRequest], block_size: int) -> Iterable[TrafficRequest]:
    raise NotImplementedError
