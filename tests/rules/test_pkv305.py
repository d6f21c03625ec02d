"""PKV305: side requests with another head in front of the same history."""

from __future__ import annotations

from typing import Any

import pytest

from .agents import TOOLS, Run, agent, chat, prose, user
from .conversations import Line, Message, codes, conversation, lint, loud, prompt

TITLE = "You write titles. Answer with at most six words, without quotes and without a full stop."
SUMMARY = "You compress conversations. Keep decisions, open questions and names; leave out pleasantries."


def side(
    line: Line, system: str | None = TITLE, *more: Message, tools: Any = None, keep: Any = slice(None), **fields: Any
) -> Line:
    """A request with the history of another one behind a head of its own."""
    body = line["request"]
    history = [message for message in body["messages"] if message["role"] != "system"][keep]
    front = [{"role": "system", "content": system}] if system else []
    new = {**body, "messages": [*front, *history, *more], **fields}
    new.pop("tools", None)
    if tools:
        new["tools"] = tools
    return {**line, "request": new}


def between(lines: list[Line], *sides: Line, at: int = 3) -> list[Line]:
    return [*lines[:at], *sides, *lines[at:]]


def developer(line: Line) -> Line:
    front, *rest = line["request"]["messages"]
    return {**line, "request": {**line["request"], "messages": [{**front, "role": "developer"}, *rest]}}


ASK = user("Write the title now.")
TALK = chat(5).sent()
WORK = agent(2).sent(tools=TOOLS)
OWN = WORK[0]["request"]["messages"][0]["content"]

FAULTS: dict[str, tuple[list[Line], str]] = {
    "a title": (between(TALK, side(TALK[2], TITLE, ASK)), "messages[0].content"),
    "a title, the conversation ends": ([*TALK, side(TALK[4], TITLE, ASK)], "messages[0].content"),
    "a title without asking": (between(TALK, side(TALK[2])), "messages[0].content"),
    "a summary of an agent's work, without its tools": (
        between(WORK, side(WORK[2], SUMMARY, user("Summarise."))),
        "messages[0].content",
    ),
    "the same system prompt without the tools": (between(WORK, side(WORK[2], OWN, user("Summarise."))), "tools"),
    "the same system prompt with other tools": (
        between(WORK, side(WORK[2], OWN, user("Which file?"), tools=TOOLS[:1])),
        "tools",
    ),
    "no system prompt": (between(TALK, side(TALK[2], None, ASK)), "messages[0]"),
    "a developer message": (between(TALK, developer(side(TALK[2], TITLE, ASK))), "messages[0].content"),
    "without sessions": (
        between(chat(5).sent(session=None), side(chat(5).sent(session=None)[2], TITLE, ASK)),
        "messages[0].content",
    ),
    "forty turns in": (between(chat(42).sent(), side(chat(42).sent()[40], SUMMARY, ASK), at=41), "messages[0].content"),
    "after every turn": (
        [request for line in TALK for request in (line, side(line, TITLE, ASK))][2:],
        "messages[0].content",
    ),
    "one long message": (
        [
            *Run([user(prose("document", 300))], [1]).sent(),
            side(Run([user(prose("document", 300))], [1]).sent()[0]),
            *Run([user(prose("document", 300)), *chat(1).messages[::-1]], [3]).sent(),
        ],
        "messages[0].content",
    ),
    "a reviewer that goes on by itself": (
        between(
            TALK,
            side(TALK[2], "You review answers. " + prose("review", 40), user("Review the last answer.")),
            side(
                TALK[2],
                "You review answers. " + prose("review", 40),
                user("Review the last answer."),
                {"role": "assistant", "content": prose("finding")},
                user("Are you sure?"),
            ),
        ),
        "messages[0].content",
    ),
    "the prompt and a line more": (
        between(TALK, side(TALK[2], prompt("Now you answer with a summary of the conversation.", 0), ASK)),
        "messages[0].content",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_side_request_with_its_own_head_is_told(name: str) -> None:
    lines, path = FAULTS[name]
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.path) == ("PKV305", path)
    assert finding.tokens_lost > 0
    assert "system" in finding.fix


def rated(answer: str) -> list[Line]:
    return Run([user("Rate: " + answer)], [1]).sent(system=TITLE)


def first_turn(system: str, session: str | None = "s") -> list[Line]:
    return conversation(system, turns=1, session=session)


SILENT: dict[str, list[Line]] = {
    "a title asked for behind the same head": between(TALK, side(TALK[2], prompt(), ASK)),
    "a title for a short first question": [*first_turn(prompt()), *first_turn(TITLE), *conversation(prompt())[1:]],
    "a title made from text of the conversation": between(
        TALK, *Run([user("Title this: " + prose("u0", 30))], [1]).sent(system=TITLE)
    ),
    "a sub-agent with a task of its own": between(TALK, *agent(1, topic="task").sent(system=SUMMARY)),
    "another conversation in the session": [*TALK, *chat(4, topic="b").sent(system=SUMMARY)],
    "one conversation tried with two prompts, without sessions": [
        *chat(1).sent(session=None),
        *Run(chat(3).messages, [5]).sent(session=None),
        *Run(chat(3).messages, [5]).sent(session=None, system=SUMMARY),
    ],
    "one conversation tried with two prompts, in two sessions": [
        *chat(4).sent(session="a", system="You are brief. " + prose("one", 60)),
        *chat(4).sent(session="b", system="You are thorough. " + prose("two", 60)),
    ],
    "a router that sees the first question": [
        *first_turn("Which department is this for? Answer with one word."),
        *conversation(prompt()),
    ],
    "the same conversation": TALK,
    "a branch under the same head": between(TALK, side(TALK[2], prompt(), user("Something else."))),
    "side requests about nothing but the last answer": [
        request
        for line in TALK
        for request in (
            line,
            *Run([user("Rate: " + line["request"]["messages"][-1]["content"])], [1]).sent(system=TITLE),
        )
    ],
    "two models": [request for line in TALK for request in (line, side(line, TITLE, ASK, model="small"))],
}


@pytest.mark.parametrize("name", SILENT)
def test_requests_that_share_no_history_are_left_alone(name: str) -> None:
    assert codes(lint(SILENT[name])) == []


def test_a_head_that_the_conversation_keeps_is_no_side_request() -> None:
    """A new system prompt in the middle of a conversation that then goes on under it."""
    lines = [*TALK[:2], *(side(line, SUMMARY) for line in TALK[2:])]
    assert "PKV305" not in codes(lint(lines))
    lines = [*WORK[:3], *(side(line, OWN, tools=TOOLS[:2]) for line in WORK[3:])]
    assert codes(lint(lines)) == ["PKV203"]
