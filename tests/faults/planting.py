"""Faults planted into clean sessions, each with the code and path that must be blamed and the bodies that undo it."""

from __future__ import annotations

import copy
import json
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from .sessions import paragraph, sentence, tool

Body = dict[str, Any]


@dataclass(frozen=True)
class Planted:
    """`bodies` are what is sent. `undone[i]` is request i with the fault as request i-1 had it (None: nothing to undo).
    `codes` and `path` are what a finding must say, `path` as a prefix."""

    kind: str
    bodies: list[Body]
    undone: list[Body | None]
    codes: tuple[str, ...]
    path: str


Plant = Callable[[random.Random, list[Body]], Planted]


def with_line(body: Body, place: int, text: str) -> Body:
    """The body with a line of its system text put in at a place (counted in lines)."""
    changed = copy.deepcopy(body)
    lines = changed["messages"][0]["content"].split("\n")
    lines.insert(place, text)
    changed["messages"][0]["content"] = "\n".join(lines)
    return changed


def every_request(kind: str, code: str, values: Callable[[random.Random, int], str]) -> Plant:
    """A line of the system text that differs in each request."""

    def plant(rng: random.Random, bodies: list[Body]) -> Planted:
        place = rng.randrange(bodies[0]["messages"][0]["content"].count("\n"))
        texts = [values(rng, index) for index in range(len(bodies))]
        sent = [with_line(body, place, text) for body, text in zip(bodies, texts, strict=True)]
        undone = [None, *(with_line(body, place, text) for body, text in zip(bodies[1:], texts, strict=False))]
        return Planted(kind, sent, undone, (code,), "messages[0].content")

    return plant


START = datetime(2026, 5, 11, 9, 14, 7)
CLOCKS = (
    lambda now: f"Current time: {now:%Y-%m-%d %H:%M:%S}",
    lambda now: f"It is {now:%A, %B %d, %Y %I:%M:%S %p}.",
    lambda now: f"now={int(now.timestamp())}",
    lambda now: f"Zeitstempel: {now:%d.%m.%Y %H:%M:%S} Uhr",
    lambda now: f"<env>{now.isoformat()}Z</env>",
)
IDENTIFIERS = (
    lambda rng: f"Request id: {uuid.UUID(int=rng.getrandbits(128), version=4)}",
    lambda rng: f"trace_id={rng.getrandbits(128):032x}",
    lambda rng: f"session: sess_{rng.getrandbits(60):015x}",
)


def clock(rng: random.Random, bodies: list[Body]) -> Planted:
    form = rng.choice(CLOCKS)
    step = rng.randint(31, 400)
    return every_request("clock", "PKV101", lambda _, i: form(START + timedelta(seconds=i * step)))(rng, bodies)


def identifier(rng: random.Random, bodies: list[Body]) -> Planted:
    form = rng.choice(IDENTIFIERS)
    return every_request("identifier", "PKV102", lambda r, _: form(r))(rng, bodies)


def counter(rng: random.Random, bodies: list[Body]) -> Planted:
    start = rng.randint(2, 90)
    form = rng.choice(["Steps left: {}", "build state {} of the tree", "open files: {}"])
    return every_request("counter", "PKV103", lambda _, i: form.format(start + 7 * i))(rng, bodies)


def notes(rng: random.Random, bodies: list[Body]) -> Planted:
    return every_request(
        "notes", "PKV105", lambda r, _: "\n".join(f"- {sentence(r, 8, 14)}" for _ in range(r.randint(3, 5)))
    )(rng, bodies)


def shuffled(rng: random.Random, bodies: list[Body]) -> Planted:
    orders = [list(range(len(bodies[0]["tools"])))]
    while len(orders) < len(bodies):
        order = rng.sample(orders[0], len(orders[0]))
        if order != orders[-1]:
            orders.append(order)

    def ordered(body: Body, order: list[int]) -> Body:
        return {**body, "tools": [body["tools"][i] for i in order]}

    sent = [ordered(body, order) for body, order in zip(bodies, orders, strict=True)]
    undone = [None, *(ordered(body, order) for body, order in zip(bodies[1:], orders, strict=False))]
    return Planted("shuffled", sent, undone, ("PKV201",), "tools")


