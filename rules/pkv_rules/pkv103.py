"""Text in front of cacheable text changes from request to request.

## What it does

Reports text in the system prompt or a template argument that differs between requests and is neither a date nor an
identifier: a counter, the state of a repository, a working directory, a checksum. It is an error where the break
leaves less than a tenth of what could have been reused. Text that changed once, between two conversations of a longer
traffic, was edited: that is a note.

## Why it matters

Nothing behind the first token that differs is reused. At the head of the prompt it means that no request ever hits.

## Example

    {"role": "system", "content": "x-build: v=2; sum=04fd1\\nYou are Tern ..."}

## Use instead

    {"role": "system", "content": "You are Tern ..."}

Leave it out, or put it into the last user message and keep it there in later turns.

## Fix safety

Safe when the model does not need the value; otherwise it reads it in another place.

`--unsafe-fixes` moves lines of the system message (of a paragraph, sentences) into the user's messages, each of which
keeps what it got.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Group, Severity, changing, for_group

CODE = "PKV103"
NAME = "volatile-text-in-prefix"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Leave it out, or move it behind everything stable (last user message, and keep it there)."
HEAD = 0.1
"""A break that leaves less than this share of what could be reused stands at the head."""
MANY = 4
"""Requests from which on text that changed once between sessions was edited rather than volatile."""


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for nature in ("volatile", "argument"):
        for group in facts.of(nature):
            if len(group.causes) == 1 < MANY <= len(facts.replayed) and not group.within_conversation:
                message = "changed once, between two conversations"
                yield for_group(rule, facts, group, message, FIX, severity="info")
                continue
            severity: Severity = "error" if at_head(group) else SEVERITY
            yield for_group(rule, facts, group, changing(facts, group), FIX, severity=severity)


def at_head(group: Group) -> bool:
    return group.first.hit < HEAD * group.first.hit_without
