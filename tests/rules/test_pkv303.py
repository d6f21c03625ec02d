"""PKV303: arguments and results in another notation, and what only looks like it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .agents import Change, Run, agent, assistant, prose, result, user
from .conversations import Line, Message, codes, lint, loud
from .habits import PLAIN

ARGUMENTS = {
    "path": "src/ledger/accounts.py",
    "query": "naïve “quotes” and 数字",
    "limits": {"from": 1, "to": 40, "step": 0.5},
    "flags": ["i", "m"],
    "all": True,
}


def turned(value: Any) -> Any:
    """The same JSON value with all keys in the opposite order."""
    if isinstance(value, dict):
        return {key: turned(item) for key, item in reversed(value.items())}
    return [turned(item) for item in value] if isinstance(value, list) else value


def run(arguments: str = json.dumps(ARGUMENTS), output: str = "", steps: int = 3) -> Run:
    """An agent whose calls all have these arguments and whose results all say `output`."""
    messages = [user(prose("task"))]
    cuts = [1]
    for step in range(steps):
        made = {"id": f"c{step}", "type": "function", "function": {"name": "grep_repo", "arguments": arguments}}
        messages += [assistant("", made), result(made, output or prose(step, 60))]
        cuts.append(len(messages))
    return Run(messages, cuts)


def calls(write: Callable[[str], str], since: int = 2, *, only: int | None = None) -> Change:
    """From a request on, arguments (of all calls, or of one message) are written another way."""

    def change(messages: list[Message], turn: int) -> list[Message]:
        if turn < since:
            return messages
        for at, message in enumerate(messages[: 2 * since]):
            for made in message.get("tool_calls", ()) if only in (None, at) else ():
                made["function"]["arguments"] = write(made["function"]["arguments"])
        return messages

    return change


def results(write: Callable[[str], str], since: int = 2) -> Change:
    def change(messages: list[Message], turn: int) -> list[Message]:
        return [
            {**m, "content": write(m["content"])} if m["role"] == "tool" and turn >= since and at < 2 * since else m
            for at, m in enumerate(messages)
        ]

    return change


def rewritten(change: Callable[[Any], Any] = lambda value: value, **style: Any) -> Callable[[str], str]:
    return lambda text: json.dumps(change(json.loads(text)), **style)


SORTED = rewritten(sort_keys=True)
OUTPUT = json.dumps({"lines": [{"n": n, "text": prose(n, 6)} for n in range(4)], "total": 4, "rate": 2.0})
FIRST = "messages[2].tool_calls[0].function.arguments"
RESULT = "messages[3].content"

FAULTS: dict[str, tuple[list[Line], str]] = {
    "sorted keys": (run().sent(calls(SORTED)), FIRST),
    "sorted keys, closely written": (run().sent(calls(rewritten(sort_keys=True, separators=(",", ":")))), FIRST),
    "keys turned around at every depth": (run().sent(calls(rewritten(turned))), FIRST),
    "keys of the inner object only": (
        run().sent(calls(rewritten(lambda v: {**v, "limits": turned(v["limits"])}))),
        FIRST,
    ),
    "whole numbers as fractions": (
        run(json.dumps({"a": 1, "b": [2, 30], "c": "x" * 80})).sent(calls(lambda t: t.replace("1,", "1.0,", 1))),
        FIRST,
    ),
    "forty steps in": (run(steps=42).sent(calls(SORTED, 40, only=61)), "messages[62].tool_calls[0].function.arguments"),
    "without sessions": (run().sent(calls(SORTED), session=None), FIRST),
    "every request in its own order": (
        run(steps=4).sent(lambda m, t: calls(rewritten(turned), 1)(m, t) if t % 2 else m),
        FIRST,
    ),
    "results, closely written": (run(output=OUTPUT).sent(results(rewritten(separators=(",", ":")))), RESULT),
    "results, indented": (run(output=OUTPUT).sent(results(rewritten(indent=2))), RESULT),
    "results, sorted": (run(output=OUTPUT).sent(results(SORTED)), RESULT),
    "results, escapes": (
        run(output=json.dumps(ARGUMENTS)).sent(results(rewritten(ensure_ascii=False))),
        RESULT,
    ),
    "results that are lists": (
        run(output=json.dumps(list(range(30)))).sent(results(rewritten(separators=(",", ":")))),
        RESULT,
    ),
    "results, numbers": (run(output=OUTPUT).sent(results(lambda t: t.replace("2.0", "2"))), RESULT),
    "both": (run(output=OUTPUT).sent(lambda m, t: results(SORTED)(calls(SORTED)(m, t), t)), FIRST),
}


@pytest.mark.parametrize("template", [None, PLAIN], ids=["built-in", "template"])
@pytest.mark.parametrize("name", FAULTS)
def test_another_notation_is_told(name: str, template: str | None) -> None:
    lines, path = FAULTS[name]
    (finding,) = loud(lint(lines, chat_template=template))
    assert (finding.code, finding.path) == ("PKV303", path)
    assert finding.tokens_lost > 0


SILENT: dict[str, list[Line]] = {
    "nothing changed": run().sent(),
    "spaces that the template does not print": run().sent(calls(rewritten(separators=(",", ":")))),
    "escapes that the template does not print": run().sent(calls(rewritten(ensure_ascii=False))),
    "indentation that the template does not print": run().sent(calls(rewritten(indent=4))),
    "spaces in every request another way": run().sent(
        lambda m, t: calls(rewritten(separators=(" " * t + ",", ":")), 0)(m, t)
    ),
    "other keys in a newer call": Run(
        [*run(steps=1).messages, *run(json.dumps(turned(ARGUMENTS)), steps=1).messages[1:]], [1, 3, 5]
    ).sent(),
    "an empty object for nothing": run("").sent(calls(lambda text: "{}")),
    "two sessions that call in other orders": [
        *run().sent(session="a"),
        *run(json.dumps(turned(ARGUMENTS))).sent(session="b"),
    ],
    "another result for the same call": [
        *run(steps=1).sent(),
        *Run([*run(steps=1).messages[:2], {**run(steps=1).messages[2], "content": OUTPUT}], [3]).sent(),
    ],
    "the last message alone, sorted": run(output=OUTPUT).sent(
        lambda m, t: [*m[:-1], {**m[-1], "content": SORTED(m[-1]["content"])}] if t == 3 else m
    ),
}


@pytest.mark.parametrize("name", SILENT)
def test_what_is_printed_the_same_is_left_alone(name: str) -> None:
    assert codes(lint(SILENT[name])) == []


@pytest.mark.parametrize(
    "change",
    [
        calls(lambda text: text.replace("accounts", "transfers")),
        calls(lambda text: text.replace("true", "false")),
        calls(lambda text: text.replace('"i", "m"', '"m", "i"')),
        results(lambda text: text.replace('"total": 4', '"total": 5')),
        results(lambda text: text.replace("[", "[[").replace("]", "]]")),
    ],
)
def test_another_value_is_a_rewritten_history(change: Change) -> None:
    assert codes(lint(run(output=OUTPUT).sent(change))) == ["PKV301"]


def test_all_calls_of_a_request_are_one_finding() -> None:
    (finding,) = loud(lint(agent(1, 12).sent(calls(rewritten(turned), 12))))
    assert finding.message == (
        "is equal as JSON, but written another way than in the 12th request (read_file), as 10 more in this request"
    )
