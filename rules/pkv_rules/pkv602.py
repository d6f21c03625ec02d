"""Requests share a prefix, but a shorter one than a block.

## What it does

Reports requests that have tokens in common with earlier ones, fewer than one block of the cache holds.

## Why it matters

Only whole blocks are reused, so nothing is. Nothing is broken: the prefix is short for this block size.

## Example

    126 shared tokens, --block-size 784

## Use instead

    126 shared tokens, --block-size 16             -> 112 reused

Blocks are large on hybrid models, where the page of a state sets their size.

## Fix safety

A smaller block size is not available on every model and backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_turn

CODE = "PKV602"
NAME = "prefix-below-block"
SEVERITY: Severity = "info"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Nothing to fix in the request; a smaller block size would reuse it, where the model allows one."
LEAST = 32
"""Tokens below which a common start is only the template's own."""


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for item in facts.replayed:
        if LEAST <= item.shared < facts.block_size:
            message = f"shares {item.shared} tokens with an earlier request, less than one block of {facts.block_size}"
            yield for_turn(rule, facts, item.turn, None, message, FIX, blame="engine")
            return
