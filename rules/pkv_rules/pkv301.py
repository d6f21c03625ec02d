"""Messages of the history were changed, removed or put in.

## What it does

Reports a conversation whose earlier messages differ from what an earlier request of it sent: edited text, pruned or
inserted messages, reminders that were taken out again, parts that vanished.

## Why it matters

A turn reuses the cache of the turn before it only as far as the history is the same. The first message that was changed
ends the reuse, and the rest of the conversation is computed again.

## Example

    turn 2: user "Fix the bug <reminder>be brief</reminder>"
    turn 3: user "Fix the bug", assistant "...", user "And the test?"

## Use instead

    turn 3: user "Fix the bug <reminder>be brief</reminder>", assistant "...", user "And the test?"

Only ever append. What was sent once stays as it was sent.

## Fix safety

Keeping old text costs context; where history must shrink, do it rarely and in large steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_group

CODE = "PKV301"
NAME = "history-rewritten"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Append only: send earlier messages exactly as they were sent before."
WHAT = {
    "history_edited": "was edited",
    "history_removed": "stands where messages were removed",
    "history_inserted": "was inserted",
}


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("history"):
        message = f"{WHAT[group.first.change.kind]} since request {group.first.earlier.index + 1}"
        yield for_group(rule, facts, group, message, FIX)
