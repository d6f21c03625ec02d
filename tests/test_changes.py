"""What differs between two requests, and how to undo it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from pkv_lint.changes import Change, equalised
from pkv_lint.comparison import compare, compare_heads, merged
from pkv_lint.histories import Alignment, Gists, History

SYSTEM = {"role": "system", "content": "You are Tern. " + "Answer in short sentences. " * 4}
GULL = {**SYSTEM, "content": str(SYSTEM["content"]).replace("Tern", "Gull")}
LONG = "the valve turns slowly while the old oil rests under a green lid "
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9000}}


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def reply(text: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def call(id_: str = "c1", arguments: str = '{"path": "a.py", "limit": 3}', name: str = "read") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(text: str, id_: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": text}


def chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [SYSTEM, *messages], **fields}


BEFORE = chat(
    user("one " + LONG),
    reply("two " + LONG, tool_calls=[call()]),
    result('{"a": 1}'),
    reply("three " + LONG),
    user("four"),
)
MORE = [reply("five " + LONG), user("six " + LONG)]


def after(*replaced: tuple[int, Any], remove: tuple[int, ...] = (), put: tuple[int, Any] | None = None) -> Any:
    """BEFORE gone on with, some of its messages replaced, removed or put in."""
    messages = [*BEFORE["messages"], *MORE]
    for at, message in replaced:
        messages[at] = message
    if put is not None:
        messages.insert(*put)
    return {"messages": [message for at, message in enumerate(messages) if at not in remove]}


KINDS: list[tuple[str, Any, list[tuple[str, str]]]] = [
    ("nothing", after(), []),
    ("a word", after((4, reply("three " + LONG.replace("old", "new")))), [("history_edited", "messages[4].content")]),
    ("a removed message", after(remove=(4,)), [("history_removed", "messages[4]")]),
    ("a message put in", after(put=(3, user("extra"))), [("history_inserted", "messages[3]")]),
    ("the oldest messages", after(remove=(1, 2, 3)), [("history_window", "messages[1]")]),
    ("a turn behind the first", after(remove=(2, 3)), [("history_pruned", "messages[2]")]),
    (
        "a summary",
        {"messages": [SYSTEM, user("In short: nothing."), *BEFORE["messages"][4:], *MORE]},
        [("history_compacted", "messages[1]")],
    ),
    (
        "arguments",
        after((2, reply("two " + LONG, tool_calls=[call(arguments='{"limit":3,"path":"a.py"}')]))),
        [("arguments", "messages[2].tool_calls[0].function.arguments")],
    ),
    ("a result", after((3, result('{"a":1}'))), [("arguments", "messages[3].content")]),
    (
        "ids",
        after((2, reply("two " + LONG, tool_calls=[call("d")])), (3, result('{"a": 1}', "d"))),
        [("call_ids", "messages[2].tool_calls[0].id"), ("call_ids", "messages[3].tool_call_id")],
    ),
    (
        "another tool",
        after((2, reply("two " + LONG, tool_calls=[call(name="write")]))),
        [("history_edited", "messages[2].tool_calls[0].function.name")],
    ),
    ("no call", after((2, reply("two " + LONG))), [("history_edited", "messages[2].tool_calls")]),
    ("the role", after((4, {**BEFORE["messages"][4], "role": "user"})), [("history_edited", "messages[4]")]),
    ("a name", after((1, {**BEFORE["messages"][1], "name": "Ann"})), [("history_edited", "messages[1].name")]),
    (
        "content as parts",
        after((1, user([{"type": "text", "text": "one " + LONG}]))),
        [("history_edited", "messages[1].content")],
    ),
    ("the system prompt", after((0, GULL)), [("text", "messages[0].content")]),
    ("the role of the system prompt", after((0, {**SYSTEM, "role": "developer"})), [("text", "messages[0].role")]),
    (
        "an argument of the template",
        {**after(), "chat_template_kwargs": {"thinking": True}},
        [("argument", "chat_template_kwargs.thinking")],
    ),
]


@pytest.mark.parametrize(("name", "later", "expected"), KINDS, ids=[name for name, _, _ in KINDS])
def test_kinds_and_places(name: str, later: Any, expected: list[tuple[str, str]]) -> None:
    assert [(change.kind, change.path) for change in compare(BEFORE, later)] == expected


@pytest.mark.parametrize(("name", "later", "expected"), KINDS, ids=[name for name, _, _ in KINDS])
def test_what_is_undone_is_the_earlier_request_gone_on_with(name: str, later: Any, expected: Any) -> None:
    undone = equalised(later, compare(BEFORE, later))
    length = len(BEFORE["messages"])
    assert undone["messages"][:length] == BEFORE["messages"]
    assert undone["messages"][length:] == MORE
    assert not undone.get("chat_template_kwargs")


@pytest.mark.parametrize(
    ("was", "now", "before", "after_"),
    [
        (LONG + "<note>be brief</note>", LONG, "<note>be brief</note>", ""),
        ([{"type": "text", "text": LONG}, {"type": "text", "text": "be brief"}], LONG, "be brief", ""),
        ([{"type": "text", "text": LONG}, IMAGE], LONG, "<image_url>", ""),
        ([IMAGE, {"type": "text", "text": LONG}], [{"type": "text", "text": LONG}], "<image_url>", ""),
    ],
)
def test_a_reminder_is_what_was_taken_out_of_the_newest_message(was: Any, now: Any, before: str, after_: str) -> None:
    (change,) = compare(chat(user(was)), chat(user(now), reply("ok"), user("next")))
    assert (change.kind, change.before.strip(), change.after) == ("reminder", before, after_)
    assert (change.path or "").startswith("messages[1].content")


def test_reasoning_in_a_field_or_in_the_text() -> None:
    inline = reply("<think>\nhmm\n</think>\n\nyes " + LONG)
    field = reply("yes " + LONG, reasoning_content="hmm")
    plain = reply("yes " + LONG)
    for was in (inline, field):
        (change,) = compare(chat(user("q"), was, user("r")), chat(user("q"), plain, user("r"), reply("s"), user("t")))
        assert (change.kind, change.path) == ("reasoning", "messages[2]")
        assert "hmm" in change.before
    (change,) = compare(chat(user("q"), plain, user("r")), chat(user("q"), field, user("r"), reply("s"), user("t")))
    assert change.kind == "history_edited"


def test_heads_are_one_change() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    later = {"messages": [{**SYSTEM, "content": "You write titles."}, *BEFORE["messages"][1:], user("title?")]}
    (change,) = compare_heads({**BEFORE, "tools": tools}, later)
    assert (change.kind, change.path, change.after) == ("head", "messages[0].content", "You write titles.")
    assert equalised(later, [change]) == {**BEFORE, "messages": [*BEFORE["messages"], user("title?")], "tools": tools}
    (change,) = compare_heads({**BEFORE, "tools": tools}, {"messages": [*BEFORE["messages"], user("title?")]})
    assert change.path == "tools"
    assert compare_heads(BEFORE, BEFORE) == []


def test_merged_changes_are_undone_together() -> None:
    later = after((1, user("ONE " + LONG)), (4, reply("THREE " + LONG)))
    changes = compare(BEFORE, later)
    assert len(changes) == 2
    both = merged(changes)
    assert (both.path, both.places) == ("messages[1].content", 2)
    assert equalised(later, [both])["messages"][:6] == BEFORE["messages"]


def test_undoing_any_mix_of_edits_gives_the_earlier_messages_back() -> None:
    """Every message said something of its own, so nothing is ambiguous."""
    for seed in range(200):
        rng = random.Random(seed)
        history = [
            (user if at % 2 == 0 else reply)(f"{at} {LONG} {rng.random()}") for at in range(rng.randrange(3, 12) | 1)
        ]
        before = chat(*history)
        spoilt = []
        for at, message in enumerate(history):
            chance = rng.random()
            if chance < 0.1 and at < len(history) - 1:
                continue
            if chance < 0.3:
                message = {**message, "content": message["content"] + f" edited {rng.random()}"}
            spoilt.append(message)
            if chance > 0.9 and at < len(history) - 1:
                spoilt.append({"role": "system", "content": f"note {rng.random()}"})
        later = chat(*spoilt, reply("new reply"), user("new question"))
        gists = Gists()
        alignment = Alignment(History.of(history, gists), History.of(later["messages"][1:], gists))
        if alignment.goes_on:
            undone = equalised(later, compare(before, later))["messages"]
            assert undone[: len(before["messages"])] == before["messages"], seed


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"messages": None},
        {"messages": [None, 3, "x"]},
        {"messages": [{"role": None}, {"content": 5}]},
        {"messages": [SYSTEM, {"role": "assistant", "tool_calls": [None, {"function": 3}, {}]}], "tools": [None, {}]},
        {"messages": [SYSTEM, user([None, "x", {"type": "text"}])], "chat_template_kwargs": 3, "tools": {}},
    ],
)
def test_bodies_of_any_shape_are_compared(odd: Any) -> None:
    for one, other in ((odd, BEFORE), (BEFORE, odd), (odd, json.loads(json.dumps(odd)))):
        assert all(isinstance(change, Change) for change in (*compare(one, other), *compare_heads(one, other)))
