"""A cache marker does nothing here.

## What it does

Reports `cache_control` and the like on messages, parts and tools. Such markers tell some hosted services what to cache.

## Why it matters

vLLM and other engines with automatic prefix caching reuse every common prefix and read no markers. Mostly they are
dropped before the prompt is made; a template that prints whole objects prints them too, and a marker that moves from
turn to turn then changes the history.

## Example

    {"type": "text", "text": "...", "cache_control": {"type": "ephemeral"}}

## Use instead

    {"type": "text", "text": "..."}

## Fix safety

Safe for these engines; keep it if the same client also talks to a service that reads it.

`--fix` takes the markers out where that changes no prompt.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_turn

CODE = "PKV603"
NAME = "cache-control-marker"
SEVERITY: Severity = "info"
SOURCE_URL = "https://docs.vllm.ai/en/latest/features/automatic_prefix_caching/"

MESSAGE = "does nothing in automatic prefix caching: every common prefix is reused without it"


def check(facts: Facts) -> Iterator[Finding]:
    markers = facts.probes.cache_markers
    if markers:
        first = markers[0]
        yield for_turn(
            modules[__name__],
            facts,
            first.turn,
            first.path,
            MESSAGE,
            "Leave it out, unless another service reads it.",
            requests=len(markers),
            as_sent=True,
        )
