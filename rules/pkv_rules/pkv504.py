"""The chat template escapes text as HTML.

## What it does

Reports prompts in which characters of the request came out as HTML entities, as `|safe` joined with plain text does
in Jinja.

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
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for escaped in facts.probes.escaped:
        message = f"comes out with HTML entities ({escaped.what}): the template joins it to text marked safe"
        yield for_turn(
            rule, facts, escaped.turn, escaped.path, message, "Drop `|safe` in the template.", blame="template"
        )
