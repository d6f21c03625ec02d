"""For test suites: an assertion that prompts can be reused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal

import click

from pkv_lint.choice import Choice, codes_in
from pkv_lint.findings import Severity
from pkv_lint.linting import Report, load_rules, report_of
from pkv_lint.outputs import lines
from pkv_lint.outputs.wording import one_line
from pkv_lint.prompt.model_config import DEFAULT_BLOCK_SIZE
from pkv_lint.prompt.renderer import Renderer

_load = lru_cache(maxsize=4)(Renderer.load)


def assert_prefix_stable(
    requests: Iterable[Mapping[str, Any]],
    *,
    model: str | None = None,
    chat_template: str | None = None,
    tokenizer: str | None = None,
    vllm_args: str | None = None,
    block_size: int | None = None,
    fail_on: Severity | Literal["never"] = "warning",
    select: Iterable[str] | None = None,
    ignore: Iterable[str] = (),
) -> None:
    """Raises AssertionError, with the report of pkv-lint as its text, where it finds something at or above `fail_on`.

    `requests` are chat bodies, or lines of traffic (`{"request": …, "session_id": …}`), in the order they are sent.
    The other arguments mean what the options of the command mean (`block_size` in tokens); `select` and `ignore` are
    codes or beginnings of codes. Requests that the server would refuse fail whatever is selected, and so does nothing
    at all to judge. Raises InputError for a model that cannot be loaded, and for codes that no rule has.
    """
    __tracebackhide__ = True
    given = list(requests)
    if not given:
        raise AssertionError("there are no requests to judge")
    all_rules = load_rules()
    known = [rule.CODE for rule in all_rules]
    ignored = ",".join(ignore)
    chosen = Choice(
        None if select is None else codes_in(",".join(select), "select", known),
        codes_in(ignored, "ignore", known) if ignored else (),
    )
    renderer = _load(model, chat_template, tokenizer, vllm_args)
    size = block_size or renderer.deployment.block_size or DEFAULT_BLOCK_SIZE
    rules = [rule for rule in all_rules if chosen.takes(rule.CODE)]
    report = chosen.of(report_of(given, renderer, block_size=size, rules=rules))
    if report.unusable or (fail_on != "never" and any(found.at_least(fail_on) for found in report.findings)):
        raise AssertionError("\n" + text_of(report))


def text_of(report: Report) -> str:
    """What the command prints, without colours."""
    shown = [*map(one_line, report.unusable), *lines("text", [report])]
    return click.unstyle("\n".join(shown))
