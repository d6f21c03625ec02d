"""The request does not read the cache.

## What it does

Reports requests for which the engine skips the lookup: those that ask for `prompt_logprobs`.

## Why it matters

Log probabilities of prompt tokens need their forward pass, so every token is computed, whatever is cached.

## Example

    "prompt_logprobs": 1

## Use instead

    (leave it out)

## Fix safety

Safe when nobody reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_turn

CODE = "PKV604"
NAME = "cache-read-disabled"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    turns = [item.turn for item in facts.replayed if item.turn.chat.get("prompt_logprobs") is not None]
    if turns:
        message = "makes the engine compute the whole prompt: the cache is written, not read"
        yield for_turn(rule, facts, turns[0], "prompt_logprobs", message, "Leave it out.", requests=len(turns))
