"""A date or a time stands in front of text that could be cached.

## What it does

Reports a date or time in the system prompt, the tools or a template argument that changes between requests, with the
unit that changes (seconds, minutes, days). In a single request, where nothing can be compared, a time of day that has
cacheable text behind it is a warning and a bare date a note.

## Why it matters

A prefix cache reuses a prompt block by block from its start, up to the first token that differs. A clock in front of the
tools and the history makes every request differ there, so everything behind it is computed again.

## Example

    {"role": "system", "content": "You are Tern.\\nCurrent time: 2026-11-29 14:05:33\\n\\n# How you work ..."}

## Use instead

    {"role": "system", "content": "You are Tern.\\n\\n# How you work ..."}
    {"role": "user", "content": "... (asked on 2026-11-29 at 14:05)"}

Put the time into the last user message and leave it there in later turns, let a tool return it, or give the day only.

## Fix safety

The model reads the time in another place. Check prompts that refer to "the time above".
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_group, for_pattern

CODE = "PKV101"
NAME = "timestamp-in-prefix"
SEVERITY: Severity = "error"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Move it behind everything stable (last user message, and keep it there), or let a tool return it."
UNITS = {
    "day": "to the day",
    "minute": "to the minute",
    "second": "to the second",
    "fraction": "to the fraction of a second",
}


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("timestamp"):
        unit = facts.granularity(group)
        every = "every request" if len(group.requests) >= len(facts.replayed) - 1 else f"{len(group.requests)} requests"
        severity: Severity = "info" if unit == "day" and len(group.requests) == 1 else SEVERITY
        message = f"changes in {every} ({UNITS[unit]})" if unit else f"changes in {every}"
        yield for_group(rule, facts, group, message, FIX, severity=severity)
    for pattern in facts.patterns:
        if pattern.match.kind == "timestamp":
            day = pattern.match.granularity == "day"
            message = "looks like a date" if day else "looks like the time of the request"
            yield for_pattern(rule, facts, pattern, message, FIX, "info" if day else "warning")
