"""JSON text: reading it, and where in it a value stands.

Positions are worked out only for what a finding shows: the request is parsed by the C parser, and a path is looked up
in the text afterwards. A path is written `messages[0].content`, `[3].body.model` or
`tools[2].function.parameters.properties["odd name"]`; the empty path is the whole text.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.json_spans import find, skip_space

_DECODER = json.JSONDecoder()
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STEP = re.compile(r"""\[(?P<index>\d+)\] | \[(?P<quoted>"(?:[^"\\]|\\.)*")\] | (?P<name>[^.\[\]"]+)""", re.VERBOSE)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+|[\[{]|[\]}]', re.DOTALL)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a text: `line` and `column` are 1-based, the column in code points; only `\\n` ends a line."""

    line: int
    column: int


def decode(data: bytes, file: str | None = None, first_line: int = 1) -> str:
    """The text of UTF-8 bytes, without a byte order mark. Raises InputError (PKV901) at a bad byte.

    `first_line` is the line of the file that the bytes start on.
    """
    if first_line == 1:
        check_encoding(data, file)
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode()
        message = f"byte 0x{error.object[error.start]:02x} is not UTF-8"
        raise syntax_error(message, before, len(before), file, first_line) from None


def check_encoding(data: bytes, file: str | None = None) -> None:
    """Raises InputError (PKV901) when the first bytes of a file show UTF-16 or UTF-32 (JSON has no zero bytes)."""
    if b"\0" in data[:4] or data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise syntax_error("is UTF-16 or UTF-32, not UTF-8; save it as UTF-8", "", 0, file)


def parse(text: str, file: str | None = None, first_line: int = 1) -> Any:
    """The value of a JSON text, as `json.loads` reads it (the last of equal keys wins; NaN and Infinity are numbers).

    `first_line` is the line of the file that the text starts on. Raises InputError (PKV901) with line and column.
    """
    value, end = parse_value(text, skip_space(text, 0), file, first_line)
    end = skip_space(text, end)
    if end < len(text):
        raise syntax_error("not valid JSON: extra data behind the value", text, end, file, first_line)
    return value


def parse_value(text: str, at: int, file: str | None = None, first_line: int = 1) -> tuple[Any, int]:
    """The JSON value that starts at the code point `at`, and where it ends. Raises as `parse` does."""
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        # Some messages of `json` end as if the place followed ("Unterminated string starting at").
        reason = error.msg.removesuffix(" at")
        message, at = f"not valid JSON: {reason[:1].lower()}{reason[1:]}", error.pos
    except RecursionError:
        message, at = "not valid JSON: nested too deeply", _deepest(text, at)
    except ValueError:
        # int() refuses more digits than sys.get_int_max_str_digits() (a server in Python refuses the request as well).
        message, at = f"a number has more than {sys.get_int_max_str_digits()} digits", _longest_number(text, at)
    raise syntax_error(message, text, at, file, first_line)


def syntax_error(message: str, text: str, at: int, file: str | None = None, first_line: int = 1) -> InputError:
    """The error (PKV901) that `text` is not JSON at the code point `at`."""
    place = position(text, at)
    return InputError(message, file=file, line=first_line + place.line - 1, column=place.column, code="PKV901")


def _deepest(text: str, at: int) -> int:
    depth = deepest = 0
    for token in _TOKEN.finditer(text, at):
        if token[0] in "[{":
            depth += 1
            if depth > deepest:
                deepest, at = depth, token.start()
        elif token[0] in "]}":
            depth -= 1
    return at


def _longest_number(text: str, at: int) -> int:
    tokens = (token for token in _TOKEN.finditer(text, at) if token[0][0] in "-0123456789")
    longest = max(tokens, key=lambda token: len(token[0]), default=None)
    return longest.start() if longest else at


def position(text: str, index: int) -> Position:
    """Line and column of the code point `index` of `text`."""
    return Position(text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index))


def format_path(parts: Sequence[str | int]) -> str:
    """The path that leads through these member names and list indices."""
    out: list[str] = []
    for part in parts:
        if isinstance(part, int):
            out.append(f"[{part}]")
        elif _NAME.fullmatch(part):
            out.append(f".{part}" if out else part)
        else:
            # Half a surrogate pair cannot be printed, so it stays an escape.
            out.append(f"[{json.dumps(part, ensure_ascii=any(0xD800 <= ord(char) < 0xE000 for char in part))}]")
    return "".join(out)


def join_path(outer: str, inner: str) -> str:
    """The path of the value at `inner` in the value at `outer`."""
    return outer + inner if not outer or not inner or inner.startswith("[") else f"{outer}.{inner}"


def parse_path(path: str) -> tuple[str | int, ...]:
    """The member names and list indices of a path, the inverse of `format_path`. Raises ValueError."""
    parts: list[str | int] = []
    at = 0
    while at < len(path):
        bracket = path[at] == "["
        if not bracket and parts:
            at += path[at] == "."
            bracket = path[at - 1] != "."  # a name stands behind a dot, except the first
        step = _STEP.match(path, at)
        if step is None or bracket == (step["name"] is not None):
            raise ValueError(f"not a JSON path: {path!r} (at character {at})")
        if step["name"] is not None:
            parts.append(step["name"])
        elif step["index"] is not None:
            parts.append(int(step["index"]))
        else:
            parts.append(json.loads(step["quoted"]))
        at = step.end()
    return tuple(parts)


def locate(text: str, path: str, offset: int | None = None, *, key: bool = False) -> Position:
    """Where the value at `path` starts in the JSON `text` (a string at its opening quote).

    `offset` is a 0-based code point of the decoded string: then the place of that character (its length: the closing
    quote). With `key`, the name of the member is meant instead of its value. A path may lead on through a string that
    holds JSON, such as `…function.arguments.city`. What is not in the text is looked for as far as the path goes: the
    nearest value around it. Raises ValueError for an offset beyond the string or text that is not JSON.
    """
    parts = parse_path(path)
    try:
        index = find(text, parts, offset, key=key)
    except RecursionError:  # nested so deeply that it could be parsed only from a caller further up
        index = skip_space(text, 0)
    return position(text, index)
