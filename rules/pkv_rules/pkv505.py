"""The prompt begins with two beginning-of-sequence tokens.

## What it does

Reports prompts whose first two tokens are both the tokenizer's BOS: one is in the text (the template prints it, or a
rendered prompt was sent as text) and the tokenizer adds another. That happens on the Responses API and with rendered
text on Completions, where `add_special_tokens` is on, with tokenizers that add a BOS (Llama 3, Gemma).

## Why it matters

Such prompts differ from those of Chat Completions from the second token on: nothing is shared between the endpoints.
Models are not trained on them either.

## Example

    POST /v1/responses           -> [128000, 128000, ...]

## Use instead

    POST /v1/chat/completions    -> [128000, ...]

Or send `"add_special_tokens": false`, where the endpoint takes it (Completions and Chat Completions).

## Fix safety

Safe.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Blame, Facts, Finding, Severity, for_turn

CODE = "PKV505"
NAME = "duplicate-bos"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://huggingface.co/docs/transformers/main/en/chat_templating"

MESSAGE = "the prompt begins with two BOS tokens: one is in its text, the other is the tokenizer's"
FIX = "Send it to /v1/chat/completions, or with add_special_tokens false where the endpoint takes that."


def check(facts: Facts) -> Iterator[Finding]:
    turns = facts.probes.doubled_bos
    if turns:
        path = "add_special_tokens" if (turns[0].line.request or {}).get("add_special_tokens") else None
        blame: Blame = "client" if path else "engine"
        yield for_turn(
            modules[__name__], facts, turns[0], path, MESSAGE, FIX, blame=blame, requests=len(turns), as_sent=True
        )
