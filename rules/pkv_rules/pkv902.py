"""The server would not take this request.

## What it does

Reports JSON that is not a request, and requests that vLLM refuses before it renders them: missing or mistyped fields,
unknown models, a prompt that is too long. The other lines are judged all the same; the exit status is 2.

## Why it matters

The request fails with status 400 (or 404), so there is no prompt to judge.

## Example

    {"messages": [{"role": "user", "content": "hi"}], "tools": []}

## Use instead

    {"messages": [{"role": "user", "content": "hi"}]}

## Fix safety

Safe: the request did not work before.
"""

from __future__ import annotations

from collections.abc import Iterator

from pkv_lint.rule_api import Facts, Finding, Severity

CODE = "PKV902"
NAME = "invalid-request"
SEVERITY: Severity = "error"
SOURCE_URL = "https://docs.vllm.ai/en/latest/serving/openai_compatible_server/"


def check(facts: Facts) -> Iterator[Finding]:
    """Nothing: a request without a prompt never becomes a fact; the linter reports it while reading."""
    yield from ()
