"""The radix tree against a plain list of sequences."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from pkv_lint.prompt.prefix_tree import PrefixTree, common_prefix

tokens = st.lists(st.integers(0, 2), max_size=12).map(lambda ids: array("i", ids))


def naive_prefix(one: array[int], other: array[int]) -> int:
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


@given(st.lists(tokens, max_size=12), tokens)
def test_match_is_the_longest_prefix_of_anything_held(held: list[array[int]], asked: array[int]) -> None:
    tree = PrefixTree()
    for ids in held:
        tree.insert(ids)
    assert tree.match(asked) == max((naive_prefix(asked, ids) for ids in held), default=0)


@given(st.lists(tokens, max_size=12))
def test_insert_tells_what_was_there_before(held: list[array[int]]) -> None:
    tree = PrefixTree()
    for count, ids in enumerate(held):
        assert tree.insert(ids) == max((naive_prefix(ids, earlier) for earlier in held[:count]), default=0)


@given(tokens, tokens, st.integers(0, 3))
def test_common_prefix_from_a_place_on(label: array[int], ids: array[int], start: int) -> None:
    start = min(start, len(ids))
    assert common_prefix(label, ids, start) == naive_prefix(label, ids[start:])


def test_long_sequences_share_edges() -> None:
    tree = PrefixTree()
    trunk = array("i", range(100_000))
    tree.insert(trunk)
    branch = trunk[:60_000] + array("i", [-1]) * 10
    assert tree.insert(branch) == 60_000
    assert tree.match(branch) == len(branch)
    assert tree.match(trunk) == len(trunk)
