"""Retrieved text is written anew in front of the history in every turn.

## What it does

Reports conversations in which at least two whole lines, or some twenty tokens, of the system prompt (or of a template
argument such as `documents`) are replaced from one turn to the next: memories, search results, retrieved documents,
the state of a project.

## Why it matters

What is fetched for a question differs from the last. In front of the history it makes the prompts differ there, so
with every turn the whole conversation is computed again, and the longer it gets the more is lost.

## Example

    turn 1: system "You help customers ...\\nWhat you know:\\n- prefers German\\n- has a dog", user "..."
    turn 2: system "You help customers ...\\nWhat you know:\\n- asked about child seats\\n- pays by invoice", user "..."

## Use instead

    turn 1: system "You help customers ...", user "(known: prefers German, has a dog) ..."
    turn 2: system "You help customers ...", user "(known: prefers German, has a dog) ...", assistant "...",
            user "(known: asked about child seats, pays by invoice) ..."

Put what was fetched into the user message that it was fetched for, and leave it there in later turns. Taking it out
again would rewrite the history (PKV301).

## Fix safety

Older notes stay in the context: it grows a little faster, and notes that became wrong have to be corrected by a newer
message.

`--unsafe-fixes` moves lines of the system message, with the heading of which nothing else is left, into the
user's messages, each of which keeps what it first got.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, changing, for_group

CODE = "PKV105"
NAME = "dynamic-context-before-history"
SEVERITY: Severity = "error"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Put it into the user message that it was fetched for, and leave it there in later turns."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("context"):
        message = f"is rewritten in front of the history: {changing(facts, group)}"
        yield for_group(rule, facts, group, message, FIX)
