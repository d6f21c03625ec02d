"""A timing profile from measured times, by non-negative least squares."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pkv_lint.prompt.errors import InputError
from pkv_sim.timing.timing_profile import Coefficients, Range, Residuals, StepLoad, TimingProfile


class Point(NamedTuple):
    """A time that was measured: `seconds` for steps with these loads, one after the other."""

    steps: tuple[StepLoad, ...]
    seconds: float

    @property
    def terms(self) -> tuple[float, ...]:
        """What each coefficient counts, in their order."""
        return (len(self.steps), *(sum(load[at] for load in self.steps) for at in range(len(StepLoad._fields))))


def fit(points: Sequence[Point], model: str, device: str) -> TimingProfile:
    """The profile whose times are nearest to the measured ones, in shares of them: a short time that is wrong by a
    tenth is as bad as a long one.

    Raises InputError for fewer points than coefficients.
    """
    if len(points) < len(Coefficients._fields):
        raise InputError(f"{len(points)} measured times are too few to fit {len(Coefficients._fields)} coefficients")
    terms = np.array([point.terms for point in points], dtype=np.float64)
    seconds = np.array([point.seconds for point in points])
    coefficients = nonnegative_least_squares(terms / seconds[:, None], np.ones(len(points)))
    errors = np.abs(terms @ coefficients / seconds - 1.0).tolist()
    loads = [load for point in points for load in point.steps]
    return TimingProfile(
        "fitted",
        model,
        device,
        Coefficients(*coefficients.tolist()),
        {name: valid for name, valid in _ranges(loads).items() if valid is not None},
        Residuals(len(points), median(errors), max(errors)),
    )


def nonnegative_least_squares(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """The x of the smallest |ax - b| without negative entries; of equally good ones, one with the fewest terms.

    Tries every subset of the columns: the optimum is the plain solution for those that it uses, and with five columns
    there are 31 of them.
    """
    scale = np.linalg.norm(a, axis=0)
    columns = np.flatnonzero(scale)
    best, least = np.zeros(a.shape[1]), float(b @ b)
    for size in range(1, len(columns) + 1):
        for chosen in map(list, combinations(columns, size)):
            part = a[:, chosen] / scale[chosen]
            solution, _, rank, _ = np.linalg.lstsq(part, b, rcond=None)
            error = float(np.sum((part @ solution - b) ** 2))
            if rank == size and solution.min() >= 0 and error < least * (1 - 1e-9):
                best, least = np.zeros(a.shape[1]), error
                best[chosen] = solution / scale[chosen]
    return best


def _ranges(loads: Sequence[StepLoad]) -> dict[str, Range | None]:
    found: dict[str, Range | None] = {}
    for at, name in enumerate(StepLoad._fields):
        values = [load[at] for load in loads if load[at]]
        found[name] = Range(min(values), max(values)) if values else None
    return found
