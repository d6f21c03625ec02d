"""Where two versions of a text differ."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pkv_lint.patterns import values
from pkv_lint.text_changes import shared_ends, text_changes


def pairs(before: str, after: str) -> list[tuple[str, str]]:
    return [(before[slice(*c.before)], after[slice(*c.after)]) for c in text_changes(before, after, values)]


CASES: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "equal": ("a b", "a b", []),
    "one word": ("Focus on amber now.", "Focus on birch now.", [("amber", "birch")]),
    "a whole date": (
        "At 2026-11-29 14:05:33.",
        "At 2026-11-29 14:06:07.",
        [("2026-11-29 14:05:33", "2026-11-29 14:06:07")],
    ),
    "a date and a number": ("14:05 #12 of 20", "14:06 #13 of 20", [("14:05", "14:06"), ("12", "13")]),
    "a whole identifier": (
        "x 3f2504e0-4f89-41d3-9a0c-0305e82c3301 y",
        "x 3f2504e0-1111-41d3-9a0c-0305e82c3302 y",
        [("3f2504e0-4f89-41d3-9a0c-0305e82c3301", "3f2504e0-1111-41d3-9a0c-0305e82c3302")],
    ),
    "labelled lines": ("Cwd: /a\nOn: x\nGo", "Cwd: /b\nOn: y\nGo", [("a", "b"), ("x", "y")]),
    "a list": (
        "Notes:\n- likes tea\n- has a dog\nGo",
        "Notes:\n- ordered two shoes\n- lost it\n- is back\nGo",
        [("- likes tea\n- has a dog\n", "- ordered two shoes\n- lost it\n- is back\n")],
    ),
    "a list with an entry in common": (
        "- likes tea\n- has a dog\n- is tall\n",
        "- owns a bike\n- has a dog\n- lives in Rome\n",
        [("- likes tea\n- has a dog\n- is tall\n", "- owns a bike\n- has a dog\n- lives in Rome\n")],
    ),
    "a clock over a list": (
        "Time: 14:05\nFiles:\n M a.py\n M b.py\nGo",
        "Time: 14:06\nFiles:\n D cc/dd.rs\nGo",
        [("14:05", "14:06"), (" M a.py\n M b.py\n", " D cc/dd.rs\n")],
    ),
    "many words of a line": (
        "Ana (no. 4711, plan Pro) lives in Berlin.",
        "Bob (no. 9812, plan Free) lives in Rome.",
        [("Ana (no. 4711, plan Pro) lives in Berlin", "Bob (no. 9812, plan Free) lives in Rome")],
    ),
    "a line put in": ("a\nc\n", "a\nb\nc\n", [("", "b\n")]),
    "a line taken out": ("a\nb\nc\n", "a\nc\n", [("b\n", "")]),
    "text behind": ("a b c", "a b c d", [("", " d")]),
    "all of it": ("", "x", [("", "x")]),
    "a very long line": (
        "x" * 9000 + " 14:05 " + "y" * 9000,
        "x" * 9000 + " 14:06 " + "y" * 9000,
        [("14:05", "14:06")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_points_at_what_a_person_would(name: str) -> None:
    before, after, expected = CASES[name]
    assert pairs(before, after) == expected


WORDS = ["a", "bb", "14:05", "2026-11-29", "\n", "x:", "y=", "3f2504e0-4f89-41d3-9a0c-0305e82c3301", "é", " ", "<t>"]


@given(st.lists(st.sampled_from(WORDS), max_size=12), st.lists(st.sampled_from(WORDS), max_size=12))
def test_changes_turn_one_text_into_the_other(before: list[str], after: list[str]) -> None:
    old, new = " ".join(before), " ".join(after)
    changes = text_changes(old, new, values)
    for one, other in pairwise(changes):
        assert one.before[1] <= other.before[0] and one.after[1] <= other.after[0]
    text = old
    for change in reversed(changes):
        text = text[: change.before[0]] + new[slice(*change.after)] + text[change.before[1] :]
    assert text == new
    assert bool(changes) == (old != new)


@given(st.text(alphabet="ab \n", max_size=20), st.text(alphabet="ab \n", max_size=20))
def test_shared_ends_are_shared_and_do_not_overlap(before: str, after: str) -> None:
    head, tail = shared_ends(before, after)
    assert before[:head] == after[:head] and before[len(before) - tail :] == after[len(after) - tail :]
    assert head + tail <= min(len(before), len(after))


HARD = [
    ("\n" * 200_000, "\n" * 150_000 + "x\n"),
    (". " * 100_000, ". " * 90_000 + "x"),
    ("a\nb\n" * 20_000, "b\na\n" * 20_000),
    ("- x y\n" * 2_000, "- y x\n" * 2_000),
    ("1 " * 1900, "2 " * 1900),
]


@pytest.mark.parametrize("texts", HARD, ids=range(len(HARD)))
def test_hard_texts_come_to_an_end(texts: tuple[str, str]) -> None:
    text_changes(*texts, values)
