"""The request does not read the cache.

## What it does

Reports requests for which vLLM skips the lookup: Chat Completions with `prompt_logprobs` (0 counts), or with `echo`,
which asks for them too.

## Why it matters

Log probabilities of prompt tokens need their forward pass, so every token is computed, whatever is cached. The cache is
still written.

## Example

    "prompt_logprobs": 1

## Use instead

Leave it out, or ask for it in a request of its own.

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
SOURCE_URL = "https://docs.vllm.ai/en/latest/api/vllm/sampling_params/"


def check(facts: Facts) -> Iterator[Finding]:
    items = [item for item in facts.replayed if item.turn.unread_for is not None]
    if items:
        lost = sum(item.unread for item in items)
        about = "about " if facts.approximate else ""
        cost = f" ({about}{lost:,} tokens were there to be reused)" if lost else ""
        message = f"makes the engine compute the whole prompt: the cache is written, not read{cost}"
        yield for_turn(
            modules[__name__],
            facts,
            items[0].turn,
            items[0].turn.unread_for,
            message,
            "Leave it out, or ask for it in a request of its own.",
            requests=len(items),
            tokens_lost=lost,
        )
