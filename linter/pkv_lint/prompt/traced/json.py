"""`json.loads` of a traced text: the arguments of a tool call are JSON inside a string."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from pkv_lint.prompt.origin import COMPUTED, Source
from pkv_lint.prompt.traced.strings import Builder, Traced, plain
from pkv_lint.prompt.traced.values import TracedDict, TracedList, path_of, traced_number

_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.")
_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"true|false|null|-?Infinity|NaN|-?[0-9.eE+-]+")


def parse_traced_json(text: str) -> Any:
    """The value of a JSON text. Its strings, names and numbers have the origins of the characters that spell them; what
    is written for a container in it was written for the text as a whole.

    Raises json.JSONDecodeError, ValueError and RecursionError where `json.loads` does.
    """
    value = json.loads(plain(text))
    if not isinstance(text, Traced):
        return value
    path = path_of(text)
    parser = _Parser(text, COMPUTED if path is None else Source("syntax", path))
    return parser.value(parser.space(0))[0]


class _Parser:
    """Reads a text that is known to be JSON."""

    def __init__(self, text: Traced, syntax: Source) -> None:
        self.text = text
        self.syntax = syntax
        self.plain = plain(text)

    def space(self, at: int) -> int:
        return _found(_SPACE.match(self.plain, at)).end()

    def value(self, at: int) -> tuple[Any, int]:
        """The value that starts at `at`, and where it ends."""
        match self.plain[at]:
            case '"':
                return self.string(at)
            case "{":
                return self.object(at)
            case "[":
                return self.array(at)
        end = _found(_SCALAR.match(self.plain, at)).end()
        printed = self.text._cut(at, end)
        value = json.loads(plain(printed))
        return (value if value is None or isinstance(value, bool) else traced_number(value, printed)), end

    def string(self, at: int) -> tuple[Traced, int]:
        match = _found(_STRING.match(self.plain, at))
        start, end = match.span(1)
        if "\\" not in match[1]:
            return self.text._cut(start, end), match.end()
        builder = Builder()
        for escape in _ESCAPE.finditer(self.plain, start, end):
            builder.add(self.text._cut(start, escape.start()))
            source, offset, _ = self.text._cut(escape.start(), escape.end())._runs[0]
            builder.add_run(json.loads(f'"{escape[0]}"'), source, offset)
            start = escape.end()
        builder.add(self.text._cut(start, end))
        return builder.build(), match.end()

    def object(self, at: int) -> tuple[TracedDict, int]:
        members: dict[Any, Any] = {}
        constants: dict[Any, Traced] = {}
        at = self.space(at + 1)
        while self.plain[at] != "}":
            name, at = self.string(at)
            at = self.space(self.space(at) + 1)
            at = self._child(members.__setitem__, constants, name, at)
        return TracedDict(members, self.syntax, constants), at + 1

    def array(self, at: int) -> tuple[TracedList, int]:
        items: list[Any] = []
        constants: dict[Any, Traced] = {}
        at = self.space(at + 1)
        while self.plain[at] != "]":
            at = self._child(lambda _, item: items.append(item), constants, len(items), at)
        return TracedList(items, self.syntax, constants), at + 1

    def _child(self, put: Callable[[Any, Any], None], constants: dict[Any, Traced], key: Any, at: int) -> int:
        """Read and `put` one child; returns where the next one, or the closing bracket, stands."""
        value, end = self.value(at)
        put(key, value)
        if value is None or isinstance(value, bool):
            constants[key] = self.text._cut(at, end)
        else:
            constants.pop(key, None)  # of two members with one name the last counts
        end = self.space(end)
        return self.space(end + 1) if self.plain[end] == "," else end


def _found(match: re.Match[str] | None) -> re.Match[str]:
    assert match is not None
    return match
