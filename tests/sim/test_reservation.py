"""KV memory: closed forms against counting step by step, and the anchors of the PagedAttention paper."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkv_sim.reservation import BLOCK_SIZES, Holding, Life, Reservations, contiguous, paged, power_of_two, reservations
from pkv_sim.traffic.intake import Reading
from pkv_sim.traffic.loading import load_workload
from pkv_sim.traffic.workload import TrafficRequest

LIVES = st.lists(st.builds(Life, st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=4)


def request(prompt: int, generated: int | None) -> TrafficRequest:
    return TrafficRequest(0, "f", 1, prompt, num_generated_tokens=generated)


@settings(max_examples=60, deadline=None)
@given(LIVES, st.sampled_from([1, *BLOCK_SIZES]))
def test_blocks_step_by_step(lives: list[Life], size: int) -> None:
    used = reserved = internal = steps = 0
    for life in lives:
        for tokens in range(life.prompt, life.total + 1):
            held = -(-tokens // size) * size
            used += tokens
            reserved += min(held, life.total) - tokens
            internal += held - min(held, life.total)
            steps += 1
    assert paged(size, lives) == Holding("paged", size, used / steps, reserved / steps, internal / steps, 0)


@settings(max_examples=60, deadline=None)
@given(LIVES)
def test_reservations_step_by_step(lives: list[Life]) -> None:
    found = contiguous("power_of_two", lambda life: life.prompt + power_of_two(life.steps), lives)
    steps = [(life, tokens) for life in lives for tokens in range(life.prompt, life.total + 1)]
    sizes = {id(life): life.prompt + power_of_two(life.steps) for life in lives}
    assert found.used == sum(tokens for _, tokens in steps) / len(steps)
    assert found.reserved == sum(life.total - tokens for life, tokens in steps) / len(steps)
    assert found.internal == sum(sizes[id(life)] - life.total for life, _ in steps) / len(steps)
    assert found.held == pytest.approx(sum(power_of_two(sizes[id(life)]) for life, _ in steps) / len(steps))


def test_one_request_by_hand() -> None:
    """Ten prompt tokens and four steps: 10, 11, 12 and 13 slots are used."""
    found = reservations([request(10, 4), request(7, None)], 100)
    assert (found.requests, found.unknown, found.steps, found.max_model_len, found.stated) == (1, 1, 4, 100, True)
    largest, power, exact, eight = found.holdings[:4]
    assert largest == Holding("maximum", None, 11.5, 1.5, 87, 28)
    assert power == Holding("power_of_two", None, 11.5, 1.5, 1, 2)
    assert exact == Holding("exact", None, 11.5, 1.5, 0, 3)
    assert eight == Holding("paged", 8, 11.5, 1.5, 3, 0)
    assert largest.waste == 1 - 11.5 / 128 and largest.sequences(1280) == 10


def test_without_a_stated_length_the_longest_sequence_counts() -> None:
    found = reservations([request(10, 4), request(50, 0)])
    assert (found.max_model_len, found.stated) == (51, False)
    assert reservations([request(10, None)]) == Reservations((), 0, 1, 0, 0, False)


def test_powers_of_two() -> None:
    assert [power_of_two(number) for number in (1, 2, 3, 4, 5, 1000)] == [1, 2, 4, 4, 8, 1024]


def test_azure_conversations(shared: Path) -> None:
    """Blocks of 16 waste about a hundredth; what the paper says of reservation for the maximum holds all the more."""
    trace = shared / "data" / "traces" / "AzureLLMInferenceTrace_2023_conv.csv"
    found = reservations(load_workload(str(trace), lambda: pytest.fail("nothing to render"), Reading()).requests)
    waste = {(holding.policy, holding.block_size): holding.waste for holding in found.holdings}
    assert waste["paged", 16] < 0.01 < waste["paged", 64] < 0.04
    assert waste["maximum", None] > 0.6
