"""Waiting requests in the order in which they are admitted (vLLM: `v1/core/sched/request_queue.py`)."""

from __future__ import annotations

import heapq
from collections import deque
from typing import Protocol

from pkv_lint.prompt.errors import InputError
from pkv_sim.exact.request import Request


class RequestQueue(Protocol):
    def add(self, request: Request) -> None: ...

    def prepend(self, request: Request) -> None:
        """Puts back a request that was taken or preempted."""

    def peek(self) -> Request: ...

    def pop(self) -> Request: ...

    def remove(self, request: Request) -> None: ...

    def __len__(self) -> int: ...


class FCFSRequestQueue:
    """First come, first served; a preempted request comes first of all."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()

    def add(self, request: Request) -> None:
        self._requests.append(request)

    def prepend(self, request: Request) -> None:
        self._requests.appendleft(request)

    def peek(self) -> Request:
        return self._requests[0]

    def pop(self) -> Request:
        return self._requests.popleft()

    def remove(self, request: Request) -> None:
        self._requests.remove(request)

    def __len__(self) -> int:
        return len(self._requests)


class PriorityRequestQueue:
    """By priority, arrival and request id; lower is sooner. Nothing is put in front of that order."""

    def __init__(self) -> None:
        self._heap: list[Request] = []

    def add(self, request: Request) -> None:
        heapq.heappush(self._heap, request)

    prepend = add

    def peek(self) -> Request:
        return self._heap[0]

    def pop(self) -> Request:
        return heapq.heappop(self._heap)

    def remove(self, request: Request) -> None:
        self._heap.remove(request)
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)


def build_request_queue(policy: str) -> RequestQueue:
    """The queue of a `--scheduling-policy`. Raises InputError for an unknown one."""
    if policy == "fcfs":
        return FCFSRequestQueue()
    if policy == "priority":
        return PriorityRequestQueue()
    raise InputError(f"the scheduling policy {policy} is not modelled, only fcfs and priority")
