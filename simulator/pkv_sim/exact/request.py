"""A request on its way through the scheduler (vLLM: `v1/request.py`)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Lora:
    """An adapter. vLLM hashes its name and path since 0.31, its name since 0.11, its number before."""

    name: str
    path: str = ""
    int_id: int = 0


@dataclass(frozen=True, slots=True)
class MultiModalItem:
    """An image (or other input) that stands at token positions [offset, offset + length) of the prompt.

    `identifier` is its content hash, or the uuid that the client gave. Where two items of one block are equal, the
    pickle algorithms tell one string object from two equal ones, as they do in vLLM.
    """

    identifier: str
    offset: int
    length: int


class RequestStatus(IntEnum):
    WAITING = auto()
    RUNNING = auto()
    PREEMPTED = auto()
    # What follows PREEMPTED counts as finished.
    FINISHED_STOPPED = auto()
    FINISHED_LENGTH_CAPPED = auto()
    FINISHED_ABORTED = auto()


_FINISH_REASONS = {
    RequestStatus.FINISHED_STOPPED: "stop",
    RequestStatus.FINISHED_LENGTH_CAPPED: "length",
    RequestStatus.FINISHED_ABORTED: "abort",
}


class Hasher(Protocol):
    """Computes block hashes (see `hashing.BlockHasher`)."""

    def extend(self, request: Request) -> None:
        """Appends the hashes of the blocks that became full since the last call to `request.block_hashes`."""


class Request:
    """The tokens of a request, the hashes of its full blocks and what the scheduler knows about it.

    The scheduler's own counters are in tokens: `num_computed_tokens` have a KV slot or were scheduled to get one,
    `num_in_flight_tokens` belong to steps whose output has not come back, `num_output_placeholders` stand for outputs
    in flight (asynchronous scheduling), `num_stale_output_tokens` were in flight when the request was preempted.
    `num_cached_tokens` is what usage reports as cached_tokens, None before the first admission.
    """

    __slots__ = (
        "_hasher",
        "arrival",
        "block_hashes",
        "cache_salt",
        "drop_stale_output",
        "has_extra_keys",
        "lora",
        "max_tokens",
        "mm_items",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_in_flight_tokens",
        "num_output_placeholders",
        "num_preemptions",
        "num_prompt_tokens",
        "num_stale_output_tokens",
        "priority",
        "prompt_embeds",
        "request_id",
        "skip_reading_prefix_cache",
        "status",
        "stop_token_ids",
        "token_ids",
    )

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: Iterable[int],
        *,
        max_tokens: int,
        hasher: Hasher | None = None,
        arrival: float = 0.0,
        priority: int = 0,
        stop_token_ids: Iterable[int] = (),
        cache_salt: str | None = None,
        lora: Lora | None = None,
        mm_items: Iterable[MultiModalItem] = (),
        prompt_embeds: Sequence[bytes] | None = None,
        skip_reading_prefix_cache: bool = False,
    ) -> None:
        """`prompt_token_ids` are copied; each is below 2**31. Positions of `prompt_embeds` (one row of raw bytes for
        each prompt token) count as token 0. Without a `hasher` nothing of the request is cached.

        `max_tokens` is the number of output tokens after which it ends, `stop_token_ids` the tokens that end it (the
        end of sequence token among them), `priority` and `arrival` (any unit) order it under the priority policy:
        lower is sooner. `skip_reading_prefix_cache` is what vLLM sets for prompt_logprobs: no lookup, but still cached.
        """
        self.request_id = request_id
        self.token_ids = array("i", prompt_token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        if not self.num_prompt_tokens or max_tokens < 1:
            raise ValueError(f"{request_id}: a request needs at least one prompt token and one output token")
        self.max_tokens = max_tokens
        self.arrival = arrival
        self.priority = priority
        self.stop_token_ids = frozenset(stop_token_ids)
        self.cache_salt = cache_salt
        self.lora = lora
        self.mm_items = sorted(mm_items, key=lambda item: item.offset)
        self.prompt_embeds = prompt_embeds
        self.has_extra_keys = bool(cache_salt or lora or self.mm_items or prompt_embeds is not None)
        self.skip_reading_prefix_cache = skip_reading_prefix_cache

        self.status = RequestStatus.WAITING
        self.num_computed_tokens = 0
        self.num_in_flight_tokens = 0
        self.num_output_placeholders = 0
        self.num_stale_output_tokens = 0
        self.drop_stale_output = False
        self.num_preemptions = 0
        self.num_cached_tokens: int | None = None

        self.block_hashes: list[bytes] = []
        self._hasher = hasher
        if hasher is not None:
            hasher.extend(self)

    def __repr__(self) -> str:
        return f"Request({self.request_id!r}, {self.status.name}, {self.num_computed_tokens}/{self.num_tokens})"

    def __lt__(self, other: Request) -> bool:
        """The order of the priority policy."""
        return (self.priority, self.arrival, self.request_id) < (other.priority, other.arrival, other.request_id)

    def append_output_token(self, token_id: int) -> None:
        self.token_ids.append(token_id)
        if self._hasher is not None:
            self._hasher.extend(self)

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens so far."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def finished(self) -> bool:
        return self.status > RequestStatus.PREEMPTED

    @property
    def finish_reason(self) -> str | None:
        """`stop`, `length` or `abort`; None while it runs."""
        return _FINISH_REASONS.get(self.status)
