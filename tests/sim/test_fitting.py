"""Timing profiles from measured times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from pkv_lint.prompt.errors import InputError
from pkv_sim.timing.alone import Alone
from pkv_sim.timing.file import timing_from_json, timing_to_json
from pkv_sim.timing.fitting import Point, fit, nonnegative_least_squares
from pkv_sim.timing.timing_profile import Coefficients, Intake, Range, StepLoad, TimingProfile

FITTED = TimingProfile("fitted", "m", "d", Coefficients(1.0, 0.1, 0.01, 0.5, 0.001))


class TestIntake:
    PROFILE = replace(FITTED, intake=Intake(2.0, 0.5))

    def test_a_request_is_taken_in_before_it_is_computed(self) -> None:
        assert Alone(self.PROFILE, 8192).ttft(10, 6) == pytest.approx(Alone(FITTED, 8192).ttft(10, 6) + 2.0 + 5.0)

    def test_files_may_have_it(self) -> None:
        assert timing_from_json(timing_to_json(self.PROFILE)) == self.PROFILE
        assert "intake" not in timing_to_json(FITTED)


class TestFit:
    def test_what_was_made_from_a_profile_gives_it_back(self) -> None:
        truth = TimingProfile(
            "fitted", "m", "d", Coefficients(0.01, 2e-5, 3e-9, 1e-4, 2e-7), intake=Intake(0.002, 1e-6)
        )
        alone, points = Alone(truth, 1024), []
        for cached in (0, 512, 4096):
            for new in (2, 64, 700, 3000):
                steps = tuple(
                    StepLoad.of([(first, min(1024, cached + new - first))])
                    for first in range(cached, cached + new, 1024)
                )
                points.append(Point(steps, alone.ttft(cached + new, cached), cached + new))
        for count in (1, 3, 9):
            for context in (10, 2000):
                steps = tuple(StepLoad.of([(context + at, 1)] * count) for at in range(5))
                points.append(Point(steps, sum(truth.seconds(load) for load in steps)))
        found = fit(points, "m", "d")
        assert found.coefficients == pytest.approx(truth.coefficients)
        assert found.intake == pytest.approx(truth.intake)
        assert found.residuals is not None and found.residuals.largest < 1e-9
        assert found.valid["prefill_token"] == Range(2, 1024)

    def test_nothing_gets_faster_by_more_work(self) -> None:
        points = [Point((StepLoad(at, at * at, 0, 0),), 1.0 / at, at) for at in range(1, 20)]
        found = fit(points, "m", "d")
        assert min(*found.coefficients, *found.intake) >= 0

    def test_too_few(self) -> None:
        with pytest.raises(InputError, match="too few"):
            fit([Point((StepLoad(1, 1, 0, 0),), 1.0)], "m", "d")


@given(arrays(np.float64, (9, 4), elements=st.floats(0, 10)), arrays(np.float64, 9, elements=st.floats(-10, 10)))
def test_least_squares_meet_the_conditions_of_an_optimum(a: NDArray[np.float64], b: NDArray[np.float64]) -> None:
    """Karush, Kuhn, Tucker: no gradient where x is positive, none that would make it so elsewhere."""
    x = nonnegative_least_squares(a, b)
    gradient = a.T @ (a @ x - b)
    assert (x >= 0).all()
    scale = 1 + np.abs(a).max() * (1 + np.abs(b).max())
    assert (gradient >= -1e-6 * scale).all()
    assert (np.abs(gradient[x > 0]) <= 1e-6 * scale).all()
