"""The chat template stops printing earlier reasoning.

## What it does

Reports requests in which the template leaves out reasoning that it printed for an earlier request, most often because
a new user message came. The client sent the same values. A note where the reasoning of the last reply was not sent
back, but would not have been printed either, and for a single request whose next turn would lose it.

## Why it matters

The prompt differs from the first message whose reasoning is gone; the turns behind it are computed again. This costs
one prefill of the last exchange per user message.

## Example

    turn 3: user, assistant <think>...</think> call, tool
    turn 4: user, assistant call, tool, assistant, user

## Use instead

    chat_template_kwargs: {"preserve_thinking": true}         (where the template has such a switch)

Nothing that the client sends avoids it for templates without a switch; accept it, or use a template that keeps
reasoning.

## Fix safety

Keeping reasoning lengthens the context, and models were trained with one of the two forms.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, Turn, for_group, for_next_turn, nth

CODE = "PKV401"
NAME = "reasoning-dropped-by-template"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Not the client's doing: use a template that keeps earlier reasoning, or accept one prefill per user message."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("reasoning_dropped"):
        sent = any(cause.change.kind == "template" for cause in group.causes)
        if sent:
            message = f"lost the reasoning that the template printed in the {nth(group.first.earlier.index)} request"
        else:
            message = "would not show the reasoning that was generated with it, had it been sent back"
        severity: Severity = SEVERITY if sent else "info"
        yield for_group(
            rule, facts, group, message, fix(facts, group.first.earlier), severity=severity, blame="template"
        )
    for broken in facts.probes.next_turns:
        if broken.nature == "reasoning_dropped":
            message = "is reasoning that the template drops once the user speaks again"
            yield for_next_turn(rule, facts, broken, message, fix(facts, broken.turn))


def fix(facts: Facts, turn: Turn) -> str:
    switch = facts.probes.reasoning_switch(turn)
    return f"Set chat_template_kwargs.{switch[0]} to {str(switch[1]).lower()} to keep it." if switch else FIX
