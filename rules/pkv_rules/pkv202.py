"""The tools are not sorted.

## What it does

Advises on one request that comes alone: its tools are not in the order of their names. Where other requests show the
order to be constant, or to change (PKV201), nothing is said.

## Why it matters

Any constant order is as good as another. But an order that comes from a set, a hash map or the discovery of servers
is not constant, and that does not show in one request. Sorted tools cannot get into another order.

## Example

    "tools": [{"function": {"name": "read_file", ...}}, {"function": {"name": "grep", ...}}]

## Use instead

    "tools": [{"function": {"name": "grep", ...}}, {"function": {"name": "read_file", ...}}]

## Fix safety

Safe: the set is the same. A model may prefer tools that come first, so answers can change slightly once.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_turn

CODE = "PKV202"
NAME = "tools-unsorted"
SEVERITY: Severity = "info"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Sort the tools by name if their order is not fixed in the code that sends them."


def check(facts: Facts) -> Iterator[Finding]:
    if len(facts.replayed) != 1:
        return
    for turn, name, earlier in facts.unsorted_tools:
        message = f"are not sorted by name ({name} stands behind {earlier}); fine if the order never changes"
        yield for_turn(modules[__name__], facts, turn, "tools", message, FIX)
