"""The chat template drops something that the request sends.

## What it does

Reports tools, documents or messages of a role of which the template prints nothing.

## Why it matters

The model never sees them. What is left out silently is also what a later fix brings back, and that changes every
prompt.

## Example

    "tools": [...]          (a template that knows no tools)

## Use instead

    Describe the tools in the system prompt, or use a template that prints them.

## Fix safety

The prompt changes once when they appear.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_turn

CODE = "PKV503"
NAME = "template-ignores-input"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Use a template that prints them (the tool_use one, where the model has several), or leave them out."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for ignored in facts.probes.ignored:
        message = f"never reach the prompt: this template prints no {ignored.what}"
        yield for_turn(rule, facts, ignored.turn, ignored.path, message, FIX, blame="template")