def once(kind: str, code: str, edit: Callable[[random.Random, Body, int], tuple[Body, str] | None]) -> Plant:
    """From one request on, something of the prompt is different; `edit` returns the body and the path to blame."""

    def plant(rng: random.Random, bodies: list[Body]) -> Planted:
        first = rng.randrange(1, len(bodies))
        seed = rng.random()
        sent, undone, path = list(bodies), [None] * len(bodies), ""
        for index in range(first, len(bodies)):
            changed = edit(random.Random(seed), copy.deepcopy(bodies[index]), len(bodies[first - 1]["messages"]))
            if changed is None:
                raise LookupError(kind)
            sent[index], path = changed
        undone[first] = bodies[first]
        return Planted(kind, sent, undone, (code,), path)

    return plant


def added_tool(rng: random.Random, body: Body, _: int) -> tuple[Body, str]:
    body["tools"].insert(rng.randint(0, len(body["tools"])), tool(rng, "extra_helper"))
    return body, "tools"


def removed_tool(rng: random.Random, body: Body, _: int) -> tuple[Body, str]:
    del body["tools"][rng.randrange(len(body["tools"]))]
    return body, "tools"


def described(rng: random.Random, body: Body, _: int) -> tuple[Body, str]:
    index = rng.randrange(len(body["tools"]))
    body["tools"][index]["function"]["description"] = paragraph(rng, 2)
    return body, f"tools[{index}]"


def reordered_keys(rng: random.Random, body: Body, _: int) -> tuple[Body, str]:
    index = rng.randrange(len(body["tools"]))
    parameters = body["tools"][index]["function"]["parameters"]
    parameters["properties"] = dict(reversed(parameters["properties"].items()))
    return body, f"tools[{index}]"


def edited_history(rng: random.Random, body: Body, known: int) -> tuple[Body, str]:
    index = rng.randrange(1, known)
    message = body["messages"][index]
    words = message["content"].split(" ")
    words[rng.randrange(len(words))] = "replaced"
    message["content"] = " ".join(words)
    return body, f"messages[{index}]"


def dropped_message(rng: random.Random, body: Body, known: int) -> tuple[Body, str] | None:
    plain = [
        i
        for i in range(3, known - 1)
        if not body["messages"][i].get("tool_calls") and body["messages"][i]["role"] != "tool"
    ]
    if not plain:
        return None
    index = rng.choice(plain)
    del body["messages"][index]
    return body, "messages"


def reserialised(rng: random.Random, body: Body, known: int) -> tuple[Body, str] | None:
    calls = [i for i in range(known) if body["messages"][i].get("tool_calls")]
    if not calls:
        return None
    index = rng.choice(calls)
    function = body["messages"][index]["tool_calls"][0]["function"]
    function["arguments"] = json.dumps(dict(reversed(json.loads(function["arguments"]).items())))
    return body, f"messages[{index}].tool_calls[0].function.arguments"


def window(rng: random.Random, bodies: list[Body]) -> Planted:
    """From one request on, each drops the oldest turn of the history. (One that drops it once only is a note.)"""
    first = rng.randrange(1, len(bodies) - 1)
    sent, undone = list(bodies), [None] * len(bodies)

    def cut(body: Body, count: int) -> Body:
        messages = body["messages"]
        return {**body, "messages": [messages[0], *messages[1 + count :]]}

    for index in range(first, len(bodies)):
        count = 2 * (index - first + 1)
        if len(bodies[index - 1]["messages"]) - 1 - count < 3:
            raise LookupError("window")
        sent[index] = cut(bodies[index], count)
        undone[index] = cut(bodies[index], count - 2)
    return Planted("window", sent, undone, ("PKV302",), "messages")


PLANTS: dict[str, Plant] = {
    "clock": clock,
    "identifier": identifier,
    "counter": counter,
    "notes": notes,
    "shuffled": shuffled,
    "added tool": once("added tool", "PKV203", added_tool),
    "removed tool": once("removed tool", "PKV203", removed_tool),
    "description": once("description", "PKV204", described),
    "schema keys": once("schema keys", "PKV205", reordered_keys),
    "edited history": once("edited history", "PKV301", edited_history),
    "dropped message": once("dropped message", "PKV301", dropped_message),
    "arguments": once("arguments", "PKV303", reserialised),
    "window": window,
}
