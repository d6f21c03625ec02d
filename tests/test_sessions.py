"""Which earlier request a request is held against, and how the two are related."""

from __future__ import annotations

from array import array
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from pkv_lint.prompt.prompt import Prompt
from pkv_lint.prompt.traffic import TrafficLine
from pkv_lint.sessions import placed
from pkv_lint.turns import Turn

HEADS = {
    "A": "You are Tern.\nYou help the people who use our machines.\nBe kind.\nBe brief.",
    "a": "You are Tern.\nYou help the people who use our machines.\nBe kind.\nBe thorough.",
    "B": "You write titles of at most six words for conversations about machines.",
}
LONG = "the valve turns slowly while the old oil rests under a green lid, and nobody knows why it does so"


def turn(index: int, written: str) -> Turn:
    """`A s1: u1 a1 u2` is a request of session s1 (- for none) with the head A; `A+t s1:` one with tools."""
    front, _, history = written.partition(":")
    head, session = front.split()
    name, _, tools = head.partition("+")
    roles = {"u": "user", "a": "assistant", "s": "system"}
    messages: list[Any] = [{"role": "system", "content": HEADS[name]}] if name in HEADS else []
    messages += [{"role": roles[word[0]], "content": f"{word} {LONG}"} for word in history.split()]
    chat: dict[str, Any] = {"messages": messages}
    if tools:
        chat["tools"] = [{"type": "function", "function": {"name": tool}} for tool in tools]
    line = TrafficLine(index, "x", index + 1, 1, "", session_id=None if session == "-" else session)
    return Turn(index, line, chat, Prompt(None, array("i")), datetime(2026, 1, 1), array("i"), ("m", ""))


def relations(*written: str) -> list[str | None]:
    """For each request the relation and the one it is held against: `continued 0`."""
    found = placed([turn(index, text) for index, text in enumerate(written)])
    return [f"{one.reference.relation} {one.reference.turn.index}" if one.reference else None for one in found]


CASES: list[tuple[str, list[str], list[str | None]]] = [
    ("a conversation", ["A s: u1", "A s: u1 a1 u2"], [None, "continued 0"]),
    ("a branch", ["A s: u1", "A s: u1 a1 u2", "A s: u1 a9 u9"], [None, "continued 0", "continued 0"]),
    (
        "a retry in between",
        ["A s: u1", "A s: u1 a1 u2", "A s: u1 a1 u9", "A s: u1 a1 u2 a2 u3"],
        [None, "continued 0", "continued 0", "continued 1"],
    ),
    (
        "a side request and the way back",
        ["A s: u1 a1 u2", "B s: u1 a1 u2 u9", "A s: u1 a1 u2 a2 u3"],
        [None, "auxiliary 0", "continued 0"],
    ),
    ("a side request at the end", ["A s: u1 a1 u2", "B s: u1 a1 u2 u9"], [None, "auxiliary 0"]),
    (
        "a side request with a similar head",
        ["A s: u1 a1 u2", "a s: u1 a1 u2 u9", "A s: u1 a1 u2 a2 u3"],
        [None, "auxiliary 0", "continued 0"],
    ),
    ("a similar head", ["A s: u1 a1 u2", "a s: u1 a1 u2 a2 u3"], [None, "continued 0"]),
    (
        "another head that stays",
        ["A s: u1 a1 u2", "B s: u1 a1 u2 a2 u3", "B s: u1 a1 u2 a2 u3 a3 u4"],
        [None, "continued 0", "continued 1"],
    ),
    (
        "a head that goes to and fro",
        ["A s: u1", "a s: u1 a1 u2", "A s: u1 a1 u2 a2 u3", "a s: u1 a1 u2 a2 u3 a3 u4"],
        [None, "continued 0", "continued 1", "continued 2"],
    ),
    (
        "tools left out for once",
        ["A+xy s: u1 a1 u2", "A s: u1 a1 u2 u9", "A+xy s: u1 a1 u2 a2 u3"],
        [None, "auxiliary 0", "continued 0"],
    ),
    ("tools left out", ["A+xy s: u1 a1 u2", "A s: u1 a1 u2 a2 u3"], [None, "continued 0"]),
    (
        "a sub-agent that takes the history over",
        ["A s: u1 a1 u2", "B s: u1 a1 u2 u9", "B s: u1 a1 u2 u9 a9 u8", "A s: u1 a1 u2 a2 u3"],
        [None, "auxiliary 0", "continued 1", "continued 0"],
    ),
    ("another conversation", ["A s: u1 a1 u2", "A s: u5 a5 u6"], [None, "same session 0"]),
    ("another head and conversation", ["A s: u1 a1 u2", "B s: u5 a5 u6"], [None, None]),
    ("another session", ["A s: u1", "A t: u5"], [None, "other session 0"]),
    ("another session with a similar head", ["A s: u1", "a t: u5"], [None, "other session 0"]),
    ("a session that another goes on with", ["A s: u1 a1 u2", "A t: u1 a1 u2 a2 u3"], [None, "continued 0"]),
    ("a session with the same beginning", ["A s: u1", "A t: u1 a1 u2"], [None, "other session 0"]),
    ("a sliding window", ["A s: u1 a1 u2 a2 u3", "A s: u2 a2 u3 a3 u4"], [None, "continued 0"]),
    (
        "a sliding window with side requests",
        ["A s: u1 a1 u2 a2 u3", "A s: u1 a1 u2 a2 u3 u9", "A s: u2 a2 u3 a3 u4"],
        [None, "continued 0", "continued 0"],
    ),
    ("without sessions", ["A -: u1", "A -: u5", "A -: u1 a1 u2"], [None, "other session 0", "continued 0"]),
    ("without sessions, a window", ["A -: u1 a1 u2 a2 u3", "A -: u2 a2 u3 a3 u4"], [None, "continued 0"]),
    ("without sessions, a side request", ["A -: u1 a1 u2", "B -: u1 a1 u2 u9"], [None, None]),
    (
        "without sessions, a side request and the way back",
        ["A -: u1 a1 u2", "B -: u1 a1 u2 u9", "A -: u1 a1 u2 a2 u3"],
        [None, "auxiliary 0", "continued 0"],
    ),
    ("a named one does not join the unnamed", ["A -: u1", "A s: u1 a1 u2"], [None, "other session 0"]),
    (
        "a request sent again, and a window",
        ["A s: u1 a1 u2 a2 u3", "A s: u1 a1 u2 a2 u3", "A s: u2 a2 u3 a3 u4"],
        [None, "continued 0", "continued 0"],
    ),
    ("no history", ["A s:", "A s:"], [None, "same session 0"]),
]


