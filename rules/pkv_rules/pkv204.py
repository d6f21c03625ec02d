"""The definition of a tool changed.

## What it does

Reports tools that have the same name as in an earlier request and another description or schema, with the place in
the definition. A date or an identifier in a description is PKV101 or PKV102, another order of keys PKV205.

## Why it matters

Tools are printed near the start of the prompt, and what stands behind the changed definition is computed again,
mostly the other tools and the whole history.

## Example

    turn 1: {"name": "search", "description": "Search the index (1,204 documents)."}
    turn 2: {"name": "search", "description": "Search the index (1,207 documents)."}

## Use instead

    turn 1 and 2: {"name": "search", "description": "Search the index."}

Keep what changes out of definitions. Let the tool say it in its result.

## Fix safety

Safe when the model does not need the value to decide on a call. Lists of allowed values that do change can be checked
when the call comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, changing, for_group, listed

CODE = "PKV204"
NAME = "tool-definition-changed"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Send the same definition every time; what changes belongs into the tool's result or the last message."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("tool_definition"):
        message = f"is part of a definition ({listed(group.names)}) that {changing(facts, group)}"
        yield for_group(rule, facts, group, message, FIX)
