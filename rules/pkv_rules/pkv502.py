"""The chat template prints tools or system text in another place each turn.

## What it does

Reports templates that print the system message, the tools or the documents at the last user turn, so that they move as
the conversation grows. Of a request that stands alone the next turn is tried: a warning where that costs a block or
more, else a note.

## Why it matters

What was at the front of the earlier prompt is not there any more: the prompt differs from that place on, in every
turn.

## Example

    turn 1: [AVAILABLE_TOOLS] ... [INST] user 1
    turn 2: [INST] user 1 [/INST] answer [AVAILABLE_TOOLS] ... [INST] user 2

## Use instead

    turn 1: [AVAILABLE_TOOLS] ... [INST] user 1
    turn 2: [AVAILABLE_TOOLS] ... [INST] user 1 [/INST] answer [INST] user 2

Use a template that prints tools and system text once, in front of the history.

## Fix safety

Models are trained with their template; prefer a newer one of the same authors.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_group, for_next_turn

CODE = "PKV502"
NAME = "template-moves-prefix"
SEVERITY: Severity = "error"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

MESSAGE = "printed by the template at the last turn: every new turn moves it"
FIX = "Use a template that prints tools and system text once, in front of the history."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("moved"):
        yield for_group(rule, facts, group, MESSAGE, FIX, blame="template")
    for broken in facts.probes.next_turns:
        if broken.nature == "moved":
            yield for_next_turn(rule, facts, broken, MESSAGE, FIX)
