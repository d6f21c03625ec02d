"""The prompt shows the current date or time, put there by the chat template.

## What it does

Reports templates whose text depends on the clock of the server, found by rendering a request at two times, with the
finest unit that shows, the line of the template, and what it cost where a traffic spans a change. A clock that shows
nothing finer than the date is a note.

Templates may ask whether there is a clock (`strftime_now is defined`) and print a constant date, or none, when there is
not. vLLM has one, and that is what this rule assumes and says; an engine without it hides the fault.

## Why it matters

No request changes, yet at midnight (or every second) every prompt does, near its start: the cache is cold for all.

## Example

    Today Date: {{ strftime_now("%d %b %Y") }}

## Use instead

    "chat_template_kwargs": {"date_string": "26 Jul 2024"}

Pin the date through the template's own variable, where it has one (by request, or for all with
`--default-chat-template-kwargs`). Some templates print the date in their default system message only: send one of your
own.

## Fix safety

The model no longer knows today's date; put it into the last user message if it matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Clock, Facts, Finding, Severity, for_group, for_turn

CODE = "PKV501"
NAME = "template-injects-clock"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://huggingface.co/docs/transformers/main/en/chat_templating_writing"

DATES = ("day", "week", "month", "year")


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    clock = facts.probes.clock
    if clock is None:
        return
    severity: Severity = "info" if clock.granularity in DATES else SEVERITY
    groups = facts.of("clock")
    for group in groups:
        yield for_group(rule, facts, group, said(clock), fix(clock), severity=severity, blame="template")
    if not groups:
        evidence = {
            "printed": clock.text,
            "granularity": clock.granularity,
            "template_line": clock.template_line,
            "pinned_by": clock.variable or clock.setting,
        }
        yield for_turn(
            rule,
            facts,
            clock.turn,
            None,
            said(clock),
            fix(clock),
            severity=severity,
            blame="template",
            evidence=evidence,
        )


def said(clock: Clock) -> str:
    unit = "to a fraction of a second" if clock.granularity == "fraction" else f"to the {clock.granularity}"
    printed = f" ({clock.text})" if clock.text else ""
    if clock.setting:
        return f"the engine writes its own date into every prompt, {unit}{printed}"
    line = f" at its line {clock.template_line}" if clock.template_line else ""
    text = f"the chat template prints the server's clock{line}, {unit}{printed}"
    if clock.assumed:
        text += "; assumed: the engine has strftime_now, as vLLM does (without it this template shows no clock)"
    return text


def fix(clock: Clock) -> str:
    if clock.setting:
        return f"Start the server with {clock.setting} set to a fixed date."
    if clock.variable:
        name = clock.variable
        return f"Pin it with chat_template_kwargs.{name} (or --default-chat-template-kwargs on the server)."
    if clock.only_by_default:
        return "Send a system message: the template prints its clock only in the one that it makes up without."
    return "Serve with a copy of the template that has no clock (--chat-template)."
