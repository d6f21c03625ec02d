"""The arguments of a tool call are not a JSON object.

## What it does

Reports calls in the history whose `arguments` string cannot be read as a JSON object.

## Why it matters

The server renders an empty object in its place, so the model sees a call without arguments.

## Example

    "arguments": "{\\"city\\": \\"Paris\\""

## Use instead

    "arguments": "{\\"city\\": \\"Paris\\"}"

## Fix safety

Repairing old calls changes the prompt once.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_turn

CODE = "PKV904"
NAME = "arguments-not-json"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for turn, path in facts.probes.broken_arguments:
        message = "is not a JSON object: the server renders {} instead"
        yield for_turn(rule, facts, turn, path, message, "Send the arguments as a JSON object.")
        return
