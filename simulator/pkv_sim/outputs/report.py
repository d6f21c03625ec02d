"""A report as text and as JSON, section by section."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pkv_sim.outputs import capacity, json, memory, replicas, text, times
from pkv_sim.report import Report


def lines(report: Report, *, per_request: bool = False) -> Iterator[str]:
    simulation = report.simulation
    block_size = simulation.workload.block_size
    room = memory.size_lines(report.memory, block_size, report.max_model_len) if report.memory is not None else ()
    yield from text.lines(simulation, report.bounds, per_request=per_request, room=room)
    if simulation.settings.replicas > 1:
        yield ""
        yield from replicas.lines(simulation)
    if simulation.settings.timing is not None:
        yield ""
        yield from times.lines(simulation, per_request=per_request)
    if report.curve is not None:
        yield ""
        yield from capacity.lines(report.curve, block_size, simulation.settings.num_gpu_blocks, report.memory)
    if report.reservations is not None:
        yield ""
        yield from memory.lines(report.reservations, report.slots)
    yield from text.remarks(simulation)


def comparison(before: Report, after: Report) -> Iterator[str]:
    """Two reports side by side."""
    yield from text.comparison(before.simulation, after.simulation)
    yield from times.comparison(before.simulation, after.simulation)


def document(report: Report, *, per_request: bool = False) -> dict[str, Any]:
    """`json.document`, and the members of what else was asked for."""
    simulation = report.simulation
    found = json.document(simulation, report.bounds, per_request=per_request)
    if simulation.settings.replicas > 1:
        found |= replicas.members(simulation)
    if simulation.settings.timing is not None:
        found |= times.members(simulation)
        for member, item in zip(found.get("requests", ()), simulation.served, strict=False):
            member |= times.request_member(item)
    if report.memory is not None:
        found |= memory.size_member(report.memory, simulation.workload.block_size)
    if report.curve is not None:
        found |= capacity.members(report.curve)
    if report.reservations is not None:
        found |= memory.members(report.reservations, report.slots)
    return found
