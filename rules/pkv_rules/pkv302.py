"""The history slides: each request drops its oldest messages.

## What it does

Reports a conversation whose history is the earlier one without its head and with a new tail, so that the first
message behind the system prompt (or behind messages that are pinned there) changes. A warning when consecutive requests
both drop their head, a note when the history is cut once in a while.

## Why it matters

The message that now stands first differs from the one that stood there, so the whole history is computed again in
every turn, though almost all of it is the same.

## Example

    turn 8: system, user 1, assistant 1, user 2, assistant 2, user 3
    turn 9: system, user 2, assistant 2, user 3, assistant 3, user 4

## Use instead

    turn 8:  system, user 1, ..., user 3
    turn 9:  system, user 1, ..., user 4
    turn 12: system, user 9, ..., user 12          (cut once, by half)

Let the history grow to its limit, then cut a large part at once: one miss in many turns instead of one in each.

## Fix safety

The model sees up to twice the history in some turns; the limit stays the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, counted, for_group, nth

CODE = "PKV302"
NAME = "sliding-window"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Move the window in large steps: keep the history as it is, and when it is too long drop half of it at once."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for nature in ("window", "pruned"):
        for group in facts.of(nature):
            if nature == "pruned" and not group.consecutive:
                continue  # a single cut behind messages that stay: PKV301
            gone, _ = group.first.change.messages
            since = f"dropped since the {nth(group.first.earlier.index)} request"
            message = f"is the oldest message left: {counted(gone, 'message')} in front of it {since}"
            if group.consecutive:
                message += ", and again in the next"
            yield for_group(rule, facts, group, message, FIX, severity=SEVERITY if group.consecutive else "info")
