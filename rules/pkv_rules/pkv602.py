"""Requests share a prefix, but a shorter one than a block.

## What it does

Reports requests that have text of their own in common with earlier ones, fewer tokens than one block of the cache
holds, and reuse nothing for that reason alone.

## Why it matters

Only whole blocks are reused. Nothing is broken: the prefix is short for this block size.

## Example

    126 shared tokens, --block-size 784

## Use instead

    126 shared tokens, --block-size 16             (112 reused)

Blocks are large on hybrid models, where the page of a state sets their size.

## Fix safety

A smaller block size is not available on every model and backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, counted, for_turn

CODE = "PKV602"
NAME = "prefix-below-block"
SEVERITY: Severity = "info"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Nothing to fix in the request; a smaller block size would reuse it, where the model allows one."


def check(facts: Facts) -> Iterator[Finding]:
    short = facts.short_prefixes
    if short:
        most = max(item.shared for item in short)
        shares = f"shares {most:,}" if len(short) == 1 else f"share up to {most:,}"
        who = counted(len(short), "request")
        message = f"{who} {shares} tokens with an earlier one, less than a block of {facts.block_size:,}"
        yield for_turn(
            modules[__name__],
            facts,
            short[0].turn,
            None,
            message,
            FIX,
            blame="engine",
            requests=len(short),
            evidence={"shared": most, "block_size": facts.block_size},
        )
