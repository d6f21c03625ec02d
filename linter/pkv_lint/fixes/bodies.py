"""Where things stand in request bodies as they were sent, whichever API they are for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pkv_lint.changes import reached, role
from pkv_lint.prompt.json_spans import Steps
from pkv_lint.prompt.renderer import api_of
from pkv_lint.prompt.source import parse_path
from pkv_lint.prompt.traffic import TrafficLine

Path = tuple[str | int, ...]


def in_line(line: TrafficLine, steps: Steps) -> Path:
    """Steps from the top of the line to what steps of its request lead to."""
    return (*parse_path(line.prefix), *steps)


def api(line: TrafficLine) -> str:
    return line.api or (api_of(line.request) if line.request is not None else "")


def tools_of(line: TrafficLine) -> list[Any]:
    given = line.request.get("tools") if line.request is not None else None
    return given if isinstance(given, list) else []


def name_of_tool(tool: Any) -> str:
    """Chat Completions keep the name in `function`; tools that the server runs have none but their type."""
    if not isinstance(tool, dict):
        return ""
    function = tool.get("function")
    named = function if isinstance(function, dict) else tool
    return str(named.get("name") or tool.get("type") or "")


def schema_of_tool(tool: Any) -> Path | None:
    """Steps from a tool to the schema of its arguments."""
    for steps in (("function", "parameters"), ("input_schema",), ("parameters",)):
        if isinstance(reached(tool, steps), dict):
            return steps
    return None


def messages(line: TrafficLine) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The messages (the items of a Responses body) and the steps to them."""
    name = "input" if api(line) == "responses" else "messages"
    given = line.request.get(name) if line.request is not None else None
    for index, message in enumerate(given if isinstance(given, list) else ()):
        if isinstance(message, dict):
            yield (name, index), message


def system_texts(line: TrafficLine) -> list[tuple[Path, str]]:
    """The texts that stand in front of the conversation."""
    found = []
    for name in ("system", "instructions"):
        found += texts((line.request or {}).get(name), (name,))
    for steps, message in messages(line):
        if role(message) not in ("system", "developer"):
            break
        found += texts(message.get("content"), (*steps, "content"))
    return found


def user_texts(line: TrafficLine) -> list[tuple[Path, str]]:
    """Of each message of the user that has text (others only return results of tools), the first one."""
    whole = (line.request or {}).get("input")
    found = [texts(whole, ("input",))] if isinstance(whole, str) else []
    for steps, message in messages(line):
        if role(message) == "user":
            found.append(texts(message.get("content"), (*steps, "content")))
    return [of_message[0] for of_message in found if of_message]


def texts(content: Any, steps: Path) -> list[tuple[Path, str]]:
    """A string, or the strings of a list of parts."""
    if isinstance(content, str):
        return [(steps, content)]
    parts = enumerate(content if isinstance(content, list) else ())
    return [
        ((*steps, index, "text"), part["text"])
        for index, part in parts
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    ]


def json_texts(line: TrafficLine) -> Iterator[tuple[str, Path, Any]]:
    """Arguments and results of calls that are JSON: what they belong to, the steps to them, and their value."""
    for steps, message in messages(line):
        for name, inner, given in written(message):
            value = decoded(given)
            if isinstance(value, (dict, list)):
                yield name, (*steps, *inner), value


def written(message: Mapping[str, Any]) -> Iterator[tuple[str, Path, Any]]:
    """What a message says of calls: a name, the steps to it, and the JSON text (Messages: the object)."""
    for index, call in enumerate(listed(message.get("tool_calls"))):
        yield (
            name_of_tool(call),
            ("tool_calls", index, "function", "arguments"),
            reached(call, ("function", "arguments")),
        )
    if message.get("type") == "function_call":
        yield str(message.get("name")), ("arguments",), message.get("arguments")
    if role(message) == "tool":
        yield "result", ("content",), message.get("content")
    if message.get("type") == "function_call_output":
        yield "result", ("output",), message.get("output")
    for index, block in enumerate(listed(message.get("content"))):
        if isinstance(block, dict) and block.get("type") == "tool_use":
            yield str(block.get("name")), ("content", index, "input"), block.get("input")
        if isinstance(block, dict) and block.get("type") == "tool_result":
            yield "result", ("content", index, "content"), block.get("content")


def listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def decoded(given: Any) -> Any:
    """The value of a JSON text; None for other text. What is no text stands for itself."""
    if not isinstance(given, str):
        return given if isinstance(given, dict) else None
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        return None
