"""PKV302: a history that slides, and histories that are cut once or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .agents import TOOLS, Change, Run, agent, assistant, chat, prose, user
from .conversations import Line, Message, codes, lint, loud

NOTICE = user("[Earlier messages were left out to save space.]")


def last(count: int, pinned: int = 0, *, since: int = 0) -> Change:
    """Only the last messages are sent, behind some pinned ones."""

    def cut(messages: list[Message], turn: int) -> list[Message]:
        if turn < since or len(messages) <= count + pinned:
            return messages
        return [*messages[:pinned], *messages[-count:]]

    return cut


def noticed(count: int) -> Change:
    return lambda m, turn: m if len(m) <= count else [NOTICE, *m[-count:]]


def budget(words: int) -> Change:
    """As many of the newest turns as fit."""

    def cut(messages: list[Message], turn: int) -> list[Message]:
        kept = list(messages)
        while len(kept) > 3 and sum(len(m["content"].split()) for m in kept) > words:
            kept = kept[2:]
        return kept

    return cut


def in_blocks(size: int, most: int) -> Change:
    """When there are too many messages, a block of the oldest goes at once."""
    return lambda m, turn: m[size * max(0, -(-(len(m) - most) // size)) :]


def long_and_short() -> Run:
    messages = []
    for turn in range(10):
        messages += [user(prose(f"u{turn}", 12 + 25 * (turn % 3))), assistant(prose(f"a{turn}", 20 + 30 * (turn % 2)))]
    return Run(messages, list(range(1, 20, 2)))


def alike(steps: int) -> list[Message]:
    """Questions and answers that differ in a number each."""
    text = prose("every step", 40)
    return [m for n in range(steps + 1) for m in (user(f"Step {n}. {text}"), assistant(f"Done with {n}. {text}"))]


def with_side_requests(lines: list[Line]) -> list[Line]:
    out = []
    for line in lines:
        body = line["request"]
        out += [line, {**line, "request": {**body, "messages": [*body["messages"], user("A title, please.")]}}]
    return out


FAULTS: dict[str, tuple[list[Line], str]] = {
    "the last five messages": (chat(6).sent(last(5)), "messages[1]"),
    "the last four, from an answer on": (chat(6).sent(last(4)), "messages[1]"),
    "behind the first message": (chat(7).sent(last(4, 1)), "messages[2]"),
    "behind the first exchange": (chat(7).sent(last(5, 2)), "messages[3]"),
    "behind six messages": (chat(9).sent(last(5, 6)), "messages[7]"),
    "behind a notice": (chat(8).sent(noticed(5)), "messages[2]"),
    "from the fortieth turn on": (chat(44).sent(last(60, since=40)), "messages[1]"),
    "without sessions": (chat(7).sent(last(5), session=None), "messages[1]"),
    "without a system prompt": (chat(7).sent(last(5), system=""), "messages[0]"),
    "calls of tools": (agent(1, 8).sent(last(6)), "messages[1]"),
    "calls of tools behind the task": (agent(1, 8).sent(last(6, 1)), "messages[2]"),
    "steps that read alike, behind the task": (
        Run(alike(8), list(range(1, 18, 2))).sent(last(4, 1)),
        "messages[2]",
    ),
    "a budget of words": (long_and_short().sent(budget(160)), "messages[1]"),
    "side requests between": (with_side_requests(chat(7).sent(last(5))), "messages[1]"),
    "two sessions": (
        [*chat(6).sent(last(5)), *chat(6, topic="b").sent(last(5), session="b")],
        "messages[1]",
    ),
    "in turns with another conversation": (
        [
            line
            for pair in zip(chat(6).sent(last(5)), chat(6, topic="b").sent(session="b"), strict=True)
            for line in pair
        ],
        "messages[1]",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_sliding_window_is_told(name: str) -> None:
    lines, path = FAULTS[name]
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.path) == ("PKV302", path)
    assert finding.requests_affected > 1
    assert "again in the next" in finding.message


SILENT: dict[str, Callable[[], list[Line]]] = {
    "a growing history": lambda: chat(6).sent(),
    "cut once": lambda: chat(7).sent(lambda m, t: m[4:] if t > 3 else m),
    "cut in blocks of four": lambda: chat(12).sent(in_blocks(4, 7)),
    "cut in blocks of eight": lambda: chat(14).sent(in_blocks(8, 11)),
    "calls cut in blocks": lambda: agent(1, 12).sent(in_blocks(8, 9)),
    "half of it, twice": lambda: chat(16).sent(lambda m, t: m[16:] if t > 12 else m[8:] if t > 6 else m),
    "compacted once": lambda: chat(8).sent(lambda m, t: [user(prose("sum")), assistant("Ok."), *m[8:]] if t > 5 else m),
    "another conversation in the session": lambda: [*chat(4).sent(), *chat(4, topic="b").sent()],
    "another one that begins with the last question": lambda: [
        *chat(4).sent(),
        *Run([chat(4).messages[6], *chat(3, topic="b").messages[1:]], [1, 3, 5]).sent(),
    ],
    "a sub-agent that gets the last exchange": lambda: [
        *chat(4).sent(),
        *Run([*chat(4).messages[4:6], user("Check this answer.")], [3]).sent(),
        *chat(5).sent()[4:],
    ],
    "nothing but the newest question": lambda: [
        line for turn in range(6) for line in Run([user(prose(turn, 30))], [1]).sent()
    ],
    "the same request again": lambda: [line for line in chat(4).sent() for _ in range(3)],
    "a window longer than the conversation": lambda: chat(6).sent(last(20)),
}


@pytest.mark.parametrize("name", SILENT)
def test_histories_that_do_not_slide_are_left_alone(name: str) -> None:
    assert codes(lint(SILENT[name]())) == []


@pytest.mark.parametrize("name", ["cut once", "cut in blocks of four", "cut in blocks of eight", "calls cut in blocks"])
def test_blocks_are_a_note_with_its_cost(name: str) -> None:
    (finding,) = lint(SILENT[name]())
    assert (finding.code, finding.severity) == ("PKV302", "info")
    assert finding.tokens_lost > 0
    assert "again in the next" not in finding.message


def test_one_message_taken_out_is_no_window() -> None:
    lines = chat(7).sent(lambda m, t: [*m[:4], *m[5:]] if t > 4 else m)
    assert codes(lint(lines)) == ["PKV301"]


def test_a_window_is_told_beside_a_change_of_tools() -> None:
    lines = chat(7).sent(last(5), tools=TOOLS[:2])
    lines[5]["request"]["tools"] = TOOLS[:3]
    lines[6]["request"]["tools"] = TOOLS[:3]
    assert sorted(codes(lint(lines))) == ["PKV203", "PKV302"]


def test_a_window_is_told_beside_a_reminder() -> None:
    def spoilt(messages: list[Message], turn: int) -> list[Message]:
        *older, newest = last(5)(messages, turn)
        return [*older, {**newest, "content": newest["content"] + "\n<reminder>Be brief.</reminder>" * 6}]

    assert sorted(codes(lint(chat(8).sent(spoilt)))) == ["PKV301", "PKV302"]
