"""A tool call is written in another notation than before.

## What it does

Reports tool-call arguments of the history that are equal as JSON to what was sent earlier, but not as text: keys in
another order, numbers or escapes written another way.

## Why it matters

Templates print the arguments as they stand. A client that stores calls in a database and serialises them again sends
another text, and the prompt differs from there on.

## Example

    turn 2: "arguments": "{\\"path\\": \\"a.py\\", \\"all\\": true}"
    turn 3: "arguments": "{\\"all\\":true,\\"path\\":\\"a.py\\"}"

## Use instead

    turn 3: "arguments": "{\\"path\\": \\"a.py\\", \\"all\\": true}"

Keep the string that the model gave, byte for byte.

## Fix safety

Safe: the values are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_group

CODE = "PKV303"
NAME = "tool-arguments-reserialized"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("arguments"):
        message = "are equal as JSON to what was sent before, but written another way"
        yield for_group(
            rule, facts, group, message, "Send back the arguments as the model wrote them, as the same string."
        )
