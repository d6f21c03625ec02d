"""A cache marker does nothing here.

## What it does

Reports `cache_control` markers. They tell some hosted services what to cache.

## Why it matters

Engines with automatic prefix caching reuse every common prefix. The marker is dropped before the prompt is made, or,
in templates that print whole objects, printed.

## Example

    {"type": "text", "text": "...", "cache_control": {"type": "ephemeral"}}

## Use instead

    {"type": "text", "text": "..."}

## Fix safety

Safe for these engines; keep it if the same client also talks to a service that reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_turn

CODE = "PKV603"
NAME = "cache-control-marker"
SEVERITY: Severity = "info"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for turn, path in facts.probes.cache_markers:
        yield for_turn(rule, facts, turn, path, "does nothing in automatic prefix caching", "Leave it out.")
        return
