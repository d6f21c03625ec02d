"""Reasoning that the model produced was not sent back.

## What it does

Reports replies whose reasoning is missing in a later request, where this template would have printed it: reasoning
that was generated (needs the `completion` of the earlier request), or that was sent back before and is no more.

## Why it matters

The generated tokens are in the cache behind the prompt. Without the reasoning the next prompt differs from them at
once, so the reply is computed again.

## Example

    completion: "<think>\\nsum\\n</think>\\n\\n4"
    turn 2: assistant "4"

## Use instead

    turn 2: assistant "4" with "reasoning_content": "sum"

Send the reasoning back as the server gave it.

## Fix safety

It lengthens the context; templates that drop earlier reasoning ignore it.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_group, nth

CODE = "PKV402"
NAME = "reasoning-not-replayed"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Send the reasoning back with the message (`reasoning`, `reasoning_content`), in every later request."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("reasoning_not_replayed"):
        message = "came back without the reasoning that was generated with it"
        yield for_group(rule, facts, group, message, FIX)
    for group in facts.of("reasoning"):
        more = f" (and {group.first.change.places - 1:,} more)" if group.first.change.places > 1 else ""
        message = f"comes without the reasoning that the {nth(group.first.earlier.index)} request sent with it{more}"
        yield for_group(rule, facts, group, message, FIX)
