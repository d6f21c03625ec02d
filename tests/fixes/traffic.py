"""Requests with faults that can be fixed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SYSTEM = "You are a clerk.\n" + "Answer in short sentences and name your sources.\n" * 12
TOOL_NAMES = ("list_orders", "cancel_order", "find_order")


def tool(name: str, *, keys: int = 1) -> dict[str, Any]:
    """A tool whose schema has its keys in front (1) or back (-1) order."""
    properties = {"b": {"enum": ["z", "a"], "type": "string"}, "a": {"type": "number"}}
    schema = {
        "properties": dict(list(properties.items())[::keys]),
        "required": ["b", "a"][::keys],
        "type": "object",
    }
    described = {"name": name, "description": f"Does {name}. " * 12, "parameters": dict(list(schema.items())[::keys])}
    return {"type": "function", "function": described}


TOOLS = [tool(name) for name in TOOL_NAMES]


def conversation(
    turns: int, system: Callable[[int], str] = lambda turn: SYSTEM, **further: Any
) -> list[dict[str, Any]]:
    """The requests of a conversation; members of `further` that can be called are given the number of the turn."""
    bodies: list[dict[str, Any]] = []
    history: list[dict[str, Any]] = []
    for turn in range(turns):
        history = [*history, {"role": "user", "content": f"Question {turn}, please?"}]
        made = {name: value(turn) if callable(value) else value for name, value in further.items()}
        bodies.append({"messages": [{"role": "system", "content": system(turn)}, *history], **made})
        history = [*history, {"role": "assistant", "content": f"Answer {turn}."}]
    return bodies


def clocked(turn: int) -> str:
    return f"The time is 2026-11-29 14:05:{turn:02d}.\n{SYSTEM}"


def jsonl(values: list[Any], end: str = "\n", **dumped: Any) -> str:
    return "".join(json.dumps(value, **dumped) + end for value in values)


@dataclass(frozen=True, slots=True)
class Run:
    """What one call of the command gave, and the file behind it."""

    status: int
    out: str
    err: str
    path: Path

    @property
    def data(self) -> bytes:
        return self.path.read_bytes()

    @property
    def values(self) -> list[Any]:
        return [json.loads(line) for line in self.data.decode().splitlines()]


Fix = Callable[..., Run]
