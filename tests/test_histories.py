"""Which messages of an earlier history a later one still has."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pkv_lint.histories import Alignment, Gists, History

WORDS = "valve pump oil lid lamp line wheel shaft nail plate pipe shell paint glue cloth paper wood stone iron"


def prose(name: str) -> str:
    return " ".join(random.Random(name).choices(WORDS.split(), k=14))


def history(text: str) -> History:
    """One message per word: `u1` is a user's, `a1` a reply, `t1` a tool's result, `s1` a system message; what follows a
    `+` is put behind its text."""
    roles = {"u": "user", "a": "assistant", "t": "tool", "s": "system"}
    messages: list[Any] = []
    for word in text.split():
        name, _, more = word.partition("+")
        content = prose(name) + (f" {prose(more)[:30]}" if more else "")
        messages.append({"role": roles[name[0]], "content": content})
    return History.of(messages, Gists())


def aligned(before: str, after: str) -> Alignment:
    return Alignment(history(before), history(after))


GOES_ON = [
    ("u1", "u1 a1 u2"),
    ("u1 a1 u2", "u1 a1 u2"),
    ("u1 a1 u2", "u1 a1 u2 a2 t2 t3 a3 t4"),
    ("u1+x", "u1 a1 u2"),
    ("u1 a1 u2+x", "u1 a1 u2 a2 u3+x"),
    ("u1 u9", "u1 a1 u2 u9"),
    ("u1 a1 u2 s9", "u1 a1 u2 a2 u3 s9"),
    ("u1 a1 u2 u8", "u1 a1 u2 a2 u3 u9"),
    ("u1 a1 u2 a2 u3", "u2 a2 u3 a3 u4"),
    ("u1 a1 u2 a2 u3 a3 u4", "u1 a3 u4 a4 u5"),
    ("u1 a1 u2 a2 u3 a3 u4", "u9 u4 a4 u5"),
    ("u1 a1 u2 a2 u3", "u1 a2 u3 a3 u4"),
    ("u1 a1 u2", "u1 a1 s9 u2 a2 u3"),
    ("u1 a1 u2 a2 u3", "u2 a2 u3"),
    ("u1 a1 u2 a2 u3", "u1 a1+x u2 a2 u3"),
    ("u1 a1 t1 a2 t2", "u1 a1 t1+x a2 t2 a3 t3"),
]


@pytest.mark.parametrize(("before", "after"), GOES_ON)
def test_a_later_state_of_a_conversation(before: str, after: str) -> None:
    assert aligned(before, after).goes_on


BRANCHES = [
    ("u1", "u2"),
    ("u1", "u2 a2 u3"),
    ("u1 a1 u2", "u1 a1 u3"),
    ("u1 a1 u2", "u1 a1 u3 a3 u4"),
    ("u1 a1 u2", "u1 a9 u3"),
    ("u1 a1 u2", "u1"),
    ("u1 a1 u2 a2 u3", "u1 a1 u9 a9 u8"),
    ("u1 a1 t1", "u1 a9 t1"),
    ("u1 a1 u2 a2 u9", "u3 a3 u4 a4 u9"),
    ("u1 a1 u9", "u1 a1 u2 a2 u9"),
    ("u1 a1 u9", "u1+x a1 u9"),
    ("u1 a1 u9", "u9"),
    ("u1 a1 u2 a2 u9", "u3 u2 a2 u9"),
    ("u1 a1 u2 a2 u5", "u3 a3 u2 a2 u6"),
    ("u1 a1 t1 a2 t2", "u1 a1 t1 a9 t9 a8 t8"),
]


@pytest.mark.parametrize(("before", "after"), BRANCHES)
def test_another_branch_or_conversation(before: str, after: str) -> None:
    assert not aligned(before, after).goes_on


def stretches(before: str, after: str) -> list[tuple[int, int, int, int]]:
    return [(s.start, s.end, s.from_, s.to) for s in aligned(before, after).stretches]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("u1 a1 u2", "u1 a1 u2 a2 u3", []),
        ("u1 a1 u2 a2 u3", "u2 a2 u3 a3 u4", [(0, 2, 0, 0)]),
        ("u1 a1 u2 a2 u3", "u1 a2 u3 a3 u4", [(1, 3, 1, 1)]),
        ("u1 a1 u2", "u1 a1 s9 u2 a2 u3", [(2, 2, 2, 3)]),
        ("u1 a1 u2+x", "u1 a1 u2 a2 u3", [(2, 3, 2, 3)]),
        ("u1 a1 u2+x u8", "u1 a1 u2 a2 u3", [(2, 4, 2, 3)]),
        ("u1 u8", "u1 a1 u2", [(1, 2, 1, 1)]),
        ("u1 a1 t1 a2 t2", "u1 a1 t1+x a2 t2+x a3 t3", [(2, 3, 2, 3), (4, 5, 4, 5)]),
    ],
)
def test_stretches_that_differ(before: str, after: str, expected: list[tuple[int, int, int, int]]) -> None:
    assert stretches(before, after) == expected


def test_a_reminder_that_goes_along_is_not_a_message_put_in_front_of_it() -> None:
    alignment = aligned("u1 a1 u2 s9", "u1 a1 u2 a2 u3 s9")
    assert (alignment.moved, alignment.stretches, alignment.without_nudge) == (1, [], 3)


def test_pairs_of_a_stretch() -> None:
    alignment = aligned("u1 a1 u2 u8 u7 a2 u3", "u1 a1 u9 u2+x a2 u3 a3 u4")
    (stretch,) = alignment.stretches
    assert alignment.pairs(stretch) == [(None, 2), (2, 3), (3, None), (4, None)]


def test_equal_calls_made_again_do_not_shift_results() -> None:
    """The same call with the same result, three times; all results are then written another way."""
    before = [message for n in range(3) for message in step(n, '{"a": 1}')]
    after = [message for n in range(3) for message in step(n, '{"a":1}')] + step(3, '{"a": 1}')
    alignment = Alignment(History.of(before, Gists()), History.of(after, Gists()))
    assert all((s.start, s.end) == (s.from_, s.to) for s in alignment.stretches)


def step(number: int, result: str) -> list[Any]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "poll", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": result},
    ]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a": 1, "b": 2}', '{"b":2,"a":1}', True),
        ('{"a": 1}', '{"a": 1.0}', True),
        ('{"a": "é"}', '{"a": "\\u00e9"}', True),
        ('{"a": 1}', '{"a": true}', False),
        ('{"a": 1}', '{"a": "1"}', False),
        ('{"a": [1, 2]}', '{"a": [2, 1]}', False),
        ("not JSON", "not  JSON", False),
    ],
)
def test_calls_say_the_same_however_their_arguments_are_written(one: str, other: str, same: bool) -> None:
    gists = [
        Gists().of({"role": "assistant", "tool_calls": [{"id": i, "function": {"name": "f", "arguments": a}}]})
        for i, a in enumerate((one, other))
    ]
    assert (gists[0] == gists[1]) is same


@pytest.mark.parametrize("message", [None, 3, "text", [], {}, {"role": 5}, {"role": "user", "content": [3, {}]}])
def test_messages_of_any_shape_have_a_gist(message: Any) -> None:
    assert hash(Gists().of(message)) == hash(Gists().of(message))
