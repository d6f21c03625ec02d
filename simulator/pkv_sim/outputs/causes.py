"""Findings of the linter summed up over the requests of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pkv_sim.simulation import Served


@dataclass(frozen=True, slots=True)
class CauseTotal:
    """A finding at a path, the reason its tokens are counted under, how many `requests` it hit and `tokens` it cost."""

    code: str
    name: str
    path: str | None
    reason: str
    requests: int
    tokens: int


def cause_totals(served: Sequence[Served]) -> list[CauseTotal]:
    """The most expensive first."""
    tokens: dict[tuple[str, str, str | None, str], int] = {}
    requests: dict[tuple[str, str, str | None, str], set[int]] = {}
    for item in served:
        for blame in item.blames:
            key = (blame.code, blame.name, blame.path, blame.reason)
            tokens[key] = tokens.get(key, 0) + blame.tokens
            requests.setdefault(key, set()).add(item.request.index)
    totals = [CauseTotal(*key, len(requests[key]), tokens[key]) for key in tokens]
    return sorted(totals, key=lambda total: (-total.tokens, total.code, total.path or ""))
