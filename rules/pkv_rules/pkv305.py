"""A side request puts another head in front of the same history.

## What it does

Reports a request that carries the history of a conversation behind another system prompt or other tools, while the
conversation itself goes on under the old ones: a summary, a title, a compaction, a reviewer.

## Why it matters

The history is in the cache, but behind another head, so the side request computes all of it again.

## Example

    system "You are Tern ...", user 1, assistant 1, ..., user 20
    system "You write titles.", user 1, assistant 1, ..., user 20

## Use instead

    system "You are Tern ...", user 1, assistant 1, ..., user 20, user "Give this conversation a title."

Keep head and history as they are and ask at the end.

## Fix safety

The model answers in its main role and may be offered tools: set tool_choice to none.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_group, nth

CODE = "PKV305"
NAME = "auxiliary-request-prefix"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Keep system prompt, tools and history as they were, and put the side task into a last user message."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("auxiliary"):
        earlier = f"the {nth(group.first.earlier.index)} request"
        what = "are other tools than" if group.first.change.path == "tools" else "is another head than"
        message = f"{what} that of {earlier} in front of the same history, which is computed again"
        yield for_group(rule, facts, group, message, FIX)
