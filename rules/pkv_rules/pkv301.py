"""Messages of the history were changed, removed or put in.

## What it does

Reports a conversation whose earlier messages differ from what an earlier request of it sent: edited text, pruned or
inserted messages, reminders that were taken out again, parts that vanished. A history that was cut once and replaced
by a summary is a note, one that is summarised again and again a warning. Other branches of a conversation (retries,
samples, sub-agents) are no rewriting.

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

from pkv_lint.rule_api import Cause, Facts, Finding, Severity, counted, for_group, nth

CODE = "PKV301"
NAME = "history-rewritten"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Append only: send earlier messages exactly as they were sent before."
FIXES = {
    "reminder": "Keep it where it was sent once, or put it into a system prompt that stays; do not take it out again.",
    "compaction": "Compact rarely and a lot at once, and keep the summary as it is until the next time.",
    "pruned": "Keep what was sent; where the history must shrink, cut a large part at once and rarely.",
}


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for nature in ("history", "reminder"):
        for group in facts.of(nature):
            yield for_group(rule, facts, group, what_happened(group.first), FIXES.get(nature, FIX))
    for group in facts.of("compaction"):
        severity = SEVERITY if group.consecutive else "info"
        yield for_group(rule, facts, group, what_happened(group.first), FIXES["compaction"], severity=severity)
    for group in facts.of("pruned"):
        if not group.consecutive:  # else a window slides behind messages that stay: PKV302
            yield for_group(rule, facts, group, what_happened(group.first), FIXES["pruned"])


def what_happened(cause: Cause) -> str:
    change, since = cause.change, f"since the {nth(cause.earlier.index)} request"
    gone, came = change.messages
    more = f" (and {change.places - 1:,} more)" if change.places > 1 else ""
    if gone and came:
        what = f"stands in the place of {counted(gone, 'message')} {since}"
    elif gone:
        what = f"stands where {counted(gone, 'message')} {'was' if gone == 1 else 'were'} taken out {since}"
    elif came:
        what = f"is the first of {counted(came, 'message')} put into the history {since}"
    elif not change.after.strip():
        what = f"lost text {since}"
    elif not change.before.strip():
        what = f"got more text {since}"
    else:
        what = f"was edited {since}"
    return what + more
