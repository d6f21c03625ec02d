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
PRINTS_IDS = """
{%- for message in messages -%}
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ (message.tool_call_id if message.tool_call_id) ~ message.content -}}
    {%- for call in message.tool_calls or [] %}{{ '\\n' ~ call.id ~ ' ' ~ call.function | tojson }}{% endfor -%}
    {{- '<|im_end|>\\n' -}}
    {%- if loop.first and tools %}{{ tools | tojson ~ '\\n' }}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""
"""A template that prints the ids of calls."""


@dataclass(frozen=True)
class Planted:
    """`bodies` are what is sent. `undone[i]` is request i with the fault as request i-1 had it (None: nothing to undo).
    `codes` and `path` are what a finding must say, `path` as a prefix; `template` is one that shows the fault (None:
    the built-in layout does)."""

    kind: str
    bodies: list[Body]
    undone: list[Body | None]
    codes: tuple[str, ...]
    path: str
    template: str | None = None


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


def edited_result(rng: random.Random, body: Body, known: int) -> tuple[Body, str] | None:
    """The result of a call is cut short or replaced once it is old."""
    results = [i for i in range(known) if body["messages"][i]["role"] == "tool"]
    if not results:
        return None
    index = rng.choice(results)
    text = body["messages"][index]["content"]
    cut = f"{text[: len(text) // 3]} [cut]"
    body["messages"][index]["content"] = rng.choice([cut, "[result removed]", "[" + sentence(rng) + "]"])
    return body, f"messages[{index}]"


def removed_part(rng: random.Random, body: Body, known: int) -> tuple[Body, str] | None:
    """A part of a message is left out later."""
    lists = [i for i in range(known) if isinstance(body["messages"][i]["content"], list)]
    if not lists:
        return None
    index = rng.choice(lists)
    parts = body["messages"][index]["content"]
    del parts[rng.randrange(len(parts))]
    return body, f"messages[{index}].content"


def in_parts(rng: random.Random, bodies: list[Body]) -> list[Body]:
    """The same requests, some of whose questions are lists of two or three parts."""
    chosen = {i for i, message in enumerate(bodies[-1]["messages"]) if message["role"] == "user" and rng.random() < 0.7}
    extra = {i: [paragraph(rng, 2) for _ in range(rng.randint(1, 2))] for i in chosen}

    def split(message: Body, index: int) -> Body:
        if index not in chosen:
            return message
        return {**message, "content": [{"type": "text", "text": t} for t in (message["content"], *extra[index])]}

    return [{**body, "messages": [split(m, i) for i, m in enumerate(body["messages"])]} for body in bodies]


def resampled_result(rng: random.Random, body: Body, known: int) -> tuple[Body, str] | None:
    """A result that is JSON is written another way."""
    results = [i for i in range(known) if body["messages"][i]["role"] == "tool"]
    if not results:
        return None
    index = rng.choice(results)
    value = json.loads(body["messages"][index]["content"])
    style: dict[str, Any] = rng.choice([{"indent": 1}, {"separators": (",", ":")}, {"sort_keys": True, "indent": 2}])
    body["messages"][index]["content"] = json.dumps(value, **style)
    return body, f"messages[{index}].content"


def with_json_results(bodies: list[Body]) -> list[Body]:
    def written(message: Body) -> Body:
        if message["role"] != "tool":
            return message
        words = message["content"].split()
        value = {"lines": words, "count": len(words), "last": {"word": words[-1], "ok": True}}
        return {**message, "content": json.dumps(value)}

    return [{**body, "messages": [written(message) for message in body["messages"]]} for body in bodies]


def shaped(plant: Plant, shape: Callable[[random.Random, list[Body]], list[Body]]) -> Plant:
    """A fault planted into sessions that are given another shape first."""
    return lambda rng, bodies: plant(rng, shape(rng, bodies))


def reminder(rng: random.Random, bodies: list[Body]) -> Planted:
    """Text behind the newest message that is gone in the next request."""
    texts = [f"\n<reminder>{paragraph(rng, rng.randint(1, 2))}</reminder>"] * len(bodies)
    if rng.random() < 0.5:
        texts = [f"\n<reminder>{paragraph(rng, 1)}</reminder>" for _ in bodies]

    def reminded(body: Body, text: str, at: int) -> Body:
        messages = list(body["messages"])
        messages[at] = {**messages[at], "content": messages[at]["content"] + text}
        return {**body, "messages": messages}

    sent = [reminded(body, text, -1) for body, text in zip(bodies, texts, strict=True)]
    undone: list[Body | None] = [None]
    for index in range(1, len(bodies)):
        undone.append(reminded(sent[index], texts[index - 1], len(bodies[index - 1]["messages"]) - 1))
    return Planted("reminder", sent, undone, ("PKV301",), "messages")


def reminder_message(rng: random.Random, bodies: list[Body]) -> Planted:
    """A message behind the newest one that is gone in the next request."""
    role = rng.choice(["user", "system"])
    same = {"role": role, "content": paragraph(rng, rng.randint(1, 2))}
    last = [same if rng.random() < 0.7 else {**same, "content": paragraph(rng, 1)} for _ in bodies]
    sent = [{**body, "messages": [*body["messages"], message]} for body, message in zip(bodies, last, strict=True)]
    undone: list[Body | None] = [None]
    for index in range(1, len(bodies)):
        place = len(bodies[index - 1]["messages"])
        messages = sent[index]["messages"]
        undone.append({**sent[index], "messages": [*messages[:place], last[index - 1], *messages[place:]]})
    return Planted("reminder message", sent, undone, ("PKV301",), "messages")


def new_ids(rng: random.Random, bodies: list[Body]) -> Planted:
    """Every request makes up the ids of its calls, and the template prints them."""
    if not any(message.get("tool_calls") for message in bodies[-2]["messages"]):
        raise LookupError("new ids")
    drawn = [f"{rng.getrandbits(40):010x}" for _ in bodies]

    def renamed(body: Body, known: int, old: str, new: str) -> Body:
        """Ids of the first messages carry the mark `old`, those of newer ones `new`."""
        messages = copy.deepcopy(body["messages"])
        for index, message in enumerate(messages):
            mark = old if index < known else new
            for made in message.get("tool_calls", ()):
                made["id"] = mark + made["id"][4:]
            if "tool_call_id" in message:
                message["tool_call_id"] = mark + message["tool_call_id"][4:]
        return {**body, "messages": messages}

    sent = [renamed(body, 0, "", mark) for body, mark in zip(bodies, drawn, strict=True)]
    undone: list[Body | None] = [None]
    for index in range(1, len(bodies)):
        known = len(bodies[index - 1]["messages"])
        undone.append(renamed(bodies[index], known, drawn[index - 1], drawn[index]))
    return Planted("new ids", sent, undone, ("PKV304",), "messages", PRINTS_IDS)


def side_request(rng: random.Random, bodies: list[Body]) -> Planted:
    """A request for a summary, with a head of its own, between two turns."""
    at = rng.randrange(1, len(bodies))
    base = bodies[at - 1]
    ask = {"role": "user", "content": sentence(rng)}
    system = {"role": "system", "content": "You sum up conversations. " + paragraph(rng, 3)}
    side = {"model": "m", "messages": [system, *base["messages"][1:], ask]}
    if rng.random() < 0.3:
        side["tools"] = base["tools"][:1]
    sent = [*bodies[:at], side, *bodies[at:]]
    undone: list[Body | None] = [None] * len(sent)
    undone[at] = {**base, "messages": [*base["messages"], ask]}
    return Planted("side request", sent, undone, ("PKV305",), "messages[0]")


def window(rng: random.Random, bodies: list[Body]) -> Planted:
    """From one request on, each drops the oldest turn of the history, some behind messages that stay."""
    first = rng.randrange(1, len(bodies) - 1)
    pinned = rng.choice([0, 0, 1, 2])
    sent, undone = list(bodies), [None] * len(bodies)

    def cut(body: Body, count: int) -> Body:
        messages = body["messages"]
        return {**body, "messages": [*messages[: 1 + pinned], *messages[1 + pinned + count :]]}

    for index in range(first, len(bodies)):
        count = 2 * (index - first + 1)
        if len(bodies[index - 1]["messages"]) - 1 - pinned - count < 3:
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
    "reminder": reminder,
    "reminder message": reminder_message,
    "edited result": once("edited result", "PKV301", edited_result),
    "removed part": shaped(once("removed part", "PKV301", removed_part), in_parts),
    "result in JSON": shaped(
        once("result in JSON", "PKV303", resampled_result), lambda _, bodies: with_json_results(bodies)
    ),
    "new ids": new_ids,
    "side request": side_request,
}
