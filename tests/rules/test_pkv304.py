"""PKV304: calls of the history with new ids, where the template prints ids."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from .agents import Change, Run, agent, assistant, call, prose, result, user
from .conversations import Line, Message, codes, lint, loud
from .habits import PLAIN, PRINTS_IDS

LETTERS = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"


def renamed(name: object, since: int = 0, until: int = 10**9) -> Change:
    """From one request to another, every call (in front of message `until`) has an id made by a function of its number
    and the request."""

    def change(messages: list[Message], turn: int) -> list[Message]:
        if turn < since:
            return messages
        numbers = itertools.count()
        new: dict[str, str] = {}
        for at, message in enumerate(messages):
            for made in message.get("tool_calls", ()):
                fresh = name(next(numbers), turn)  # type: ignore[operator]
                if at < until:
                    new[made["id"]] = made["id"] = fresh
            if message["role"] == "tool" and at < until:
                message["tool_call_id"] = new.get(message["tool_call_id"], message["tool_call_id"])
        return messages

    return change


def mistral(number: int, turn: int) -> str:
    return "".join(random.Random(f"{number} {turn}").choices(LETTERS, k=9))


def openai(number: int, turn: int) -> str:
    return "call_" + "".join(random.Random(f"{number} {turn}").choices(LETTERS, k=24))


def uuid(number: int, turn: int) -> str:
    text = f"{random.Random(f'{number} {turn}').getrandbits(128):032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def only_results(messages: list[Message], turn: int) -> list[Message]:
    return [{**m, "tool_call_id": f"r{turn}{at}x"} if m["role"] == "tool" else m for at, m in enumerate(messages)]


def two_at_once(messages: list[Message], turn: int) -> list[Message]:
    return json.loads(json.dumps(messages).replace('"c1', f'"d{turn}').replace('"c5', f'"e{turn}'))  # type: ignore[no-any-return]


def parallel() -> Run:
    one, other = call("parallel one"), call("parallel two", "list_dir")
    return Run(
        [
            user(prose("q")),
            assistant("", one, other),
            result(one, prose("r1", 60)),
            result(other, prose("r2", 60)),
            assistant(prose("a")),
            user(prose("q2")),
        ],
        [1, 4, 6],
    )


FIRST = "messages[2].tool_calls[0].id"
FAULTS: dict[str, tuple[list[Line], str]] = {
    "nine letters in every request": (agent(2).sent(renamed(mistral)), FIRST),
    "as OpenAI writes them": (agent(2).sent(renamed(openai)), FIRST),
    "UUIDs": (agent(2).sent(renamed(uuid)), FIRST),
    "a number and the time": (agent(2).sent(renamed(lambda n, t: f"call-{n}-{1780000000 + 37 * t}")), FIRST),
    "once, when the provider changed": (agent(2).sent(renamed(lambda n, t: f"toolu_{n:024d}", since=3)), FIRST),
    "renumbered once": (agent(2).sent(renamed(lambda n, t: f"functions.read_file:{n}", since=4)), FIRST),
    "only the ids of results": (agent(2).sent(only_results), "messages[3].tool_call_id"),
    "two calls at once": (parallel().sent(renamed(openai)), FIRST),
    "forty steps in": (agent(1, 42).sent(renamed(openai, since=40, until=79)), FIRST),
    "without sessions": (agent(2).sent(renamed(mistral), session=None), FIRST),
    "shorter ids": (agent(2).sent(renamed(lambda n, t: f"{n}{t}")), FIRST),
    "only the first call": (agent(2).sent(renamed(openai, until=3)), FIRST),
}


@pytest.mark.parametrize("name", FAULTS)
def test_new_ids_are_told_where_they_are_printed(name: str) -> None:
    lines, path = FAULTS[name]
    (finding,) = loud(lint(lines, chat_template=PRINTS_IDS))
    assert (finding.code, finding.path) == ("PKV304", path)
    assert finding.tokens_lost > 0


@pytest.mark.parametrize("template", [None, PLAIN], ids=["built-in", "template"])
@pytest.mark.parametrize("name", FAULTS)
def test_ids_that_are_not_printed_are_left_alone(name: str, template: str | None) -> None:
    assert codes(lint(FAULTS[name][0], chat_template=template)) == []


SILENT: dict[str, list[Line]] = {
    "ids that stay": agent(3).sent(),
    "every call with an id of its own": agent(2, 6).sent(),
    "a retry whose reply made a new call": [
        *agent(1).sent()[:2],
        *Run([agent(1).messages[0], assistant("", call("again")), result(call("again"), prose("o", 60))], [3]).sent(),
        *agent(1).sent()[2:],
    ],
    "another session with other ids": [*agent(2).sent(), *agent(2).sent(renamed(lambda n, t: f"x{n}"), session="b")],
    "calls without text": agent(2).sent(lambda m, t: [{**x, "content": ""} if x.get("tool_calls") else x for x in m]),
    "no calls at all": agent(3, 0).sent(),
    "the same ids under another name of the result": agent(2).sent(
        lambda m, t: [{**x, "name": f"tool_{t}"} if x["role"] == "tool" else x for x in m]
    ),
    "one id for all calls": agent(2).sent(renamed(lambda n, t: "call_0")),
    "ids by place": agent(2).sent(renamed(lambda n, t: f"call_{n}")),
    "the same request again": [line for line in agent(2).sent() for _ in range(2)],
}


@pytest.mark.parametrize("name", SILENT)
def test_ids_that_stay_are_left_alone(name: str) -> None:
    assert codes(lint(SILENT[name], chat_template=PRINTS_IDS)) == []


def test_the_old_id_is_shown() -> None:
    lines = FAULTS["once, when the provider changed"][0]
    (finding,) = loud(lint(lines, chat_template=PRINTS_IDS))
    old = lines[2]["request"]["messages"][2]["tool_calls"][0]["id"]
    assert finding.message == (
        f"is a new id for a call sent before (was {old}), and this template prints ids; 3 more in this request"
    )
    assert (finding.evidence["before"], finding.evidence["after"]) == (old, "toolu_" + "0" * 24)
