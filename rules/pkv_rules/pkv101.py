"""A date or a time stands in front of text that could be cached.

## What it does

Reports a date or time in the system prompt, the tools, a template argument or an earlier user message that changes
between requests, with the unit that changes (seconds, minutes, days) and, where the traffic says when its requests
came, how often an hour it breaks the prefix. In a single request, where nothing can be compared, text that looks like
the current time is a warning and a bare date a note, if at least a block of cacheable text stands behind it. Between
requests, a date alone is a note as long as it changes no more often than once in a conversation (or, where the times
are known, once in half a day).

## Why it matters

A prefix cache reuses a prompt block by block from its start, up to the first token that differs. A clock in front of
the tools and the history makes every request differ there, so everything behind it is computed again. A date alone
breaks the prefix once a day, which is mostly cheap enough.

## Example

    {"role": "system", "content": "You are Tern.\\nCurrent time: 2026-11-29 14:05:33\\n\\n# How you work ..."}

## Use instead

    {"role": "system", "content": "You are Tern.\\n\\n# How you work ..."}
    {"role": "user", "content": "... (asked on 2026-11-29 at 14:05)"}

Put the time into the last user message and leave it there in later turns, let a tool return it, or give the day only.

## Fix safety

The model reads the time in another place. Check prompts that refer to "the time above".

`--unsafe-fixes` moves lines of the system message (of a paragraph, sentences) into the user's messages, each of which
keeps what it got.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Group, Severity, changing, for_group, for_pattern

CODE = "PKV101"
NAME = "timestamp-in-prefix"
SEVERITY: Severity = "error"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Move it behind everything stable (last user message, and keep it there), or let a tool return it."
UNITS = {
    "day": "to the day",
    "hour": "to the hour",
    "minute": "to the minute",
    "second": "to the second",
    "fraction": "to the fraction of a second",
}
ONCE_A_DAY = 1 / 12
"""Breaks an hour up to which a date breaks the prefix about once a day."""


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("timestamp"):
        unit = facts.granularity(group)
        details = [UNITS[unit]] if unit else []
        rate = len(group.requests) / facts.hours if facts.hours else None
        if rate is not None:
            often, per = (rate, "hour") if rate >= ONCE_A_DAY * 2 else (rate * 24, "day")
            details.append(f"{often:,.0f} breaks per {per}" if often >= 10 else f"{often:,.1f} breaks per {per}")
        message = changing(facts, group) + (f" ({', '.join(details)})" if details else "")
        severity: Severity = "info" if unit == "day" and is_daily(facts, group, rate) else SEVERITY
        yield for_group(rule, facts, group, message, FIX, severity=severity)
    for pattern in facts.patterns:
        if pattern.match.kind == "timestamp":
            day = pattern.match.granularity == "day"
            message = "looks like the date of the request" if day else "looks like the time of the request"
            yield for_pattern(rule, facts, pattern, message, FIX, "info" if day else "warning")


def is_daily(facts: Facts, group: Group, rate: float | None) -> bool:
    """Whether a date changes as rarely as days do: by the clock of the traffic, else at most once in each session."""
    if rate is not None and rate <= ONCE_A_DAY:
        return True
    return max(Counter(facts.session(cause.turn) for cause in group.causes).values()) == 1
