"""What became of prompt tokens, as parts of a whole: cached, or the reason why not. In the CSS these are classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pkv_lint.columns import visible
from pkv_lint.findings import nth
from pkv_sim.outputs.text import percent
from pkv_sim.outputs.times import shown
from pkv_sim.serving.misses import Misses, total
from pkv_sim.simulation import Served, share

CACHED = "cached"
STATES = (CACHED, *Misses._fields)
"""In the order in which they stand in a prompt: see `misses_of`."""
NO_FAULT = ("first_seen", "last_block", "partial_block", "below_block")
"""Reasons that no other cache and no other prompt could have spared."""


@dataclass(frozen=True, slots=True)
class Part:
    """`tokens` in one state. `title` says it in words."""

    state: str
    tokens: int
    title: str


def words(state: str) -> str:
    return state.replace("_", " ")


def parts_of(cached_tokens: int, misses: Misses) -> tuple[Part, ...]:
    """Those that are not empty, in the order of the prompt."""
    whole = cached_tokens + misses.tokens
    return tuple(
        Part(state, tokens, f"{words(state)}: {tokens:,} tokens, {percent(share(tokens, whole))}")
        for state, tokens in zip(STATES, (cached_tokens, *misses), strict=True)
        if tokens
    )


def parts_together(served: Sequence[Served]) -> tuple[Part, ...]:
    """Of several requests."""
    return parts_of(sum(item.cached_tokens for item in served), total(item.misses for item in served))


def lost_tokens(misses: Misses) -> int:
    """Tokens that were computed though something like them had been: all but those of `NO_FAULT`."""
    return sum(tokens for reason, tokens in misses._asdict().items() if reason not in NO_FAULT)


def title_of(served: Sequence[Served], what: str) -> str:
    """Lines about requests that are shown as one."""
    parts = parts_together(served)
    return "\n".join([f"{what}: {sum(part.tokens for part in parts):,} prompt tokens", *(part.title for part in parts)])


def request_title(item: Served, *, several_replicas: bool = False) -> str:
    """Lines about one request."""
    request = item.request
    what = f"{nth(request.index)} request, line {request.line}"
    if several_replicas:
        what += f", replica {item.replica}"
    lines = [title_of([item], what)]
    if item.ttft is not None:
        lines.append(f"first token after {shown(item.ttft)}")
    for blame in item.blames:
        lines.append(f"{blame.code}{f' at {visible(blame.path)}' if blame.path else ''}: {blame.tokens:,} tokens")
    return "\n".join(lines)
