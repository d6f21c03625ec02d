"""Edits of JSON text leave alone what they do not name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pkv_lint.fixes.json_edits import (
    TextEdit,
    applied,
    listed_again,
    reordered,
    with_member,
    without_items,
    without_members,
)
from pkv_lint.fixes.schema_keys import sorted_schema
from pkv_lint.prompt.json_spans import elements, members, span_of

SPACE = st.text(alphabet=" \t\r\n", max_size=2)
NUMBERS = st.sampled_from(["1", "-0", "1.0", "1E5", "1e-400", "123456789012345678901234567890", "NaN"])
WORDS = st.sampled_from(['""', '"a"', '"\\u00e9"', '"é"', '"\\ud83d\\ude00"', '"\\/"', '"\\ud800"', '"]},["'])
SCALARS = NUMBERS | WORDS | st.sampled_from(["true", "null"])


@st.composite
def spaced(draw: st.DrawFn, items: st.SearchStrategy[str], marks: str) -> str:
    """The text of a list or an object with odd spaces."""
    body = ",".join(draw(SPACE) + item + draw(SPACE) for item in draw(st.lists(items, max_size=5)))
    return marks[0] + (body or draw(SPACE)) + marks[1]


@st.composite
def entries(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    return draw(WORDS) + draw(SPACE) + ":" + draw(SPACE) + draw(values)


VALUES = st.recursive(SCALARS, lambda inner: spaced(inner, "[]") | spaced(entries(inner), "{}"), max_leaves=8)


def test_edits_are_made_from_front_to_back() -> None:
    assert applied("abcdef", [TextEdit(4, 5, ""), TextEdit(1, 3, "X"), TextEdit(6, 6, "!")]) == "aXdf!"


def test_edits_that_overlap_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap"):
        applied("abcdef", [TextEdit(0, 3, ""), TextEdit(2, 4, "")])


@given(spaced(VALUES, "[]"), st.randoms())
def test_items_move_and_what_stands_between_them_stays(text: str, random: Any) -> None:
    spans = list(elements(text, 0))
    places = list(range(len(spans)))
    random.shuffle(places)
    new = applied(text, reordered(text, spans, places))
    moved = list(elements(new, 0))
    assert [new[slice(*span)] for span in moved] == [text[slice(*spans[place])] for place in places]
    assert gaps(new, moved) == gaps(text, spans)


def gaps(text: str, spans: list[tuple[int, int]]) -> list[str]:
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    return [text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]


@given(spaced(VALUES, "[]"), st.sets(st.integers(0, 4)))
def test_items_are_taken_out(text: str, gone: set[int]) -> None:
    spans = list(elements(text, 0))
    gone &= set(range(len(spans)))
    new = applied(text, without_items(spans, gone)) if gone else text
    left = [text[slice(*span)] for index, span in enumerate(spans) if index not in gone]
    assert [new[slice(*span)] for span in elements(new, 0)] == left
    json.loads(new)


@given(spaced(entries(VALUES), "{}"), st.sets(st.sampled_from(["", "a", "é"])))
def test_members_are_taken_out_however_often_they_are_there(text: str, names: set[str]) -> None:
    new = applied(text, without_members(text, (), names))
    assert [m.key for m in members(new, 0)] == [m.key for m in members(text, 0) if m.key not in names]
    json.loads(new)


@given(spaced(entries(VALUES), "{}"))
def test_a_member_is_put_behind_the_last(text: str) -> None:
    new = applied(text, with_member(text, (), '"new"', "[1]"))
    old = [text[m.key_at : m.end] for m in members(text, 0)]
    assert [new[m.key_at : m.end] for m in members(new, 0)] == [*old, *(['"new": [1]'] if old else [])]


@given(spaced(VALUES, "[]"), st.lists(VALUES, min_size=1, max_size=3))
def test_a_list_gets_other_items(text: str, items: list[str]) -> None:
    new = listed_again(text, (0, len(text)), items)
    assert [new[slice(*span)] for span in elements(new, 0)] == items


def test_new_items_are_spaced_as_the_old_ones_are() -> None:
    assert listed_again("[\n  1,\n  2\n]", (0, 12), ["3", "4", "5"]) == "[\n  3,\n  4,\n  5\n]"


@given(spaced(entries(VALUES), "{}"))
def test_a_sorted_schema_means_the_same_and_stays_so(text: str) -> None:
    new = sorted_schema(text)
    assert sorted(new) == sorted(text)
    assert sorted_schema(new) == new
    if "NaN" not in text:
        assert json.loads(new) == json.loads(text)
    keys = [member.key for member in members(new, 0)]
    assert keys == sorted(keys)


def test_only_what_has_no_order_is_sorted() -> None:
    schema = {
        "type": "object",
        "required": ["b", "a"],
        "properties": {
            "required": {"enum": ["z", "a"], "description": "d", "default": {"y": 1, "x": [2, 1]}},
            "default": {"type": "array", "items": {"type": "object", "properties": {"d": {}, "c": {}}}},
            "anyOf": {"anyOf": [{"type": "string", "const": {"q": 1, "p": 2}}, {"type": "null"}]},
        },
    }
    text = sorted_schema(json.dumps(schema))
    assert text == json.dumps(
        {
            "properties": {
                "anyOf": {"anyOf": [{"const": {"q": 1, "p": 2}, "type": "string"}, {"type": "null"}]},
                "default": {"items": {"properties": {"c": {}, "d": {}}, "type": "object"}, "type": "array"},
                "required": {"default": {"y": 1, "x": [2, 1]}, "description": "d", "enum": ["z", "a"]},
            },
            "required": ["a", "b"],
            "type": "object",
        }
    )


def test_spans_follow_the_last_of_equal_keys() -> None:
    text = '{"a": 1, "a": [null, {"b": "x"}]}'
    span = span_of(text, ("a", 1, "b"))
    assert span is not None and text[slice(*span)] == '"x"'
    assert span_of(text, ("a", 2)) is None and span_of(text, ("b",)) is None
