"""The input is not JSON.

## What it does

Reports lines and files that cannot be read as JSON, with the place of the first character that is wrong. The other
lines are judged all the same; the exit status is 2.

## Why it matters

A line that is skipped silently is a request that nobody checked.

## Example

    {"messages": [{"role": "user", "content": "hi"}],

## Use instead

    {"messages": [{"role": "user", "content": "hi"}]}

## Fix safety

Safe.
"""

from __future__ import annotations

from collections.abc import Iterator

from pkv_lint.rule_api import Facts, Finding, Severity

CODE = "PKV901"
NAME = "invalid-json"
SEVERITY: Severity = "error"
SOURCE_URL = "https://www.rfc-editor.org/rfc/rfc8259"


def check(facts: Facts) -> Iterator[Finding]:
    """Nothing: what cannot be read never becomes a fact; the linter reports it while reading."""
    yield from ()
