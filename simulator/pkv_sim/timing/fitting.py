"""A timing profile from measured times, by non-negative least squares."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pkv_lint.prompt.errors import InputError
from pkv_sim.timing.timing_profile import Coefficients, Intake, Range, Residuals, StepLoad, TimingProfile


class Point(NamedTuple):
    """A time that was measured: `seconds` for steps with these loads, one after the other, and, unless the prompt
    tokens are None, for taking in a request with so many."""

    steps: tuple[StepLoad, ...]
    seconds: float
    num_prompt_tokens: int | None = None

    @property
    def terms(self) -> tuple[float, ...]:
        """What each coefficient counts, in their order, and then those of the intake."""
        loads = (sum(load[at] for load in self.steps) for at in range(len(StepLoad._fields)))
        taken_in = (0, 0) if self.num_prompt_tokens is None else (1, self.num_prompt_tokens)
        return (len(self.steps), *loads, *taken_in)


NUM_TERMS = len(Coefficients._fields) + len(Intake._fields)


ROUNDS = 10
"""Solutions that the fit improves one after the other."""
SMALL = 0.01
"""A share of the measured time below which all differences count alike."""


def fit(points: Sequence[Point], model: str, device: str) -> TimingProfile:
    """The profile whose times are nearest to the measured ones, in shares of them: a short time that is wrong by a
    tenth is as bad as a long one. Half as long counts as much as twice as long, and a few times that are far off
    (something else ran) do not draw the others along: the sum of the differences is made small, not of their squares.

    Raises InputError for fewer points than there are coefficients.
    """
    if len(points) < NUM_TERMS:
        raise InputError(f"{len(points)} measured times are too few to fit {NUM_TERMS} coefficients")
    terms = np.array([point.terms for point in points], dtype=np.float64)
    seconds = np.array([point.seconds for point in points])
    scale = 1 / seconds
    for _ in range(ROUNDS):
        solution = nonnegative_least_squares(terms * scale[:, None], seconds * scale)
        fitted = terms @ solution
        even = np.sqrt(np.maximum(fitted, SMALL * seconds) * seconds)
        # Least absolute differences, as least squares with weights from the solution before.
        scale = 1 / (even * np.sqrt(np.maximum(np.abs(fitted - seconds) / even, SMALL)))
    errors = np.abs(terms @ solution / seconds - 1.0).tolist()
    count = len(Coefficients._fields)
    loads = [load for point in points for load in point.steps]
    return TimingProfile(
        "fitted",
        model,
        device,
        Coefficients(*solution[:count].tolist()),
        {name: valid for name, valid in _ranges(loads).items() if valid is not None},
        Residuals(len(points), median(errors), max(errors)),
        Intake(*solution[count:].tolist()),
    )


def nonnegative_least_squares(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """The x of the smallest |ax - b| without negative entries; of equally good ones, one with the fewest terms.

    Tries every subset of the columns: the optimum is the plain solution for those that it uses, and with seven columns
    there are 127 of them.
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
