"""The same tool comes with its keys in another order.

## What it does

Reports tools that are equal as JSON to those of an earlier request, but whose keys, or the names in whose `required`
lists, stand in another order.

## Why it matters

Templates print a definition with its keys in the order they were sent. Two definitions that mean the same are
different tokens, and everything behind the first key that moved is computed again.

## Example

    turn 1: {"type": "object", "properties": {...}, "required": ["path", "glob"]}
    turn 2: {"properties": {...}, "required": ["glob", "path"], "type": "object"}

## Use instead

    turn 1 and 2: {"type": "object", "properties": {...}, "required": ["glob", "path"]}

Build definitions once and keep them, or serialise them with sorted keys and sorted `required` lists. The order of
`enum` and of other lists may mean something; leave it as it is.

## Fix safety

Safe: JSON objects have no order, and `required` is a set.

`--fix` sorts both in schemas that are written in several ways; never `enum`, nor what `default` and the like hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, changing, for_group, listed

CODE = "PKV205"
NAME = "schema-keys-reordered"
SEVERITY: Severity = "error"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Build the definitions once, or write them with sorted keys and sorted `required` lists."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("schema_keys"):
        message = f"is equal as JSON, in an order that {changing(facts, group)} ({listed(group.names)})"
        yield for_group(rule, facts, group, message, FIX)
