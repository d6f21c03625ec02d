"""KV memory of running requests, a row for each policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pkv_sim.outputs.html.parts import Part
from pkv_sim.outputs.memory import fitting, name_of
from pkv_sim.outputs.text import percent
from pkv_sim.reservation import Reservations
from pkv_sim.simulation import share

SLOTS = ("used", "reserved", "internal", "external")
"""States of KV memory, see `pkv_sim.reservation`."""


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One policy: parts of the held slots, and the figures of its row."""

    name: str
    parts: tuple[Part, ...]
    figures: tuple[str, ...]


def memory_rows(found: Reservations, slots: int | None) -> Iterator[MemoryRow]:
    for holding in found.holdings:
        amounts = (holding.used, holding.reserved, holding.internal, holding.external)
        shares = [share(amount, holding.held) for amount in amounts]
        # A strip wants whole numbers: hundredths of a per cent.
        parts = (
            Part(state, round(part * 10_000), f"{state}: {percent(part)}")
            for state, part in zip(SLOTS, shares, strict=True)
        )
        figures = (*map(percent, shares), percent(holding.waste), fitting(found, holding, slots))
        shown = tuple(part for part in parts if part.tokens)
        yield MemoryRow(name_of(holding), shown, (f"{holding.held:,.0f}", *figures))
