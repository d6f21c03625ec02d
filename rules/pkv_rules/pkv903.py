"""The chat template refuses this request.

## What it does

Reports requests on which the chat template raises an error, as it would on the server: roles that do not alternate,
arguments it cannot print, an exception that it raises itself. The message is the template's own. Requests that fail for
the same reason are reported together.

## Why it matters

The server answers with status 400.

## Example

    {"messages": [{"role": "user", "content": "hi"}, {"role": "user", "content": "hello?"}]}

## Use instead

    {"messages": [{"role": "user", "content": "hi\\n\\nhello?"}]}

Or serve with a template that takes the request.

## Fix safety

Safe: the request did not work before.
"""

from __future__ import annotations

from collections.abc import Iterator

from pkv_lint.rule_api import Facts, Finding, Severity

CODE = "PKV903"
NAME = "template-refuses-request"
SEVERITY: Severity = "error"
SOURCE_URL = "https://huggingface.co/docs/transformers/main/en/chat_templating_writing"


def check(facts: Facts) -> Iterator[Finding]:
    """Nothing: a request without a prompt never becomes a fact; the linter reports it while reading."""
    yield from ()
