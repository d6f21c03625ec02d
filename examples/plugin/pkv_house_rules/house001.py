"""A session starts cold although its prompt is long.

## What it does

Reports sessions whose first request has at least 1,024 prompt tokens and reuses less than half of them, when there were
other sessions before it. What another rule explains is left to that rule.

## Why it matters

The first answer of a session is the one that users wait for. Sessions that begin with the same system prompt, tools and
knowledge find them in the cache.

## Example

    session 1: system "You are Tern ..." (2,000 tokens), user ...
    session 2: system "Profile of the user ... You are Tern ...", user ...

## Use instead

    session 2: system "You are Tern ...", user "Profile of the user ..."

## Fix safety

The model reads the same text in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Replayed, Severity, for_turn

CODE = "HOUSE001"
NAME = "cold-session-start"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/features/automatic_prefix_caching/"

LONG = 1024
"""Prompt tokens from which on a cold start is worth a warning."""


def check(facts: Facts) -> Iterator[Finding]:
    cold = [item for item in session_starts(facts) if is_cold(item)]
    if cold:
        first = cold[0]
        message = f"starts a session with {first.hit:,} of {len(first.turn.ids):,} prompt tokens from the cache"
        yield for_turn(
            modules[__name__],
            facts,
            first.turn,
            "messages[0]",
            message,
            "Begin every session with the same text, and put what differs behind it.",
            requests=len(cold),
            evidence={"reused": first.hit},
        )


def session_starts(facts: Facts) -> Iterator[Replayed]:
    """The first request of every session but the first."""
    seen: set[str] = set()
    for item in facts.replayed:
        if item.session not in seen and seen:
            yield item
        seen.add(item.session)


def is_cold(item: Replayed) -> bool:
    explained = item.causes or item.turn.unread_for is not None
    return len(item.turn.ids) >= LONG and 2 * item.hit < len(item.turn.ids) and not explained
