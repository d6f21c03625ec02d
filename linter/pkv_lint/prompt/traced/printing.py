"""What `str`, `repr` and `json.dumps` print, with the origins of what is printed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from pkv_lint.prompt.origin import COMPUTED, Source
from pkv_lint.prompt.traced.strings import Builder, Traced, plain, traced, written
from pkv_lint.prompt.traced.values import (
    CONSTANTS,
    TracedDict,
    TracedFloat,
    TracedInt,
    TracedList,
    named,
    respelled,
    syntax_of,
)

# Characters that json.dumps may escape, without and with `ensure_ascii`, and that repr may escape.
_JSON_SPECIAL = re.compile(r'[\x00-\x1f"\\]')
_JSON_SPECIAL_ASCII = re.compile(r"[^ !#-\[\]-~]")
_REPR_SPECIAL = re.compile(r"[^ -&(-\[\]-~]")
_NUMBERS = (TracedInt, TracedFloat)


def text_of(value: Any) -> str:
    """`str(value)`."""
    if isinstance(value, str):
        return str(value)
    if type(value) in (dict, list, tuple, TracedDict, TracedList):
        return repr_of(value)
    return str(value)


def repr_of(value: Any) -> Traced:
    """`repr(value)`."""
    builder = Builder()
    _Repr(builder).write(value, COMPUTED, None)
    return builder.build()


def json_of(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> Traced:
    """`json.dumps` with these arguments."""
    builder = Builder()
    _Json(builder, ensure_ascii, indent, separators, sort_keys).write(value, COMPUTED, None)
    return builder.build()


def escape_into(builder: Builder, text: str, special: re.Pattern[str], escape: Callable[[str], str]) -> None:
    """Add a text in which `escape` has changed each `special` character."""
    text = traced(text)
    characters = plain(text)
    escapes: dict[str, str] = {}
    begin = 0
    for end, (source, offset, linear) in zip(text._ends, text._runs, strict=True):
        at = begin
        for match in special.finditer(characters, begin, end):
            char = match[0]
            escaped = escapes.get(char)
            if escaped is None:
                escaped = escapes[char] = escape(char)
            if escaped == char:
                continue
            start = match.start()
            builder.add_run(characters[at:start], source, offset + at - begin if linear else offset, linear)
            place = offset + start - begin if linear else offset
            builder.add_run(escaped, source, place, linear and len(escaped) == 1)
            at = start + 1
        builder.add_run(characters[at:end], source, offset + at - begin if linear else offset, linear)
        begin = end


class _Printer:
    """Writes values into a builder. `syntax` is the source for punctuation around a value, `constant` its own text when
    it is true, false or null in a request."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def write(self, value: Any, syntax: Source, constant: Traced | None, depth: int = 0) -> None:
        raise NotImplementedError

    def quoted(
        self, text: str, syntax: Source, quote: str, special: re.Pattern[str], escape: Callable[[str], str]
    ) -> None:
        offset = 0
        if isinstance(text, Traced) and text._runs:
            source, offset, _ = text._runs[0]
            syntax = Source("syntax", source.where) if source.kind in ("value", "key") else source
        self.builder.add_run(quote, syntax, offset)
        escape_into(self.builder, text, special, escape)
        self.builder.add_run(quote, syntax, offset)

    def constant_text(self, constant: Traced | None, spelled: str) -> Traced:
        return respelled(constant, spelled) if constant is not None else written(spelled, COMPUTED)

    def constant_in(self, container: Any, key: Any, child: Any, syntax: Source) -> Traced | None:
        if child is not None and not isinstance(child, bool):
            return None
        found = getattr(container, "_constants", {}).get(key)
        return written(CONSTANTS[child], syntax) if found is None else found


