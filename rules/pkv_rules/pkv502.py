"""The chat template prints tools or system text in another place each turn.

## What it does

Reports templates that print the system message or the tools at the last user turn, so that they move as the
conversation grows.

## Why it matters

What was at the front of the earlier prompt is not there any more: the prompt differs from that place on, in every
turn.

## Example

    turn 1: [AVAILABLE_TOOLS] ... [INST] user 1
    turn 2: [INST] user 1 [/INST] answer [AVAILABLE_TOOLS] ... [INST] user 2

## Use instead

    A template that prints tools and system text once, in front of the history.

## Fix safety

Models are trained with their template; prefer a newer one of the same authors.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_group

CODE = "PKV502"
NAME = "template-moves-prefix"
SEVERITY: Severity = "error"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Use a template that prints tools and system text once, in front of the history."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("moved"):
        message = "move with the conversation: the template prints them at the last user turn"
        yield for_group(rule, facts, group, message, FIX, blame="template")
