"""`--explain` and `--list-rules`: what the rules say of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

import click

from pkv_lint.columns import terminal_columns, wrapped
from pkv_lint.linting import documentation
from pkv_lint.outputs.text import COLOURS
from pkv_lint.prompt.errors import InputError
from pkv_lint.rule_api import Rule

NARROW = 100
"""Columns beyond which prose is harder to read."""
LIST_ITEM = re.compile(r"[-*] ")


def find_rule(name: str, rules: Sequence[Rule]) -> Rule:
    """The rule with this code (`PKV101`, or `101` alone) or name. Raises InputError."""
    for rule in rules:
        if name.upper() in (rule.CODE, re.sub(r"\D", "", rule.CODE)) or name.lower() == rule.NAME:
            return rule
    raise InputError(f"no rule has the code or name {name!r} (see --list-rules)")


def explanation(rule: Rule) -> Iterator[str]:
    """The page of a rule, for reading."""
    columns = max(60, min(terminal_columns(NARROW), NARROW))
    severity = click.style(rule.SEVERITY, fg=COLOURS[rule.SEVERITY], bold=True)
    yield f"{click.style(f'{rule.CODE} {rule.NAME}', bold=True)} ({severity})"
    for is_blank, block in groupby(documentation(rule).split("\n"), key=lambda line: not line.strip()):
        if is_blank:
            continue
        yield ""
        lines = list(block)
        if lines[0].startswith("## "):
            yield click.style(lines[0].removeprefix("## "), bold=True, underline=True)
        elif lines[0].startswith("    "):
            yield from (click.style(line, fg="cyan") for line in lines)
        elif LIST_ITEM.match(lines[0]):
            yield from lines
        else:
            yield from wrapped(" ".join(lines), columns)
    yield ""
    yield click.style(rule.SOURCE_URL, dim=True)


def overview(rules: Sequence[Rule]) -> Iterator[str]:
    """One line per rule."""
    columns = max((len(rule.NAME) for rule in rules), default=0)
    for rule in rules:
        severity = click.style(f"{rule.SEVERITY:<7}", fg=COLOURS[rule.SEVERITY])
        lead = documentation(rule).partition("\n")[0]
        yield f"{rule.CODE}  {severity}  {rule.NAME:<{columns}}  {lead}"
