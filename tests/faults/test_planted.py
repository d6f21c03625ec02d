"""Faults planted at random are named, placed and priced; `scripts/plant_faults.py` plants many more."""

from __future__ import annotations

import random
from functools import cache

import pytest

from pkv_lint.prompt.renderer import Renderer

from .checking import check, findings_of
from .planting import PLANTS
from .sessions import clean_session

SEEDS = range(6)


@cache
def renderer() -> Renderer:
    return Renderer.load()


@pytest.mark.parametrize("kind", PLANTS)
def test_planted_faults_are_found_with_their_cost(kind: str) -> None:
    planted = 0
    for seed in range(100):
        rng = random.Random(f"{kind} {seed}")
        bodies = clean_session(rng, rng.randint(3, 8))
        try:
            fault = PLANTS[kind](rng, bodies)
        except LookupError:
            continue  # this session has no place for it
        verdict = check(fault, renderer(), rng.choice([16, 32, 128]))
        assert (verdict.blamed, verdict.cost, verdict.noise) == ("", "", ""), seed
        planted += 1
        if planted == len(SEEDS):
            return
    pytest.fail("too few sessions have a place for it")


@pytest.mark.parametrize("seed", range(30))
def test_clean_sessions_are_left_alone(seed: int) -> None:
    rng = random.Random(seed)
    assert findings_of(clean_session(rng, rng.randint(2, 12), calls=seed % 3 > 0), renderer(), 16) == []
