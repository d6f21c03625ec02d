"""The chat template leaves out something that the request sends.

## What it does

Reports tools, documents, tool calls or messages of which nothing is in the prompt, in some requests or in all. What the
server itself takes out (tools with `--exclude-tools-when-tool-choice-none`) is not reported.

## Why it matters

The model never sees them. And where only some requests miss them (a system message that is printed with some turns and
not with others), the prompts of a conversation do not begin alike.

## Example

    "tools": [...]          (a template that knows no tools)

## Use instead

Describe the tools in the system prompt, or serve with a template that prints them (`--chat-template`; the one called
`tool_use` where the model has several).

## Fix safety

The prompt changes once when they appear.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_turn, listed

CODE = "PKV503"
NAME = "template-ignores-input"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/features/tool_calling/"

FIX = "Use a template that prints them (the tool_use one, where the model has several), or leave them out."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for missing in facts.probes.unprinted:
        message = f"is not in the prompt: the template leaves {listed(missing.kinds)} out"
        if missing.elsewhere:
            message += f" here, and prints other {missing.kinds[0]}"
        yield for_turn(
            rule, facts, missing.turn, missing.path, message, FIX, blame="template", requests=missing.requests
        )
