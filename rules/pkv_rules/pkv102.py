"""An identifier stands in front of text that could be cached.

## What it does

Reports a UUID, ULID, hash, JWT, or the id of a request, a session or a trace, that stands in the system prompt, the
tools, a template argument or an earlier user message and changes between requests. In a single request, where nothing
can be compared, an identifier of one request or session is a warning if at least a block of cacheable text stands
behind it. An identifier that other requests show to be constant is none of its business.

## Why it matters

An identifier is made to be different every time. In front of the tools and the history it makes the prompts differ
there, and everything behind it is computed again. Models have no use for most of them.

## Example

    {"role": "system", "content": "[request 3f2504e0-4f89-41d3-9a0c-0305e82c3301]\\nYou are Tern ..."}

## Use instead

    {"role": "system", "content": "You are Tern ..."}
    "metadata": {"request_id": "3f2504e0-4f89-41d3-9a0c-0305e82c3301"}

Send it where it is not part of the prompt (a header, `metadata`, `user`). What the model must know belongs into the
last user message, to be kept there in later turns.

## Fix safety

Safe where only logs need the identifier. Where a tool call has to carry it, let the code that runs the tool add it.

`--unsafe-fixes` moves lines of the system message (of a paragraph, sentences) into the user's messages, each of which
keeps what it got.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, changing, for_group, for_pattern

CODE = "PKV102"
NAME = "identifier-in-prefix"
SEVERITY: Severity = "error"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Send it outside of the prompt (a header, metadata), or in the last user message, and keep it there."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("identifier"):
        yield for_group(rule, facts, group, f"is an identifier that {changing(facts, group)}", FIX)
    for pattern in facts.patterns:
        if pattern.match.kind == "identifier":
            yield for_pattern(rule, facts, pattern, "looks like the identifier of one request", FIX, "warning")
