"""What single requests and their template show without a second request to compare: probes, each taken once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal

from .prompt.errors import RenderError
from .prompt.origin import Origin
from .prompt.renderer import Renderer
from .prompt.source import format_path
from .turns import Turn

ENTITIES = ("&amp;", "&lt;", "&gt;", "&#39;", "&#34;", "&quot;")
DATE_VARIABLES = ("date_string", "current_date", "today", "date")
"""Names that templates give to a variable that replaces the clock."""
STEPS: tuple[tuple[Literal["second", "minute", "day"], timedelta], ...] = (
    ("second", timedelta(seconds=1)),
    ("minute", timedelta(minutes=1)),
    ("day", timedelta(days=33)),
)


@dataclass(frozen=True, slots=True)
class Clock:
    """A template that prints the time: `text` is what it printed, `granularity` the finest unit, `variable` the template
    argument that replaces it (None: there is none)."""

    turn: Turn
    text: str
    granularity: Literal["second", "minute", "day"]
    variable: str | None


@dataclass(frozen=True, slots=True)
class Spotted:
    """Something about one request: `path` is its place in the body's chat form, `what` names it."""

    turn: Turn
    path: str
    what: str


class Probes:
    """Probes over a traffic. With the built-in layout nothing is said about a template: it is not the server's."""

    def __init__(self, turns: Sequence[Turn], renderer: Renderer) -> None:
        self._turns = turns
        self._renderer = renderer
        self._knows_template = renderer.layout != "builtin" and renderer.mode == "hf"

    @cached_property
    def template_variables(self) -> frozenset[str]:
        """Names that the template of the first request takes from outside."""
        rendered = self._rendered_turns
        return self._renderer.template_variables(rendered[0].chat) if rendered and self._knows_template else frozenset()

    @cached_property
    def clock(self) -> Clock | None:
        """Whether the template prints the time, told by rendering one request at two times."""
        if "strftime_now" not in self.template_variables:
            return None
        turn = self._rendered_turns[0]
        for granularity, step in STEPS:
            then = self._text(turn, turn.now + step)
            if then is not None and then != turn.prompt.text:
                printed = next((origin for origin in turn.prompt.origins if origin.kind == "clock"), None)
                text = (turn.prompt.text or "")[printed.start : printed.end] if printed else ""
                variable = next((name for name in DATE_VARIABLES if name in self.template_variables), None)
                return Clock(turn, text, granularity, variable)
        return None

    @cached_property
    def ignored(self) -> list[Spotted]:
        """Tools, documents and roles of which nothing is printed; each kind once, at its first request."""
        found: dict[str, Spotted] = {}
        seen: set[str] = set()
        for turn in self._rendered_turns if self._knows_template else ():
            kinds = {kind: paths for kind, paths in inputs(turn) if kind not in seen}
            if not kinds:
                continue
            printed = [origin.path or "" for origin in turn.prompt.origins if origin.kind in ("value", "key")]
            for kind, paths in kinds.items():
                seen.add(kind)
                if not any(
                    place == path or place.startswith((f"{path}.", f"{path}[")) for place in printed for path in paths
                ):
                    found[kind] = Spotted(turn, paths[0], kind)
        return list(found.values())

    @cached_property
    def escaped(self) -> list[Spotted]:
        """Text of the request that came out as HTML entities; the first request only."""
        for turn in self._rendered_turns if self._knows_template else ():
            text = turn.prompt.text or ""
            if not any(entity in text for entity in ENTITIES):
                continue
            for origin in turn.prompt.origins:
                if is_entity(origin, text):
                    return [Spotted(turn, origin.source.where, text[origin.start : origin.end])]
            return []
        return []

    @cached_property
    def doubled_bos(self) -> list[Turn]:
        """Requests whose prompt begins with the tokenizer's BOS twice."""
        bos = self._renderer.special_tokens.get("bos_token") if self._knows_template else None
        token = self._renderer.tokenizer.token_id(bos) if bos else None
        return [turn for turn in self._rendered_turns if token is not None and list(turn.ids[:2]) == [token, token]]

    @cached_property
    def cache_markers(self) -> list[tuple[Turn, str]]:
        """The first `cache_control` of each request that has one."""
        found = []
        for turn in self._rendered_turns:
            steps = next(keys_named("cache_control", turn.chat, ()), None)
            if steps is not None:
                found.append((turn, format_path(steps)))
        return found

    @cached_property
    def broken_arguments(self) -> list[tuple[Turn, str]]:
        """Calls whose arguments are not a JSON object (an empty string stands for one)."""
        return [(turn, path) for turn in self._rendered_turns for path in broken_calls(turn)]

    @cached_property
    def _rendered_turns(self) -> list[Turn]:
        return [turn for turn in self._turns if turn.prompt.text is not None]

    def _text(self, turn: Turn, now: datetime) -> str | None:
        try:
            return self._renderer.render(turn.chat, now, api="chat").text
        except RenderError:
            return None


def inputs(turn: Turn) -> Iterator[tuple[str, list[str]]]:
    """What a request hands to the template, by kind, with the paths at which it stands."""
    chat = turn.chat
    if isinstance(chat.get("tools"), list):
        yield "tools", ["tools"]
    if isinstance(chat.get("documents"), list) and chat["documents"]:
        yield "documents", ["documents"]
    roles: dict[str, list[str]] = {}
    for index, message in enumerate(chat["messages"]):
        if isinstance(message, dict) and message.get("content") and message.get("role") != "assistant":
            roles.setdefault(str(message.get("role")), []).append(f"messages[{index}].content")
    for role, paths in roles.items():
        yield f"messages of the role {role!r}", paths


def is_entity(origin: Origin, text: str) -> bool:
    return origin.kind == "value" and not origin.linear and text[origin.start : origin.end] in ENTITIES


def keys_named(name: str, value: Any, steps: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Where a member of this name stands, outside of tool schemas and arguments (there it is data)."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == name:
                yield (*steps, key)
            elif key not in ("parameters", "arguments"):
                yield from keys_named(name, item, (*steps, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from keys_named(name, item, (*steps, index))


def broken_calls(turn: Turn) -> Iterator[str]:
    for index, message in enumerate(turn.chat["messages"]):
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        for number, call in enumerate(calls if isinstance(calls, list) else ()):
            text = call["function"].get("arguments") if isinstance(call.get("function"), dict) else None
            if isinstance(text, str) and text and not is_object(text):
                yield f"messages[{index}].tool_calls[{number}].function.arguments"


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
