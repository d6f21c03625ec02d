"""The chat template stops printing earlier reasoning.

## What it does

Reports requests in which the template leaves out reasoning that it printed for an earlier request, most often because
a new user message came. The client sent the same values.

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

from pkv_lint.rule_api import Facts, Finding, Severity, for_group

CODE = "PKV401"
NAME = "reasoning-dropped-by-template"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Not the client's doing: use a template that keeps earlier reasoning, or accept one prefill per user message."
KEEPING = ("preserve_thinking", "keep_thinking", "preserve_reasoning", "clear_thinking", "truncate_history_thinking")
"""Names that templates give to a switch over earlier reasoning."""


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("reasoning_dropped"):
        switches = [name for name in KEEPING if name in facts.probes.template_variables]
        fix = f"Set chat_template_kwargs.{switches[0]} to keep it." if switches else FIX
        message = f"lost the reasoning that the template printed in request {group.first.earlier.index + 1}"
        yield for_group(rule, facts, group, message, fix, blame="template")
