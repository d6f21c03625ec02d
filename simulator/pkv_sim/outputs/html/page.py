"""One simulation, or two side by side, as one self-contained page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pkv_lint.columns import visible
from pkv_lint.findings import counted
from pkv_lint.outputs.page import render
from pkv_sim.balance import replica_totals
from pkv_sim.outputs.causes import CauseTotal, cause_totals
from pkv_sim.outputs.html.curve import Curve, curve_of
from pkv_sim.outputs.html.headline import headline
from pkv_sim.outputs.html.latencies import Latencies, latencies
from pkv_sim.outputs.html.memory_rows import MemoryRow, memory_rows
from pkv_sim.outputs.html.parts import CACHED, STATES, Part, parts_of, parts_together, words
from pkv_sim.outputs.html.sessions import Sessions, sessions
from pkv_sim.outputs.html.timeline import Timeline, timeline
from pkv_sim.outputs.memory import conditions, size_lines
from pkv_sim.outputs.replicas import balance
from pkv_sim.outputs.text import MEANING, ORDER, bounds_lines, changes, notes, percent
from pkv_sim.report import Report
from pkv_sim.simulation import Served, Simulation, share

FOLDER, TEMPLATE = "pkv_sim.outputs.html", "report.html.jinja"
CAUSES = 20
"""Causes that are listed before the others are only counted."""


@dataclass(frozen=True, slots=True)
class Replica:
    """`width` is that of its strip, in per cent of the longest."""

    number: int
    requests: int
    prompt_tokens: int
    computed_tokens: int
    hit_rate: float
    width: float
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class View:
    """One simulation. `label` tells the two of a comparison apart, and is empty for one alone."""

    label: str
    name: str
    requests: int
    prompt_tokens: int
    hit_rate: float
    facts: tuple[str, ...]
    parts: tuple[Part, ...]
    causes: tuple[CauseTotal, ...]
    computed_tokens: int
    timeline: Timeline
    sessions: Sessions
    replicas: tuple[Replica, ...]
    balance: str
    curve: Curve | None
    latencies: Latencies | None
    memory: tuple[MemoryRow, ...]
    memory_notes: tuple[str, ...]
    at_once: bool
    notes: tuple[str, ...]


def lines(reports: Sequence[Report]) -> Iterator[str]:
    """One HTML document of one report, or of two: before and after."""
    labels = ("",) if len(reports) == 1 else ("before", "after")
    views = [view(report, label) for report, label in zip(reports, labels, strict=True)]
    values = {
        "views": views,
        "headline": headline([report.simulation for report in reports]),
        "changes": [(words(name), was, now) for name, was, now in changes(*(report.simulation for report in reports))]
        if len(reports) > 1
        else [],
        "states": [state for state in STATES if any(part.state == state for found in views for part in found.parts)],
        "meaning": {CACHED: "", **MEANING},
        "words": words,
        "share": share,
        "rate": percent,
        "causes_shown": CAUSES,
    }
    yield render(FOLDER, TEMPLATE, values, tips=True)


def view(report: Report, label: str) -> View:
    simulation, found = report.simulation, report.reservations
    totals = replica_totals(simulation)
    return View(
        label,
        visible(simulation.workload.name),
        len(simulation.served),
        simulation.prompt_tokens,
        simulation.hit_rate,
        tuple(facts(report)),
        parts_of(simulation.cached_tokens, simulation.misses),
        tuple(map(readable, cause_totals(simulation.served))),
        simulation.misses.tokens,
        timeline(simulation),
        sessions(simulation),
        tuple(replicas(simulation)) if len(totals) > 1 else (),
        balance(totals) if len(totals) > 1 else "",
        curve_of(report),
        latencies(simulation),
        tuple(memory_rows(found, report.slots)) if found is not None else (),
        tuple(conditions(found)) if found is not None else (),
        report.slots is not None,
        tuple(map(visible, notes(simulation))),
    )


def facts(report: Report) -> Iterator[str]:
    """What was simulated."""
    simulation, settings = report.simulation, report.simulation.settings
    what = counted(len(simulation.served), "request")
    if sessions_known := {item.request.session_id for item in simulation.served} - {None}:
        what += f" in {counted(len(sessions_known), 'session')}"
    yield f"{what}, {simulation.prompt_tokens:,} prompt tokens"
    blocks = settings.num_gpu_blocks
    room = f"{blocks:,} of them" if blocks is not None else "no limit to their number"
    yield f"blocks of {simulation.workload.block_size} tokens, {room}"
    if settings.replicas > 1:
        yield f"{settings.replicas} replicas, routed {settings.router}"
    yield ORDER[settings.schedule]
    if report.memory is not None:
        yield from size_lines(report.memory, simulation.workload.block_size, report.max_model_len)
    yield from bounds_lines(report.bounds)
    if simulation.workload.approximate:
        yield "figures are approximate"


def readable(cause: CauseTotal) -> CauseTotal:
    path = None if cause.path is None else visible(cause.path)
    return CauseTotal(cause.code, cause.name, path, cause.reason, cause.requests, cause.tokens)


def replicas(simulation: Simulation) -> Iterator[Replica]:
    totals = replica_totals(simulation)
    longest = max(total.prompt_tokens for total in totals)
    served: list[list[Served]] = [[] for _ in totals]
    for item in simulation.served:
        served[item.replica].append(item)
    for total in totals:
        yield Replica(
            total.replica,
            total.requests,
            total.prompt_tokens,
            total.computed_tokens,
            total.hit_rate,
            100 * share(total.prompt_tokens, longest),
            parts_together(served[total.replica]),
        )
