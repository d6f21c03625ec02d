"""Patterns in what a server reports that have a known cause."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

MOSTLY = 0.8
"""The share of differing requests that must fit before a pattern is named."""
FEWEST_TIMED = 8
"""Requests with times below which times say nothing."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A pattern by name, in how many requests it shows, and what it means."""

    name: str
    requests: int
    meaning: str


@dataclass(frozen=True, slots=True)
class Observation:
    """One compared request, in the order of sending: its prompt and tokens of it, `ttft` in seconds."""

    prompt: array[int]
    predicted: int
    reported: int
    ttft: float | None


def signatures(
    observed: Sequence[Observation], block_size: int, *, warm: bool, num_preemptions: int, replicas: int
) -> tuple[Signature, ...]:
    """What the requests that were not served as predicted have in common, the most telling first."""
    differing = [item for item in observed if item.predicted != item.reported]
    found = []
    if differing:
        lower = [item for item in differing if item.reported < item.predicted]
        higher = len(differing) - len(lower)
        found += _of_lower(observed, lower, block_size, replicas) if lower else []
        if higher and warm:
            meaning = "the cache held prompts from before; --reset-cache empties it first"
            found.append(Signature("warm cache", higher, meaning))
        if num_preemptions:
            meaning = (
                f"{num_preemptions} requests lost their blocks and were computed again; some releases report the "
                "second lookup as the hit (vLLM 0.20 to 0.25)"
            )
            found.append(Signature("recompute after preemption", len(differing), meaning))
    if (disagreeing := _time_disagrees(observed)) is not None:
        found.append(disagreeing)
    return tuple(found)


def _of_lower(
    observed: Sequence[Observation], lower: Sequence[Observation], block_size: int, replicas: int
) -> list[Signature]:
    hitting = [item for item in observed if item.predicted]
    cold = [item for item in hitting if not item.reported]
    if len(cold) == len(hitting):
        meaning = (
            "nothing is ever found: a cache salt or adapter of its own for every request, prefix caching switched off, "
            "or every request on another replica"
        )
        return [Signature("everything cold", len(cold), meaning)]
    if _most(short := [item for item in lower if item.predicted - item.reported == block_size], lower):
        meaning = (
            f"hits end one block of {block_size} tokens early, as when the last block of a hit is dropped (speculative "
            "decoding) or the block size is not the one that the server uses"
        )
        return [Signature("one block short", len(short), meaning)]
    if _most(at_prompt := _ending_at_prompt(observed, block_size), lower):
        meaning = (
            "hits end exactly where the prompt of the turn before ended: the generated text was not reused, because it "
            "is rendered or tokenised otherwise when it comes back, or was not kept"
        )
        return [Signature("generated text not reused", len(at_prompt), meaning)]
    if _most(cold_ones := [item for item in lower if not item.reported], lower):
        several = f" (it says it has {replicas})" if replicas > 1 else ""
        meaning = f"some requests find nothing, others all: several replicas with a cache each{several}, or a restart"
        return [Signature("cold in part", len(cold_ones), meaning)]
    meaning = "less is found than there should be: others use the cache too, or it is smaller than stated"
    return [Signature("evicted early", len(lower), meaning)]


def _most(some: Sequence[object], of: Sequence[object]) -> bool:
    return len(some) >= MOSTLY * len(of)


def _ending_at_prompt(observed: Sequence[Observation], block_size: int) -> list[Observation]:
    """The requests whose hit ends with the last full block of an earlier prompt that they begin with."""

    def ends(item: Observation, earlier: array[int]) -> bool:
        length = len(earlier)
        return item.reported == length // block_size * block_size and item.prompt[:length] == earlier

    return [
        item
        for at, item in enumerate(observed)
        if item.reported < item.predicted and any(ends(item, earlier.prompt) for earlier in observed[:at])
    ]


def _time_disagrees(observed: Sequence[Observation]) -> Signature | None:
    """Whether the time to the first token follows the whole prompt although hits are reported."""
    timed = [(item.ttft, item) for item in observed if item.ttft is not None]
    if len(timed) < FEWEST_TIMED:
        return None
    times = [ttft for ttft, _ in timed]
    whole = [len(item.prompt) for _, item in timed]
    computed = [len(item.prompt) - item.reported for _, item in timed]
    if _agreement(times, whole) < 0.9 or _agreement(times, computed) > 0.5:
        return None
    meaning = "the time to the first token grows with the whole prompt, not with what is said to be computed"
    return Signature("counter and time disagree", len(timed), meaning)


def _agreement(times: Sequence[float], tokens: Sequence[int]) -> float:
    """Spearman's rank correlation, 0 where one of both never changes."""
    one, other = _ranks(times), _ranks(tokens)
    middle = (len(times) - 1) / 2
    spread_one, spread_other = (sum((rank - middle) ** 2 for rank in ranks) for ranks in (one, other))
    if not spread_one or not spread_other:
        return 0.0
    together = sum((a - middle) * (b - middle) for a, b in zip(one, other, strict=True))
    return float(together / (spread_one * spread_other) ** 0.5)


def _ranks(values: Sequence[float]) -> list[float]:
    """The place of each value in their order, equal ones in the middle of their places."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ends = [0, *(at for at, (a, b) in enumerate(pairwise(order), 1) if values[a] != values[b]), len(order)]
    ranks = [0.0] * len(values)
    for start, end in pairwise(ends):
        for at in order[start:end]:
            ranks[at] = (start + end - 1) / 2
    return ranks
