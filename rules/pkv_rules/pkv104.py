"""Text about one user stands in front of text that all users share.

## What it does

Reports text in the system prompt that stays the same in a conversation and differs from one to the next, with text
behind it that they have in common. All such places of a message are one finding. Text that changed once among four or
more conversations was edited: that is a note.

## Why it matters

Prompts of different users can share a cache only up to the first token that differs. A name in the first line makes
every user compute the instructions, the tools and the examples behind it once more. This is the reuse between
sessions, which decides the time to the first token of every new conversation.

## Example

    {"role": "system", "content": "You are talking to Ana Ruiz (plan: Pro).\\n\\n# Instructions\\n... 2,000 tokens"}

## Use instead

    {"role": "system", "content": "# Instructions\\n... 2,000 tokens\\n\\nYou are talking to Ana Ruiz (plan: Pro)."}

Put what is about the user at the end of the system prompt or into the first user message, behind the tools too where
the template prints them behind the system prompt.

## Fix safety

The model reads the same text in another order. Check instructions that refer to "the user named above".
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, counted, for_group

CODE = "PKV104"
NAME = "per-user-text-before-shared"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Move what is about the user behind what all users share (end of the system prompt, or the first user message)."
MANY = 4
"""Requests from which on text that changed once was edited rather than that of a user."""


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("per_user"):
        places = len({cause.change.span for cause in group.causes if cause.turn is group.first.turn})
        where = f" ({counted(places, 'place')} in this text)" if places > 1 else ""
        requests = counted(len(group.requests), "conversation")
        message = f"is constant in a conversation and differs between them, in front of shared text: {requests}{where}"
        edited = len(group.requests) == 1 and len({item.session for item in facts.replayed}) >= MANY
        yield for_group(
            rule,
            facts,
            group,
            "changed once, between two conversations" if edited else message,
            FIX,
            severity="info" if edited else SEVERITY,
        )
