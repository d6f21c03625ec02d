"""The chat template writes HTML entities for characters of the request.

## What it does

Reports the first character of a request that came out as an HTML entity. In Jinja `|safe` makes markup of a text, and
markup escapes whatever is joined with it. Entities that the request itself holds are not meant.

## Why it matters

The model reads `&#34;` for a quote, and the same text costs more tokens.

## Example

    {{ "<tool>" | safe + tool.description }}

## Use instead

    {{ "<tool>" + tool.description }}

## Fix safety

The prompt changes once.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_turn

CODE = "PKV504"
NAME = "template-escapes-html"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://markupsafe.palletsprojects.com/en/stable/escaping/"


def check(facts: Facts) -> Iterator[Finding]:
    escaped = facts.probes.escaped
    if escaped is None:
        return
    message = (
        f"is {escaped.entity} in the prompt: the template makes markup with |{escaped.filter} "
        f"(first at its line {escaped.template_line}), and that escapes what it is joined with"
    )
    yield for_turn(
        modules[__name__],
        facts,
        escaped.turn,
        escaped.path,
        message,
        f"Take |{escaped.filter} out of a copy of the template and serve with that (--chat-template).",
        span=escaped.span,
        blame="template",
        requests=escaped.requests,
        evidence={"entity": escaped.entity, "template_line": escaped.template_line},
    )
