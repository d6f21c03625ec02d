"""A verification for a person: is it as predicted, where not, and what that may mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

import click

from pkv_engine.verify.report import Report, Row
from pkv_lint.columns import padded, visible
from pkv_lint.findings import counted
from pkv_sim.outputs.text import percent

ENGINES = {"pkv": "pkv-engine", "vllm": "vLLM", "sglang": "SGLang", "unknown": "a server that does not say what it is"}
MOST = 20
"""Requests that are listed before the others are only counted."""


def lines(report: Report, *, per_request: bool = False) -> Iterator[str]:
    yield from headline(report)
    yield ""
    yield from verdict(report)
    yield from times(report)
    shown = report.rows if per_request else [row for row in report.rows if row.status == "differs" or row.other_prompt]
    if shown:
        yield ""
        yield from table(shown if per_request else shown[:MOST])
        if len(shown) > MOST and not per_request:
            yield f"  and {counted(len(shown) - MOST, 'request')} more (--per-request)"
    yield from findings(report)


def headline(report: Report) -> Iterator[str]:
    sessions = {row.session_id for row in report.rows} - {None}
    what = counted(len(report.rows), "request")
    if sessions:
        what += f" in {counted(len(sessions), 'session')}"
    version = f" {report.server.version}" if report.server.version else ""
    yield f"{click.style(visible(report.name), bold=True)}  {what} to {report.url}, {engine_name(report)}{version}"
    blocks = report.cache.num_gpu_blocks
    room = "their number is not known" if blocks is None else f"{blocks:,} of them ({blocks - 1:,} usable)"
    yield f"blocks of {report.cache.block_size} tokens, {room}; {order(report)}"


def engine_name(report: Report) -> str:
    return ENGINES[report.server.engine]


def order(report: Report) -> str:
    if report.pace.recorded_times:
        return "at the recorded times"
    count = report.pace.concurrency
    return "one request after the other" if count == 1 else f"{count} requests at a time"


def verdict(report: Report) -> Iterator[str]:
    about = "about " if report.approximate else ""
    if (total := report.total) is not None:
        predicted, told = total
        colour = "green" if predicted == told else "red"
        text = f"in all {about}{predicted:,} cached tokens predicted, {told:,} counted"
        yield click.style(text, fg=colour, bold=True)
        yield "by the server's own counters, as it does not report cached tokens of single requests"
    elif not report.compared:
        yield click.style("nothing could be compared", fg="red", bold=True)
    else:
        equal, compared = report.statuses["as predicted"], len(report.compared)
        colour = "green" if equal == compared else "red"
        yield click.style(f"{equal:,} of {compared:,} requests as predicted", fg=colour, bold=True) + (
            f"  {report.reported_tokens:,} of {report.prompt_tokens:,} prompt tokens cached "
            f"({percent(report.hit_rate, 2)}), {about}{report.predicted_tokens:,} "
            "predicted"
        )
    if report.reporting == "off":
        yield f"the server does not report cached tokens: start it with {report.server.details_flag}"
    elif report.reporting == "not reported":
        yield "the server does not report cached tokens, and which flag would make it is not known"


def times(report: Report) -> Iterator[str]:
    if report.ttft is None:
        return
    text = f"time to first token {milliseconds(report.ttft)} (median)"
    if errors := report.ttft_errors:
        text += f", predicted within {percent(median(errors))} (median) for {counted(len(errors), 'request')}"
    yield text


def table(rows: Sequence[Row]) -> Iterator[str]:
    timed = any(row.predicted_ttft is not None for row in rows)
    head = f"  {'request':>7}  {'session':<14}  {'prompt':>9}  {'predicted':>9}  {'reported':>9}  {'TTFT':>10}"
    yield head + (f"  {'predicted':>10}" if timed else "")
    for row in rows:
        text = (
            f"  {row.index:>7}  {padded(visible(row.session_id or ''), 14)}  {row.prompt_tokens:>9,}  "
            f"{number(row.predicted):>9}  {number(row.reported):>9}  {time(row.answer.ttft):>10}"
        )
        text += f"  {time(row.predicted_ttft):>10}" if timed else ""
        if row.answer.fault is not None:
            text += f"  {row.answer.fault.value}"
        elif row.other_prompt:
            text += "  other prompt"
        yield click.style(text, fg="red") if row.status in ("differs", "fault") else text


def findings(report: Report) -> Iterator[str]:
    """What was wrong or is to be known, each as a line."""
    found: list[str] = []
    for difference in report.prompt_differences:
        found.append(f"request {difference.index} has another prompt on the server: {visible(str(difference))}")
    if report.other_prompts:
        found.append(
            f"{counted(report.other_prompts, 'prompt')} differ: another chat template, tokenizer or "
            "--default-chat-template-kwargs than those named here"
        )
    for signature in report.signatures:
        name = click.style(signature.name, bold=True)
        found.append(f"{name} in {counted(signature.requests, 'request')}: {signature.meaning}")
    for fault, rows in report.faults.items():
        found.append(f"{fault.value}: {counted(len(rows), 'request')}; the first: {visible(rows[0].answer.message)}")
    if report.refused:
        first = report.refused[0]
        found.append(f"not sent: {counted(len(report.refused), 'request')}; line {first.line}: {first.reason}")
    if report.warm and report.compared:
        found.append("the cache may have been warm (--reset-cache empties it first)")
    found += [f"approximate: {note}" for note in report.notes]
    found += [f"times: {note}" for note in report.timing_notes]
    if found:
        yield ""
        yield from found


def comparison(before: Report, after: Report) -> Iterator[str]:
    """Two replays side by side, such as before and after a fix."""
    for name, report in (("before", before), ("after", after)):
        yield f"{name:<6}  {visible(report.name)}"
        yield from (f"        {line}" for line in verdict(report))
    yield ""
    yield f"{'':<22}{'before':>13}  {'after':>13}"
    for name, one, other in comparison_rows(before, after):
        yield f"  {name:<20}{one:>13}  {other:>13}"
    for name, report in (("before", before), ("after", after)):
        yield from (f"{name}: {line}" if line else "" for line in findings(report))


def comparison_rows(before: Report, after: Report) -> Iterator[tuple[str, str, str]]:
    """What a fix changes: name, before, after."""
    yield "requests", f"{len(before.compared):,}", f"{len(after.compared):,}"
    yield "prompt tokens", f"{before.prompt_tokens:,}", f"{after.prompt_tokens:,}"
    yield "cached, predicted", f"{before.predicted_tokens:,}", f"{after.predicted_tokens:,}"
    yield "cached, reported", f"{before.reported_tokens:,}", f"{after.reported_tokens:,}"
    yield "hit rate", percent(before.hit_rate, 2), percent(after.hit_rate, 2)
    if before.ttft is not None and after.ttft is not None:
        yield "TTFT, median", milliseconds(before.ttft), milliseconds(after.ttft)


def milliseconds(seconds: float, digits: int = 1) -> str:
    return f"{seconds * 1000:,.{digits}f} ms"


def time(seconds: float | None) -> str:
    return "-" if seconds is None else milliseconds(seconds)


def number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
