"""Prefix trees: the same blocks in the same place, in whatever form they are given."""

from __future__ import annotations

from array import array
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pkv_lint.prompt.errors import InputError
from pkv_sim.fast.cache import FastCache
from pkv_sim.fast.prefix_tree import NO_SEGMENT
from pkv_sim.fast.run_tree import BlockRunTree
from pkv_sim.fast.token_tree import BlockIdTree, TokenTree

CHAINS = st.lists(st.lists(st.integers(0, 3), max_size=12), max_size=20)


def runs_of(ids: list[int]) -> list[tuple[int, int]]:
    """Runs of consecutive ids, each as long as it can be."""
    runs = []
    for _, group in groupby(enumerate(ids), key=lambda item: item[1] - item[0]):
        members = [value for _, value in group]
        runs.append((members[0], members[-1]))
    return runs


@given(CHAINS, st.integers(1, 3), st.integers(1, 20))
def test_forms_agree(chains: list[list[int]], block_size: int, num_gpu_blocks: int) -> None:
    tokens, ids, runs = TokenTree(block_size), BlockIdTree(block_size), BlockRunTree(block_size)
    by_tokens, by_ids, by_runs = [], [], []
    for chain in chains:
        prompt = [token for block in chain for token in [block] * block_size]
        by_tokens.append(tokens.request(prompt, namespace=len(chain) % 2))
        by_ids.append(ids.request(chain, len(prompt), namespace=len(chain) % 2))
        by_runs.append(runs.request(runs_of(chain), len(prompt), namespace=len(chain) % 2))
    assert by_tokens == by_ids == by_runs
    assert (tokens.parents, tokens.starts) == (ids.parents, ids.starts) == (runs.parents, runs.starts)
    expected = FastCache(tokens, num_gpu_blocks).replay(by_tokens)
    assert FastCache(ids, num_gpu_blocks).replay(by_ids) == expected
    assert FastCache(runs, num_gpu_blocks).replay(by_runs) == expected


@given(CHAINS)
def test_equal_places_are_equal_prefixes(chains: list[list[int]]) -> None:
    tree = BlockIdTree(1)
    places: dict[tuple[int, int], list[int]] = {}
    for chain in chains:
        segment = tree.request(chain, len(chain)).segment
        for depth in range(len(chain), 0, -1):
            while tree.starts[segment] >= depth:
                segment = tree.parents[segment]
            assert places.setdefault((segment, depth), chain[:depth]) == chain[:depth]
    assert len(places) == len({tuple(chain) for chain in places.values()})


def test_tokens_in_any_sequence() -> None:
    prompt = list(range(1000))
    tree = TokenTree(16)
    expected = tree.request(prompt)
    for form in (array("i", prompt), tuple(prompt), np.arange(1000, dtype=np.int32), np.arange(1000)):
        assert tree.request(form) == expected  # type: ignore[arg-type]
    assert tree.starts == [0]


def test_long_prompts_part_where_they_differ() -> None:
    tree = TokenTree(16)
    prompt = array("i", range(100_000))
    tree.request(prompt)
    for place in (15, 16, 4095, 4096, 50_000, 99_999):
        other = array("i", prompt)
        other[place] = -1
        assert tree.known_prefix(other) == ((0, place // 16) if place >= 16 else (NO_SEGMENT, 0))
        assert tree.starts[tree.request(other).segment] == place // 16
    assert tree.known_prefix(prompt[:99_000]) == (0, 99_000 // 16)
    assert tree.known_prefix(prompt, "salt") == (NO_SEGMENT, 0)


def test_a_session_that_grows_stays_one_segment() -> None:
    runs, tokens = BlockRunTree(64), TokenTree(16)
    for length in range(1000, 100_000, 1000):
        runs.request([(5, 5 + length)], length * 64)
        tokens.request(array("i", range(length)))
    assert runs.starts == tokens.starts == [0]


def test_request_in_blocks() -> None:
    tree = TokenTree(4)
    request = tree.request(range(8), range(8, 14))
    # 8 tokens fill two blocks, the second of which is recomputed; of 6 generated tokens 5 have KV.
    assert (request.max_hit, request.prompt_blocks, request.full_blocks, request.num_blocks) == (1, 2, 3, 4)
    counted = tree.request(range(8), num_output_tokens=6)
    assert counted[1:] == request[1:]
    assert tree.parents[counted.segment] == request.segment
    assert tree.starts[counted.segment] == 2
    assert tree.request(range(8), num_output_tokens=6).segment != counted.segment
    assert tree.request([1, 2, 3]) == (NO_SEGMENT, 0, 0, 0, 1, 3)


def test_ids_that_cannot_be() -> None:
    with pytest.raises(InputError, match="fill 3 blocks, but 2 have an id"):
        BlockIdTree(16).request([1, 2], 48)
    with pytest.raises(InputError, match="64 bits"):
        BlockIdTree(16).request([1 << 70], 16)
    with pytest.raises(InputError, match="fill 3 blocks, but 2 have an id"):
        BlockRunTree(16).request([[1, 2]], 48)
    with pytest.raises(InputError, match=r"\[3, 2\] is empty"):
        BlockRunTree(16).request([[3, 2]], 48)
    with pytest.raises(ValueError, match="at least one token"):
        TokenTree(0)