class _Repr(_Printer):
    def write(self, value: Any, syntax: Source, constant: Traced | None, depth: int = 0) -> None:
        builder = self.builder
        if isinstance(value, Traced) or type(value) is str:
            body = repr(plain(value))
            quote = body[0]

            def escape(char: str) -> str:
                return char if char == "'" and quote == '"' else "\\'" if char == "'" else repr(char)[1:-1]

            self.quoted(value, syntax, quote, _REPR_SPECIAL, escape)
        elif type(value) in (dict, TracedDict):
            syntax = syntax_of(value)
            builder.add_run("{", syntax)
            for i, (key, child) in enumerate(value.items()):
                if i:
                    builder.add_run(", ", syntax)
                self.write(named(key, child, syntax), syntax, None)
                builder.add_run(": ", syntax)
                self.write(child, syntax, self.constant_in(value, key, child, syntax))
            builder.add_run("}", syntax)
        elif type(value) in (list, tuple, TracedList):
            syntax = syntax_of(value)
            builder.add_run("(" if type(value) is tuple else "[", syntax)
            for i, child in enumerate(value):
                if i:
                    builder.add_run(", ", syntax)
                self.write(child, syntax, self.constant_in(value, i, child, syntax))
            builder.add_run((",)" if len(value) == 1 else ")") if type(value) is tuple else "]", syntax)
        elif type(value) in _NUMBERS:
            builder.add(str(value))
        elif value is None or isinstance(value, bool):
            builder.add(self.constant_text(constant, repr(value)))
        else:
            builder.add(repr(value))


class _Json(_Printer):
    def __init__(self, builder: Builder, ensure_ascii: bool, indent: Any, separators: Any, sort_keys: bool) -> None:
        super().__init__(builder)
        self.special = _JSON_SPECIAL_ASCII if ensure_ascii else _JSON_SPECIAL
        self.ensure_ascii = ensure_ascii
        self.indent = indent if indent is None or isinstance(indent, str) else " " * indent
        self.item_separator: str
        self.key_separator: str
        self.item_separator, self.key_separator = separators or (", " if indent is None else ",", ": ")
        self.sort_keys = sort_keys

    def escape(self, char: str) -> str:
        return json.dumps(char, ensure_ascii=self.ensure_ascii)[1:-1]

    def newline(self, depth: int) -> str:
        return "" if self.indent is None else "\n" + self.indent * depth

    def write(self, value: Any, syntax: Source, constant: Traced | None, depth: int = 0) -> None:
        builder = self.builder
        if isinstance(value, str):
            self.quoted(value, syntax, '"', self.special, self.escape)
        elif isinstance(value, (dict, list, tuple)) and not value:
            builder.add_run("{}" if isinstance(value, dict) else "[]", syntax_of(value))
        elif isinstance(value, dict):
            syntax = syntax_of(value)
            builder.add_run("{" + self.newline(depth + 1), syntax)
            for i, (key, child) in enumerate(sorted(value.items()) if self.sort_keys else value.items()):
                if i:
                    builder.add_run(self.item_separator + self.newline(depth + 1), syntax)
                name = named(key, child, syntax)
                # A number, true, false or null as a name prints as the same text in quotes.
                self.write(
                    name if isinstance(name, str) else next(iter(json.loads(json.dumps({key: 0})))), syntax, None
                )
                builder.add_run(self.key_separator, syntax)
                self.write(child, syntax, self.constant_in(value, key, child, syntax), depth + 1)
            builder.add_run(self.newline(depth) + "}", syntax)
        elif isinstance(value, (list, tuple)):
            syntax = syntax_of(value)
            builder.add_run("[" + self.newline(depth + 1), syntax)
            for i, child in enumerate(value):
                if i:
                    builder.add_run(self.item_separator + self.newline(depth + 1), syntax)
                self.write(child, syntax, self.constant_in(value, i, child, syntax), depth + 1)
            builder.add_run(self.newline(depth) + "]", syntax)
        elif type(value) in _NUMBERS:
            builder.add(respelled(value._printed, json.dumps(value)))
        elif value is None or isinstance(value, bool):
            builder.add(self.constant_text(constant, CONSTANTS[value]))
        else:
            builder.add(json.dumps(value))
