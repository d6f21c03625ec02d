"""Tools were added or removed.

## What it does

Reports requests that offer other tools than the request they go on from, with the names. It knows `tool_choice`: vLLM
keeps the tools in the prompt when it is `none`, unless the server runs with `--exclude-tools-when-tool-choice-none`;
then switching it is the same as removing all tools, and is reported at `tool_choice`.

## Why it matters

Templates print the tools near the start of the prompt, mostly in front of the whole history. A tool that comes or
goes changes the prompt there, and the conversation is computed again. Tools added at the end keep at least those in
front of them.

## Example

    turn 1: "tools": [grep, read_file]
    turn 2: "tools": [grep, read_file, run_command]

## Use instead

    turn 1 and 2: "tools": [grep, read_file, run_command], "tool_choice": "auto"

Send all tools always. To keep the model from some of them, use `tool_choice` or `allowed_tools`, which do not change
the prompt, or refuse the call when it comes.

## Fix safety

The model sees tools that it may not use yet; say so in their descriptions, or in the last message.

`--unsafe-fixes` offers all tools of a conversation in each of its requests. Those that offered none get
`"tool_choice": "none"`.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import modules

from pkv_lint.rule_api import Facts, Finding, Group, Severity, changing, for_group, listed

CODE = "PKV203"
NAME = "tool-set-changed"
SEVERITY: Severity = "warning"
SOURCE_URL = "https://docs.vllm.ai/en/latest/features/tool_calling/"

FIX = "Offer the same tools in every request; limit them with tool_choice, which leaves the prompt as it is."
FIX_CHOICE = (
    "This server takes the tools out when tool_choice is none: keep it, or drop --exclude-tools-when-tool-choice-none."
)


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    for group in facts.of("tool_set"):
        if group.first.change.path == "tool_choice":
            change = group.first.change
            message = (
                f"takes the tools out of the prompt (was {change.before or 'unset'}, is {change.after or 'unset'})"
            )
            yield for_group(rule, facts, group, message, FIX_CHOICE)
            continue
        fix = FIX
        if facts.tools_hidden_by_choice:
            fix = "Offer the same tools in every request (tool_choice none takes them out on this server, too)."
        yield for_group(rule, facts, group, f"are a set that {changing(facts, group)}: {difference(group)}", fix)


def difference(group: Group) -> str:
    """What came and what went, `first` for the request that is shown when others differ in other ways."""
    added = [name[1:] for name in group.first.change.names if name.startswith("+")]
    removed = [name[1:] for name in group.first.change.names if name.startswith("-")]
    parts = [f"{what} {listed(names)}" for what, names in (("added", added), ("removed", removed)) if names]
    others = len({cause.change.names for cause in group.causes}) > 1
    return ("first " if others else "") + ", ".join(parts or ["repeated names"])
