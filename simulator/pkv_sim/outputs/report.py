"""A report as text and as JSON, section by section."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pkv_sim.outputs import capacity, json, memory, text
from pkv_sim.report import Report


def lines(report: Report, *, per_request: bool = False) -> Iterator[str]:
    simulation = report.simulation
    block_size = simulation.workload.block_size
    room = memory.size_lines(report.memory, block_size, report.max_model_len) if report.memory is not None else ()
    yield from text.lines(simulation, report.bounds, per_request=per_request, room=room)
    if report.curve is not None:
        yield ""
        yield from capacity.lines(report.curve, block_size, simulation.settings.num_gpu_blocks, report.memory)
    if report.reservations is not None:
        yield ""
        yield from memory.lines(report.reservations, report.slots)
    yield from text.remarks(simulation)


def document(report: Report, *, per_request: bool = False) -> dict[str, Any]:
    """`json.document`, and the members of what else was asked for."""
    found = json.document(report.simulation, report.bounds, per_request=per_request)
    if report.memory is not None:
        found |= memory.size_member(report.memory, report.simulation.workload.block_size)
    if report.curve is not None:
        found |= capacity.members(report.curve)
    if report.reservations is not None:
        found |= memory.members(report.reservations, report.slots)
    return found
