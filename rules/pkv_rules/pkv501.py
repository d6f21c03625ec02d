"""The chat template prints the current date or time.

## What it does

Reports templates whose text depends on the clock of the server, found by rendering the same request at two times, and
what it cost where a traffic spans the change.

## Why it matters

No request changes, yet at midnight (or every second) every prompt does, near its start: the cache is cold for all.

## Example

    Today Date: {{ strftime_now("%d %b %Y") }}

## Use instead

    "chat_template_kwargs": {"date_string": "26 Jul 2024"}

Pin the date through the template's own variable, where it has one, or use a template without a clock.

## Fix safety

The model no longer knows today's date; put it into the last user message if it matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_group, for_turn

CODE = "PKV501"
NAME = "template-injects-clock"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Use a template without a clock, or one whose date can be pinned."
UNITS = {"day": "to the day", "minute": "to the minute", "second": "to the second", "fraction": "to the second"}


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    clock = facts.probes.clock
    if clock is None:
        return
    fix = f"Pin it with chat_template_kwargs.{clock.variable}." if clock.variable else FIX
    unit = f"the template prints the server's clock ({UNITS[clock.granularity]}): {clock.text!r}"
    groups = facts.of("clock")
    for group in groups:
        severity: Severity = "info" if clock.granularity == "day" and group.tokens_lost == 0 else SEVERITY
        yield for_group(rule, facts, group, unit, fix, severity=severity, blame="template")
    if not groups:
        severity = "info" if clock.granularity == "day" else SEVERITY
        yield for_turn(rule, facts, clock.turn, None, unit, fix, severity=severity, blame="template")
