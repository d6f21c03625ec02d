"""A tool call or its result is written in another notation than before.

## What it does

Reports tool-call arguments and tool results of the history that are equal as JSON to what was sent earlier, but not
as text: keys in another order, numbers, escapes or spaces written another way. Only where the prompt shows it.

## Why it matters

Templates print arguments with their keys in the order they came, and results as they stand. A client that stores them
in a database and serialises them again sends another text, and the prompt differs from there on.

## Example

    turn 2: "arguments": "{\\"path\\": \\"a.py\\", \\"all\\": true}"
    turn 3: "arguments": "{\\"all\\":true,\\"path\\":\\"a.py\\"}"

## Use instead

    turn 3: "arguments": "{\\"path\\": \\"a.py\\", \\"all\\": true}"

Keep the string that the model (or the tool) gave, byte for byte.

## Fix safety

Safe: the values are the same.

`--fix` writes arguments and results that are JSON as they were when they first came in the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_group, listed, nth

CODE = "PKV303"
NAME = "tool-arguments-reserialized"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Keep arguments and results as the strings they came as, and send those; do not parse and write them again."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("arguments"):
        change, since = group.first.change, f"than in the {nth(group.first.earlier.index)} request"
        names = f" ({listed(group.names)})" if group.names else ""
        more = f", as {change.places - 1:,} more in this request" if change.places > 1 else ""
        message = f"is equal as JSON, but written another way {since}{names}{more}"
        yield for_group(rule, facts, group, message, FIX)
