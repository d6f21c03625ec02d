"""PKV201 to PKV205: tools that change in front of the history."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

from .conversations import Line, alone, codes, conversation, history, lint, loud, prompt, tool, value_at

Tools = list[dict[str, Any]]


def kit() -> Tools:
    """Five tools, sorted by name."""
    return [
        tool("book", "Books a table for some guests.", guests={"type": "integer"}, day={"type": "string"}),
        tool("cancel", "Cancels what was booked."),
        tool("find", "Finds a place by its name.", name={"type": "string", "enum": ["inn", "bar", "pub"]}),
        tool("open", "Says when a place is open.", place={"type": "object", "properties": {"id": {"type": "integer"}}}),
        tool("pay", "Pays a bill in full.", amount={"type": "number", "minimum": 0}),
    ]


def talk(tools: Callable[[int], Tools | None] | Tools, turns: Any = 4, **fields: Any) -> list[Line]:
    return conversation(prompt(), turns=turns, tools=tools, **fields)


def edited(change: Callable[[Tools, int], Any], first: int = 1) -> Callable[[int], Tools]:
    """The tools of each turn, changed from turn `first` on."""

    def tools(turn: int) -> Tools:
        given = copy.deepcopy(kit())
        if turn >= first:
            changed = change(given, turn)
            given = changed if isinstance(changed, list) else given
        return given

    return tools


def parameters(tools: Tools, index: int) -> dict[str, Any]:
    found: dict[str, Any] = tools[index]["function"]["parameters"]
    return found


def shuffled(seed: int) -> Tools:
    tools = kit()
    while [t["function"]["name"] for t in tools] == sorted(t["function"]["name"] for t in tools):
        random.Random(seed).shuffle(tools)
        seed += 1000
    return tools


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: reversed_keys(item) for name, item in reversed(value.items())}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


def replaced(tools: Tools, index: int, **values: Any) -> None:
    tools[index]["function"].update(values)


def sessions(tools: Callable[[int], Tools], count: int = 4) -> list[Line]:
    return [
        line
        for n in range(count)
        for line in conversation(prompt(), turns=2, session=f"s{n}", topic=f"{n} ", tools=tools(n))
    ]


REORDERED: dict[str, list[Line]] = {
    "shuffled every time": talk(lambda n: shuffled(n) if n else kit()),
    "two swapped": talk(edited(lambda tools, _: tools.insert(0, tools.pop(3)))),
    "reversed every other time": talk(lambda n: kit()[:: -1 if n % 2 else 1]),
    "last two swapped": talk(edited(lambda tools, _: tools.insert(3, tools.pop()))),
    "rotated": talk(lambda n: kit()[n % 5 :] + kit()[: n % 5]),
    "many tools": talk(lambda n: [tool(f"t{(k * (7 if n else 1)) % 31:02}") for k in range(31)]),
    "in the fortieth turn": talk(edited(lambda tools, _: tools.insert(0, tools.pop()), first=40), turns=range(37, 43)),
    "no session ids": talk(lambda n: shuffled(n) if n else kit(), session=None),
    "between sessions": sessions(lambda n: shuffled(n) if n else kit()),
    "behind a long system prompt": conversation(prompt(prompt()), tools=lambda n: shuffled(n) if n else kit()),
}


@pytest.mark.parametrize("name", REORDERED)
def test_names_tools_in_another_order(name: str) -> None:
    (finding,) = loud(lint(REORDERED[name]))
    assert (finding.code, finding.severity, finding.path, finding.span) == ("PKV201", "error", "tools", None)
    assert "same set" in finding.message


UNPRINTED = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>"
STEADY: dict[str, list[Line]] = {
    "constant": talk(kit()),
    "constant and not sorted": talk(shuffled(3)),
    "without tools": conversation(prompt()),
    "one tool": talk([tool("look_up")]),
    "other choice": talk(kit(), tool_choice=lambda n: ["auto", "none", "required", "auto"][n]),
    "parallel calls on and off": talk(kit(), parallel_tool_calls=lambda n: n % 2 == 0),
    "one session reads them in its own order": [
        *talk(kit(), session="a"),
        *conversation("Translate it.\nNothing else.", tools=shuffled(2), session="b", topic="B "),
    ],
    "keys of the body around them": [
        {"session_id": "s", "request": dict(reversed(line["request"].items())) if n % 2 else line["request"]}
        for n, line in enumerate(talk(kit()))
    ],
    "outer keys that the server puts in order": talk(
        lambda n: [dict(reversed(each.items())) for each in kit()] if n % 2 else kit()
    ),
    "sent as null and left out": talk(lambda n: None),
}


@pytest.mark.parametrize("name", STEADY)
def test_stays_silent_on_steady_tools(name: str) -> None:
    findings = lint(STEADY[name])
    assert not loud(findings), [(finding.code, finding.message) for finding in findings]


CHANGES: dict[str, Callable[[int], Tools | None]] = {
    "reordered": lambda n: shuffled(n) if n else kit(),
    "added": lambda n: kit()[: 3 + n % 3],
    "described": edited(lambda tools, n: replaced(tools, 1, description=f"Number {n}.")),
    "keys": edited(lambda tools, _: parameters(tools, 1).update(required=["limit", "path"])),
}


@pytest.mark.parametrize("name", CHANGES)
def test_stays_silent_where_the_template_prints_no_tools(name: str) -> None:
    assert not loud(f for f in lint(talk(CHANGES[name]), chat_template=UNPRINTED) if f.code.startswith("PKV2"))


# --- PKV202

UNSORTED: dict[str, Tools] = {
    "two": [tool("read"), tool("grep")],
    "reversed": kit()[::-1],
    "last in front": [kit()[-1], *kit()[:-1]],
    "many": [tool(f"t{(k * 7) % 31:02}") for k in range(31)],
    "dots": [tool("files.write"), tool("files.read")],
    "dashes": [tool("web-search"), tool("web-open")],
    "servers": [tool("mcp__b__list"), tool("mcp__a__list")],
    "sorted by what they do": [tool("list_orders"), tool("get_order"), tool("cancel_order")],
    "one out of place": [tool("a"), tool("c"), tool("b"), tool("d")],
    "capitals last": [tool("grep"), tool("Read")],
}


@pytest.mark.parametrize("name", UNSORTED)
def test_advises_on_unsorted_tools_of_one_request(name: str) -> None:
    body = {"messages": [{"role": "system", "content": prompt()}, *history(1)], "tools": UNSORTED[name]}
    findings = lint(alone(body))
    (finding,) = [finding for finding in findings if finding.code == "PKV202"]
    assert (finding.severity, finding.path) == ("info", "tools") and not loud(findings)


SORTED: dict[str, list[Line]] = {
    "sorted": alone({"messages": history(1), "tools": kit()}),
    "one": alone({"messages": history(1), "tools": [tool("look_up")]}),
    "none": alone({"messages": history(1)}),
    "null": alone({"messages": history(1), "tools": None}),
    "same name twice": alone({"messages": history(1), "tools": [tool("a"), tool("a", "Another.")]}),
    "digits": alone({"messages": history(1), "tools": [tool("step1"), tool("step10"), tool("step2")]}),
    "capitals first": alone({"messages": history(1), "tools": [tool("Edit"), tool("Read"), tool("bash")]}),
    "unsorted and constant": talk(shuffled(1)),
    "unsorted and reordered": talk(lambda n: shuffled(n + 1)),
    "unsorted in two sessions": sessions(lambda n: shuffled(1)),
    "two bodies of other agents": [
        *alone({"messages": history(1), "tools": shuffled(1)}),
        *alone({"messages": [{"role": "system", "content": prompt()}, *history(1)], "tools": [tool("b"), tool("a")]}),
    ],
}


@pytest.mark.parametrize("name", SORTED)
def test_gives_no_advice_on_sorted_or_steady_tools(name: str) -> None:
    assert "PKV202" not in [finding.code for finding in lint(SORTED[name])]


def test_gives_no_advice_where_the_template_prints_no_tools() -> None:
    lines = alone({"messages": history(1), "tools": shuffled(1)})
    assert "PKV202" not in [finding.code for finding in lint(lines, chat_template=UNPRINTED)]


# --- PKV203

SETS: dict[str, tuple[Callable[[int], Tools | None], str]] = {
    "one added at the end": (edited(lambda tools, _: tools.append(tool("zoom")), 2), "added zoom"),
    "one added in front": (edited(lambda tools, _: tools.insert(0, tool("add")), 2), "added add"),
    "one added in the middle": (edited(lambda tools, _: tools.insert(2, tool("dig")), 2), "added dig"),
    "one removed": (
        edited(lambda tools, _: tools.pop(1), 2) if False else edited(lambda t, _: t[:1] + t[2:], 2),
        "removed cancel",
    ),
    "all removed": (lambda n: kit() if n < 2 else None, "removed book, cancel, find, open, pay"),
    "all added": (lambda n: None if n < 2 else kit(), "added book, cancel, find, open, pay"),
    "one for another": (edited(lambda tools, _: [*tools[:-1], tool("tip")], 2), "added tip, removed pay"),
    "another set and order": (edited(lambda tools, _: [tool("tip"), *tools[:0:-1]], 2), "added tip, removed book"),
    "renamed": (edited(lambda tools, _: replaced(tools, 0, name="reserve"), 2), "added reserve, removed book"),
    "a second one of the same name": (edited(lambda tools, _: tools.append(tool("pay", "Tips.")), 2), "repeated names"),
    "every turn one more": (lambda n: kit()[: 2 + n], "first added find"),
    "in the fortieth turn": (lambda n: kit()[: 4 if n < 40 else 5], "added pay"),
}


@pytest.mark.parametrize("name", SETS)
def test_names_tools_that_came_and_went(name: str) -> None:
    tools, said = SETS[name]
    lines = talk(tools, turns=range(38, 42) if "fortieth" in name else 4)
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.severity, finding.path) == ("PKV203", "warning", "tools")
    assert finding.message.endswith(said), finding.message


TOOLS_FIRST = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>"
)
OTHER_SETS: dict[str, list[Line]] = {
    "other tools in other sessions": sessions(lambda n: kit()[: 2 + n]),
    "agents that share nothing but tools": [
        *talk(kit()[:3], session="a"),
        *conversation("Count words.\nNo text.", tools=kit(), session="b", topic="B "),
    ],
    "no system prompt, other tools": [
        line for n in range(4) for line in alone({"messages": history(0, f"{n} "), "tools": [tool(f"t{n}")]})
    ],
}


@pytest.mark.parametrize("name", OTHER_SETS)
def test_other_sessions_may_have_other_tools(name: str) -> None:
    findings = lint(OTHER_SETS[name])
    assert not loud(findings), [(finding.code, finding.message, finding.tokens_lost) for finding in findings]


def test_other_tools_in_front_of_a_shared_system_prompt_cost_it() -> None:
    (finding,) = loud(lint(OTHER_SETS["other tools in other sessions"], chat_template=TOOLS_FIRST))
    assert (finding.code, finding.evidence["within_conversation"]) == ("PKV203", [])


CHOICES = talk(kit(), tool_choice=lambda n: "none" if n == 2 else "auto")
PARSER = "--enable-auto-tool-choice --tool-call-parser hermes"


def test_tool_choice_changes_nothing_by_default() -> None:
    assert not loud(lint(CHOICES, vllm_args=PARSER, chat_template=TOOLS_FIRST))


def test_tool_choice_takes_the_tools_out_where_the_server_says_so() -> None:
    arguments = f"{PARSER} --exclude-tools-when-tool-choice-none"
    (finding,) = loud(lint(CHOICES, vllm_args=arguments, chat_template=TOOLS_FIRST))
    assert (finding.code, finding.path) == ("PKV203", "tool_choice")
    assert "--exclude-tools-when-tool-choice-none" in finding.fix


# --- PKV204

DEFINITIONS: dict[str, tuple[Callable[[Tools, int], Any], str]] = {
    "description": (lambda t, n: replaced(t, 1, description=f"Cancels one of {n} bookings."), "function.description"),
    "description of a parameter": (
        lambda t, n: parameters(t, 1)["properties"]["path"].update(description=f"One of {n} rooms."),
        "function.parameters.properties.path.description",
    ),
    "a list of values": (
        lambda t, n: parameters(t, 2)["properties"]["name"].update(enum=["inn", "bar", f"pub {n}"]),
        "function.parameters.properties.name.enum",
    ),
    "order of values": (
        lambda t, n: parameters(t, 2)["properties"]["name"].update(
            enum=["pub", "inn", "bar"] if n % 2 else ["bar", "pub", "inn"]
        ),
        "function.parameters.properties.name.enum",
    ),
    "a limit": (
        lambda t, n: parameters(t, 4)["properties"]["amount"].update(maximum=100 * n),
        "function.parameters.properties.amount",
    ),
    "a default": (
        lambda t, n: parameters(t, 0)["properties"]["guests"].update(default=n),
        "function.parameters.properties.guests",
    ),
    "a type": (
        lambda t, n: parameters(t, 0)["properties"]["day"].update(type=["string", "null"] if n % 2 else "string"),
        "function.parameters.properties.day.type",
    ),
    "a new parameter": (
        lambda t, n: parameters(t, 1)["properties"].update({f"p{n}": {"type": "string"}}),
        "function.parameters.properties",
    ),
    "one more that is required": (
        lambda t, n: parameters(t, 0).update(required=["guests", "day"][: 1 + n % 2]),
        "function.parameters.required",
    ),
    "deep in a schema": (
        lambda t, n: parameters(t, 3)["properties"]["place"]["properties"]["id"].update(description=f"Up to {n}00."),
        "function.parameters.properties.place.properties.id",
    ),
    "another language": (
        lambda t, n: replaced(t, 1, description=["Sagt ab.", "Annule tout."][n % 2]),
        "function.description",
    ),
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_names_a_definition_that_changes(name: str) -> None:
    change, path = DEFINITIONS[name]
    lines = talk(edited(change))
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.severity) == ("PKV204", "warning")
    assert finding.path is not None and finding.path.partition(".")[2].startswith(path)
    value_at(lines, finding)


def test_one_fault_of_several_tools_is_one_finding() -> None:
    def change(tools: Tools, turn: int) -> None:
        for each in tools:
            each["function"]["description"] += f" (call {turn} of the budget)"

    (finding,) = loud(lint(talk(edited(change))))
    assert (finding.code, finding.requests_affected) == ("PKV204", 3)
    assert "book, cancel, find, open, pay" in finding.message


def test_in_the_fortieth_turn() -> None:
    lines = talk(edited(lambda t, n: replaced(t, 4, description="Pays a bill in part."), first=40), turns=range(37, 43))
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.requests_affected, value_at(lines, finding)) == ("PKV204", 1, "part")


OTHERWISE: dict[str, tuple[Callable[[int], Tools | None], list[str]]] = {
    "a clock in a description": (
        edited(lambda t, n: replaced(t, 1, description=f"It is 14:0{n}:33."), 0),
        ["PKV101"],
    ),
    "an id in a description": (
        edited(lambda t, n: replaced(t, 1, description=f"Pass 3f2504e0-4f89-41d3-9a0c-0305e82c330{n}."), 0),
        ["PKV102"],
    ),
    "keys only": (edited(lambda t, n: reversed_keys(t) if n % 2 else None), ["PKV205"]),
    "order only": (lambda n: kit()[:: -1 if n % 2 else 1], ["PKV201"]),
    "set only": (lambda n: kit()[: 4 + n % 2], ["PKV203"]),
    "null and left out": (
        lambda n: [{**each, "function": {**each["function"], **({"strict": None} if n % 2 else {})}} for each in kit()],
        [],
    ),
    "constant with numbers": (edited(lambda t, n: replaced(t, 1, description="Up to 1700000000 at 14:05."), 0), []),
    "copies": (lambda n: copy.deepcopy(kit()), []),
    "numbers written another way": (
        edited(lambda t, n: parameters(t, 4)["properties"]["amount"].update(minimum=0), 1),
        [],
    ),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_other_changes_have_their_own_names(name: str) -> None:
    tools, expected = OTHERWISE[name]
    assert codes(lint(talk(tools))) == expected


# --- PKV205

KEYS: dict[str, Callable[[Tools, int], Any]] = {
    "all keys reversed": lambda t, n: reversed_keys(t) if n % 2 else None,
    "keys of one schema": lambda t, n: t[1]["function"].update(parameters=dict(reversed(parameters(t, 1).items()))),
    "order of properties": lambda t, n: parameters(t, 1).update(
        properties=dict(reversed(parameters(t, 1)["properties"].items()))
    ),
    "keys of a property": lambda t, n: parameters(t, 4)["properties"].update(
        amount=dict(reversed(parameters(t, 4)["properties"]["amount"].items()))
    ),
    "order of required": lambda t, n: parameters(t, 1).update(required=["limit", "path"]),
    "order of required and keys": lambda t, n: t[1]["function"].update(
        parameters={
            "required": ["limit", "path"],
            **reversed_keys({k: v for k, v in parameters(t, 1).items() if k != "required"}),
        }
    ),
    "every turn another order": lambda t, n: t[0]["function"].update(
        parameters={k: parameters(t, 0)[k] for k in random.Random(n).sample(["type", "properties", "required"], 3)}
    ),
    "deep in a schema": lambda t, n: parameters(t, 3)["properties"].update(
        place={"properties": {"id": {"type": "integer"}}, "type": "object"}
    ),
    "some tools": lambda t, n: [reversed_keys(each) if k % 2 else each for k, each in enumerate(t)],
    "the last tool": lambda t, n: [*t[:-1], reversed_keys(t[-1])],
}


@pytest.mark.parametrize("name", KEYS)
def test_names_keys_in_another_order(name: str) -> None:
    lines = talk(edited(KEYS[name]))
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.severity) == ("PKV205", "error"), finding
    assert finding.path is not None and finding.path.startswith("tools[")


def test_points_at_the_whole_schema_of_a_messages_body() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "required": ["a", "b"],
    }

    def tools(turn: int) -> list[dict[str, Any]]:
        given = dict(reversed(schema.items())) if turn == 2 else schema
        return [{"name": "look", "description": "Looks.", "input_schema": given}]

    bodies = [
        {"model": "m", "max_tokens": 9, "system": prompt(), "messages": history(turn), "tools": tools(turn)}
        for turn in range(3)
    ]
    lines: list[Line] = [{"session_id": "s1", "request": body} for body in bodies]
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.request, finding.path) == ("PKV205", 2, "tools[0].input_schema")


def test_keys_in_the_fortieth_turn() -> None:
    lines = talk(edited(KEYS["order of required"], first=40), turns=range(37, 43))
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.path, finding.requests_affected) == (
        "PKV205",
        "tools[1].function.parameters.required",
        1,
    )
