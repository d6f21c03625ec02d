"""A large text that many requests share stands behind the point where they part.

## What it does

Reports text of the system or the user (documents behind the question, examples behind the history) that requests
repeat word for word, from 128 tokens on, although their prompts differ in front of it; and how many tokens they would
reuse if it stood in front. Results of tools are never meant: they belong where they are.

## Why it matters

A prefix cache knows a text only together with everything in front of it. The same manual behind two different
questions is two texts to it and is computed twice.

## Example

    user "How do I reset the device?\\n\\n<manual> ... 3,000 tokens"
    user "Which fuse do I need?\\n\\n<manual> ... 3,000 tokens"

## Use instead

    user "<manual> ... 3,000 tokens\\n\\nHow do I reset the device?"
    user "<manual> ... 3,000 tokens\\n\\nWhich fuse do I need?"

The order that shares most: system prompt, tools, static knowledge and examples, history, the current question.

## Fix safety

Models weigh what they read last. Most follow a question behind a long text better than in front of it; check that
yours does.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, counted, for_repeated

CODE = "PKV106"
NAME = "shared-text-behind-volatile"
SEVERITY: Severity = "info"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Order the prompt as system, tools, static knowledge and examples, history, current question."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    about = "about " if facts.approximate else ""
    for repeated in facts.repeated:
        message = (
            f"is repeated word for word behind the point where the requests part, in "
            f"{counted(len(repeated.requests), 'request')}: in front of it, {about}{repeated.won:,} more tokens would "
            "be reused"
        )
        yield for_repeated(rule, facts, repeated, message, FIX)