@pytest.mark.parametrize(("name", "requests", "expected"), CASES, ids=[name for name, _, _ in CASES])
def test_relations(name: str, requests: list[str], expected: list[str | None]) -> None:
    assert relations(*requests) == expected


def test_many_conversations_between_do_not_hide_the_parent() -> None:
    requests = ["A s: u1 a1 u2", *(f"A s: u{n} a{n} u{n}0" for n in range(100, 160)), "A s: u2 a2 u3"]
    window = "A s: a1 u2 a2 u3"
    assert relations(*requests[:-1], "A s: u1 a1 u2 a2 u3")[-1] == "continued 0"
    assert relations(*requests[:-1], window)[-1] == "continued 0"


def test_of_several_samples_the_reply_decides() -> None:
    first, second, later = turn(0, "A s: u1"), turn(1, "A s: u1"), turn(2, "A s: u1 a1 u2")
    samples = [
        replace(first, prompt=Prompt(None, array("i", [1, 2])), generated=array("i", [7, 8])),
        replace(second, prompt=Prompt(None, array("i", [1, 2])), generated=array("i", [5, 6])),
    ]
    found = placed([*samples, replace(later, prompt=Prompt(None, array("i", [1, 2, 7, 8, 9])))])
    assert found[2].reference is not None
    assert found[2].reference.turn.index == 0


def test_a_system_prompt_of_which_every_line_changes_a_little() -> None:
    lines = [
        "Be kind. Be brief. It is {}:05.",
        "Name your sources. Since {}:04 the shop is open. Say so.",
        "At {}. Now.",
    ]
    chats = [
        {
            "messages": [
                {"role": "system", "content": "\n".join(lines).replace("{}", hour)},
                {"role": "user", "content": ask},
            ]
        }
        for hour, ask in (("14", "hi"), ("15", "What is open?"))
    ]
    found = placed([replace(turn(index, "- -:"), chat=chat) for index, chat in enumerate(chats)])
    assert found[1].reference is not None and found[1].reference.relation == "other session"


def test_models_do_not_go_on_from_each_other() -> None:
    other = replace(turn(1, "A s: u1 a1 u2"), namespace=("n", ""))
    assert [found.reference for found in placed([turn(0, "A s: u1"), other])] == [None, None]
