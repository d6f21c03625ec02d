"""A verification as one self-contained page: predicted against measured, and each session as strips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from pkv_engine.verify.outputs import text
from pkv_engine.verify.outputs.scatter import Measured, Scatter, scatter
from pkv_engine.verify.report import Report, Row
from pkv_lint.columns import visible
from pkv_lint.outputs import page as pages

TEMPLATE = "verify.html.jinja"
MOST_SESSIONS = 200
"""Sessions that are drawn; of more, those with differing requests first."""


@dataclass(frozen=True, slots=True)
class Run:
    """A part of a prompt in one state: `reused` (as predicted), `missing` (predicted, not found), `extra` (found, not
    predicted), `computed`."""

    state: str
    tokens: int
    title: str
    blocks: int = 0


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request as a strip, `width` in per cent of the longest prompt."""

    label: str
    runs: tuple[Run, ...]
    width: float
    ttft: str
    remark: str


@dataclass(frozen=True, slots=True)
class Session:
    name: str
    prompts: tuple[Prompt, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One replay on the page. `name` is `before` or `after` where there are two."""

    name: str
    file: str
    headline: str
    total: tuple[Run, ...]
    charts: tuple[Scatter, ...]
    sessions: tuple[Session, ...]
    left_out: int
    findings: tuple[str, ...]
    passed: bool


def page(reports: Sequence[Report]) -> str:
    """One report, or two to compare."""
    names = ("before", "after") if len(reports) > 1 else ("",)
    values: dict[str, Any] = {
        "parts": [_part(name, report) for name, report in zip(names, reports, strict=True)],
        "reports": reports,
        "compared": list(text.comparison_rows(*reports)) if len(reports) > 1 else [],
        "passed": all(report.exit_status == 0 for report in reports),
        "equal": sum(report.statuses["as predicted"] for report in reports),
        "requests": sum(len(report.compared) for report in reports),
        "setting": " · ".join(click.unstyle(line) for line in list(text.headline(reports[0]))[1:]),
        "server": f"{text.engine_name(reports[0])} {reports[0].server.version or ''}".strip(),
        "url": reports[0].url,
    }
    return pages.render("pkv_engine.verify.outputs", TEMPLATE, values, tips=True)


def _part(name: str, report: Report) -> Part:
    sessions = _sessions(report)
    charts = (_tokens_chart(report), _times_chart(report))
    return Part(
        name,
        visible(report.name),
        click.unstyle("  ".join(text.verdict(report))).replace("  ", " · "),
        tuple(_total(report)),
        tuple(chart for chart in charts if chart is not None),
        tuple(sessions[:MOST_SESSIONS]),
        max(0, len(sessions) - MOST_SESSIONS),
        tuple(click.unstyle(line) for line in text.findings(report) if line),
        report.exit_status == 0,
    )


def _state(row: Row) -> str:
    return "reused" if row.status == "as predicted" else "missing"


def _tokens_chart(report: Report) -> Scatter | None:
    points = [Measured(row.predicted or 0, row.reported or 0, _state(row), _title(row)) for row in report.compared]
    return scatter("Cached tokens", "predicted", "reported", points, "{:,.0f}".format)


def _times_chart(report: Report) -> Scatter | None:
    points = [
        Measured(row.predicted_ttft, row.answer.ttft, _state(row), _title(row))
        for row in report.rows
        if row.predicted_ttft is not None and row.answer.ttft is not None
    ]
    name = "Time to first token"
    return scatter(name, "predicted", "measured", points, lambda value: text.milliseconds(value, 0), scale="log")


def _title(row: Row) -> str:
    lines = [
        f"request {row.index}" + (f" of {visible(row.session_id)}" if row.session_id else ""),
        f"{row.prompt_tokens:,} prompt tokens",
        f"cached: {text.number(row.predicted)} predicted, {text.number(row.reported)} reported",
    ]
    if row.answer.ttft is not None:
        predicted = f" ({text.milliseconds(row.predicted_ttft)} predicted)" if row.predicted_ttft is not None else ""
        lines.append(f"first token after {text.milliseconds(row.answer.ttft)}{predicted}")
    if row.answer.fault is not None:
        lines.append(f"{row.answer.fault.value}: {visible(row.answer.message)}")
    return "\n".join(lines)


def _total(report: Report) -> Iterator[Run]:
    runs = [run for row in report.compared for run in _runs(row)]
    for state, meaning in MEANING.items():
        tokens = sum(run.tokens for run in runs if run.state == state)
        if tokens:
            yield Run(state, tokens, f"{tokens:,} tokens {meaning}")


MEANING = {
    "reused": "cached, as predicted",
    "extra": "cached, and not predicted",
    "missing": "predicted to be cached, and computed",
    "computed": "computed",
}


def _runs(row: Row) -> Iterator[Run]:
    """The parts of a prompt, from its start to its end."""
    predicted, reported = row.predicted, row.reported
    if predicted is None or reported is None:
        yield Run("unknown", row.prompt_tokens, _title(row))
        return
    both, most = min(predicted, reported), max(predicted, reported)
    parts = (
        ("reused", both),
        ("missing" if predicted > reported else "extra", most - both),
        ("computed", row.prompt_tokens - most),
    )
    for state, tokens in parts:
        if tokens > 0:
            yield Run(state, tokens, f"{_title(row)}\n{tokens:,} tokens {MEANING[state]}")


def _sessions(report: Report) -> list[Session]:
    """In the order of their first request; those with requests that differ come first where not all are drawn."""
    longest = max((row.prompt_tokens for row in report.rows), default=1)
    by_session: dict[str | None, list[Row]] = {}
    for row in report.rows:
        by_session.setdefault(row.session_id, []).append(row)
    found = list(by_session.items())
    if len(found) > MOST_SESSIONS:
        found.sort(key=lambda item: all(row.status == "as predicted" for row in item[1]))
    return [
        Session(visible(name or "no session"), tuple(_prompt(row, longest) for row in rows)) for name, rows in found
    ]


def _prompt(row: Row, longest: int) -> Prompt:
    remark = ""
    if row.status == "differs":
        remark = f"{text.number(row.predicted)} predicted, {text.number(row.reported)} reported"
    elif row.answer.fault is not None:
        remark = row.answer.fault.value
    elif row.other_prompt:
        remark = "other prompt"
    ttft = "" if row.answer.ttft is None else text.milliseconds(row.answer.ttft)
    return Prompt(str(row.index), tuple(_runs(row)), 100 * row.prompt_tokens / longest, ttft, remark)
