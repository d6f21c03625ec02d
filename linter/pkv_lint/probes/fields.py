"""Fields of single requests that say something about the cache, or are not read as they look."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pkv_lint.prompt.source import format_path
from pkv_lint.turns import Turn

MARKERS = frozenset({"cache_control", "cacheControl", "cache_point", "cachePoint"})
DATA = frozenset({"parameters", "input_schema", "arguments", "input", "metadata", "chat_template_kwargs"})
"""Members whose content is the user's own and no field of an API; `input` of a Responses body is a list of items."""


@dataclass(frozen=True, slots=True)
class Spotted:
    """Something about one request: `path` is its place in the body."""

    turn: Turn
    path: str


def cache_markers(turn: Turn) -> Iterator[Spotted]:
    """The first marker in the body as it was sent."""
    if not any(name in turn.line.text for name in MARKERS):
        return
    steps = next(markers(turn.line.request, ()), None)
    if steps is not None:
        yield Spotted(turn, format_path(steps))


def markers(value: Any, steps: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in MARKERS and isinstance(item, dict) and isinstance(item.get("type"), str):
                yield (*steps, key)
            elif key not in DATA or (key == "input" and not steps):
                yield from markers(item, (*steps, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from markers(item, (*steps, index))


def broken_arguments(turn: Turn) -> Iterator[Spotted]:
    """Calls whose arguments vLLM cannot read as an object and renders as `{}` (`_postprocess_messages`)."""
    for index, message in enumerate(turn.chat["messages"]):
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        for number, call in enumerate(calls if isinstance(calls, list) else ()):
            function = call.get("function") if isinstance(call, dict) else None
            text = function.get("arguments") if isinstance(function, dict) else None
            if isinstance(text, str) and loses(text):
                yield Spotted(turn, f"messages[{index}].tool_calls[{number}].function.arguments")


def loses(text: str) -> bool:
    """Whether an empty object in place of this text takes something away."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return bool(text.strip())
    return not isinstance(value, dict) and value is not None
