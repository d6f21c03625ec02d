"""A reply comes back as other tokens than were generated.

## What it does

Reports replies that are in the history, but not as the tokens the model produced: text trimmed, calls written another
way, tokens split differently. Needs the generated text or ids of the earlier request. A warning for hybrid models.

## Why it matters

The generated tokens are cached behind the prompt. A reply that is rendered or tokenised to other tokens is computed
again.

## Example

    generated: "Done.\\n"
    turn 2:    assistant "Done."

## Use instead

    turn 2:    assistant "Done.\\n"

Send replies back unchanged. What the template changes cannot be helped by the client.

## Fix safety

Safe.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Severity, for_group, nth

CODE = "PKV404"
NAME = "generated-text-not-reproduced"
SEVERITY: Severity = "info"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Send replies back exactly as they were generated."
FIX_TEMPLATE = "Not the client's doing: the template writes the reply, or the tokenizer splits it, another way."


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    severity: Severity = "warning" if facts.hybrid else SEVERITY
    for group in facts.of("generated"):
        faithful = all(cause.change.kind == "template" for cause in group.causes)
        if faithful:
            message = f"is printed as other tokens than the {nth(group.first.earlier.index)} request generated"
            yield for_group(rule, facts, group, message, FIX_TEMPLATE, severity=severity, blame="template")
        else:
            message = f"is not the text that the {nth(group.first.earlier.index)} request generated"
            yield for_group(rule, facts, group, message, FIX, severity=severity)
