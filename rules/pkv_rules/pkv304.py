"""Tool calls of the history have new ids.

## What it does

Reports call ids that differ from those sent earlier for the same calls, where the chat template prints them.
Templates that print no ids give no finding.

## Why it matters

A client that makes up ids each time it builds a request rewrites every call of the history.

## Example

    turn 2: "tool_calls": [{"id": "cP5h8Rn6u", ...}]
    turn 3: "tool_calls": [{"id": "eX2g4Yb7o", ...}]

## Use instead

    turn 3: "tool_calls": [{"id": "cP5h8Rn6u", ...}]

Keep the id that came with the call.

## Fix safety

Safe, as long as call and result carry the same id.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_group

CODE = "PKV304"
NAME = "tool-call-ids-regenerated"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("call_ids"):
        change = group.first.change
        was = f"was {change.before}" if change.before else "had none"
        more = f"; {change.places - 1:,} more in this request" if change.places > 1 else ""
        message = f"is a new id for a call sent before ({was}), and this template prints ids{more}"
        yield for_group(rule, facts, group, message, "Keep the ids that came with the calls.")
