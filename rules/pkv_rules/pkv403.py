"""The prompt opens the reply in a way that the history does not repeat.

## What it does

Reports prompts whose generation prompt (an empty think block, for one) is not printed again when the reply is part of
the history; for a single request, what its next turn would print. A warning for hybrid models.

## Why it matters

The last tokens of each prompt and the reply behind them are computed again in the next turn. With full attention that
is at most a block and the reply; hybrid models, which resume only at stored places, can lose more.

## Example

    turn 1 ends with: <|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n
    turn 2 shows:     <|im_start|>assistant\\nThe answer ...

## Use instead

    A template that prints the empty think block for earlier replies too.

## Fix safety

Changing a template changes what the model sees; use one that its authors give.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_group, for_next_turn, nth

CODE = "PKV403"
NAME = "generation-prompt-not-replayed"
SEVERITY: Severity = "info"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Not the client's doing: the template opens replies with text that it does not print for earlier ones."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    severity: Severity = "warning" if facts.hybrid else SEVERITY
    for group in facts.of("generation_prompt"):
        message = f"does not begin as the prompt of the {nth(group.first.earlier.index)} request opened it"
        yield for_group(rule, facts, group, message, FIX, severity=severity, blame="template")
    for broken in facts.probes.next_turns:
        if broken.nature == "generation_prompt":
            message = "will not repeat the generation prompt of this request"
            yield for_next_turn(rule, facts, broken, message, FIX, severity=SEVERITY)
