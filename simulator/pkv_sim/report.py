"""Everything that was asked about one workload."""

from __future__ import annotations

from dataclasses import dataclass

from pkv_sim.bounds import Bounds
from pkv_sim.capacity import CapacityCurve
from pkv_sim.kv_memory import KVMemory
from pkv_sim.reservation import Reservations
from pkv_sim.simulation import Simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the outputs show. `memory` is where the number of blocks comes from, `max_model_len` the longest sequence
    that the server takes (tokens). `curve` and `reservations` are None where they were not asked for."""

    simulation: Simulation
    bounds: Bounds | None = None
    memory: KVMemory | None = None
    max_model_len: int | None = None
    curve: CapacityCurve | None = None
    reservations: Reservations | None = None

    @property
    def slots(self) -> int | None:
        """Tokens that the cache has room for; None where it has no limit."""
        blocks = self.simulation.settings.num_gpu_blocks
        return (blocks - 1) * self.simulation.workload.block_size if blocks is not None else None
