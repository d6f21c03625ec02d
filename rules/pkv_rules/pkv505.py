"""The prompt begins with two beginning-of-sequence tokens.

## What it does

Reports prompts whose first two tokens are both the tokenizer's BOS: the template prints one and the tokenizer adds
another, as on the Responses API with Llama-3 and Gemma.

## Why it matters

Such prompts share no prefix with those of the chat endpoint, and models were not trained on them.

## Example

    POST /v1/responses           -> [128000, 128000, ...]

## Use instead

    POST /v1/chat/completions    -> [128000, ...]

Use one endpoint, or send add_special_tokens: false where it is accepted.

## Fix safety

Safe.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_turn

CODE = "PKV505"
NAME = "duplicate-bos"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Send such requests to /v1/chat/completions, or with add_special_tokens false."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for turn in facts.probes.doubled_bos:
        message = "the prompt begins with two BOS tokens: one of the template, one of the tokenizer"
        yield for_turn(rule, facts, turn, None, message, FIX, blame="engine")
        return
