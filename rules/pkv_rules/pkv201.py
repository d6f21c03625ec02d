"""The same tools come in another order.

## What it does

Reports requests whose tools are the same set as in an earlier request, in another order.

## Why it matters

Templates print tools in the order given, near the start of the prompt. Another order is another prefix: the tools,
the history and everything behind them are computed again.

## Example

    "tools": [{"function": {"name": "read_file", ...}}, {"function": {"name": "grep", ...}}]
    "tools": [{"function": {"name": "grep", ...}}, {"function": {"name": "read_file", ...}}]

## Use instead

    "tools": [{"function": {"name": "grep", ...}}, {"function": {"name": "read_file", ...}}]

Sort them by name before each request. Sets, hash maps and parallel discovery give them in any order.

## Fix safety

Safe: the set is the same. A model may prefer tools that come first, so answers can change slightly once.

`--fix` sorts by name what comes in several orders.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, changing, for_group

CODE = "PKV201"
NAME = "tools-reordered"
SEVERITY: Severity = "error"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Sort the tools by name before every request."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("tools_reordered"):
        before, after = group.first.change.names
        message = (
            f"are the same set in an order that {changing(facts, group)} (first that differs: {after}, was {before})"
        )
        yield for_group(rule, facts, group, message, FIX)
