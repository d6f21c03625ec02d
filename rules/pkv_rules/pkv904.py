"""The arguments of a tool call are not a JSON object.

## What it does

Reports calls in the history whose `arguments` string cannot be read as a JSON object.

## Why it matters

vLLM renders an empty object in their place, so the model sees a call without arguments, and the next reply is written
behind something that it never said. The cached tokens of the original call are not reused either.

## Example

    "arguments": "{\\"city\\": \\"Paris\\""

## Use instead

    "arguments": "{\\"city\\": \\"Paris\\"}"

Calls that were cut off (by `max_tokens`, for one) are better left out of the history, together with their results.

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
SOURCE_URL = "https://platform.openai.com/docs/api-reference/chat/create"

MESSAGE = "is not a JSON object: the server renders {} in its place"
FIX = "Send the arguments as a JSON object, as text."


def check(facts: Facts) -> Iterator[Finding]:
    broken = facts.probes.broken_arguments
    if broken:
        requests = len({spotted.turn.index for spotted in broken})
        yield for_turn(modules[__name__], facts, broken[0].turn, broken[0].path, MESSAGE, FIX, requests=requests)
