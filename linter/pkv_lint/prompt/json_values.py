"""The JSON values of a stream: one per line, one over several lines, or the elements of an array."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.source import check_encoding, decode, parse, parse_value, skip_space, syntax_error

# No server takes a body of this size. Longer lines are skipped without being held in memory.
MAX_LINE_BYTES = 64 * 1024 * 1024
# A JSON array, or a value that is written over several lines, is held whole.
MAX_DOCUMENT_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A value, and its text, which starts at `line` and `column` (1-based) of the file. `listed` values are elements of
    an array."""

    value: Any
    text: str
    line: int
    column: int
    listed: bool = False


def read_values(stream: io.BufferedIOBase, name: str) -> Iterator[JsonValue | InputError]:
    """The values of a stream of plain bytes, which messages call `name`.

    What is no JSON comes as an InputError (PKV901) in its place, so that the others are still read.
    """
    lines = _lines(stream)
    first = next(((number, raw) for number, raw in lines if not _is_blank(raw)), None)
    if first is None:
        return
    number, raw = first
    check_encoding(raw, name)
    if raw.removeprefix(codecs.BOM_UTF8).lstrip(b" \t\r\n").startswith(b"["):
        data = raw + stream.read(max(0, MAX_DOCUMENT_BYTES + 1 - len(raw)))
        if len(data) > MAX_DOCUMENT_BYTES:
            limit = MAX_DOCUMENT_BYTES // 1024**2
            raise InputError(f"is a JSON array of over {limit} MiB; write one request per line", file=name)
        yield from _values(data, number, name)
        return
    item = _line(number, raw, name)
    if isinstance(item, InputError) and item.code == "PKV901" and len(raw) <= MAX_LINE_BYTES:
        # Either a value that is written over several lines, or one bad line in front of others.
        held, complete = _held(first, lines)
        if complete:
            values = _values(b"".join(raw for _, raw in held), number, name)
            value = next(values)
            if not _is_syntax_error(value) or not any(_is_object(*line, name) for line in held[1:10]):
                yield value
                yield from values
                return
        lines = chain(held[1:], lines)
    yield item
    for number, raw in lines:
        if not _is_blank(raw):
            yield _line(number, raw, name)


def _lines(stream: io.BufferedIOBase) -> Iterator[tuple[int, bytes]]:
    """The lines and their numbers; of one that is too long, the first MAX_LINE_BYTES + 1 bytes."""
    number = 0
    while raw := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        yield number, raw
        while len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
            raw = stream.readline(MAX_LINE_BYTES + 1)


def _held(first: tuple[int, bytes], lines: Iterator[tuple[int, bytes]]) -> tuple[list[tuple[int, bytes]], bool]:
    """The first line and those behind it, and whether these are all (they may be too many to hold)."""
    held, size = [first], len(first[1])
    for line in lines:
        held.append(line)
        size += len(line[1])
        if size > MAX_DOCUMENT_BYTES:
            return held, False
    return held, True


def _is_object(number: int, raw: bytes, name: str) -> bool:
    # The objects inside a value that is written over several lines are indented.
    return raw.startswith(b"{") and isinstance(_line(number, raw, name), JsonValue)


def _line(number: int, raw: bytes, name: str) -> JsonValue | InputError:
    if len(raw) > MAX_LINE_BYTES:
        message = f"the line is longer than {MAX_LINE_BYTES // 1024**2} MiB"
        return InputError(message, file=name, line=number, code="PKV901")
    try:
        text = decode(raw, name, number).rstrip("\r\n")
        return JsonValue(parse(text, name, number), text, number, 1)
    except InputError as error:
        return error


def _values(data: bytes, first_line: int, name: str) -> Iterator[JsonValue | InputError]:
    """The elements of a JSON array, or JSON values one after the other; ends at the first that is not JSON."""
    try:
        text = decode(data, name, first_line)
        at = skip_space(text, 0)
        listed = text.startswith("[", at)
        if listed:
            at = skip_space(text, at + 1)
        line, column, seen = first_line, 1, 0
        while at < len(text) and not (listed and text[at] == "]"):
            value, end = parse_value(text, at, name, first_line)
            if breaks := text.count("\n", seen, at):
                line, column = line + breaks, at - text.rfind("\n", seen, at)
            else:
                column += at - seen
            seen = at
            yield JsonValue(value, text[at:end], line, column, listed)
            at = skip_space(text, end)
            if listed and not text.startswith("]", at):
                at = _behind_comma(text, at, name, first_line)
        if listed:
            end = skip_space(text, at + 1)
            if at == len(text) or end < len(text):
                message = "the array does not end" if at == len(text) else "extra data behind the array"
                raise syntax_error(f"not valid JSON: {message}", text, min(end, len(text)), name, first_line)
    except InputError as error:
        yield error


def _behind_comma(text: str, at: int, name: str, first_line: int) -> int:
    if not text.startswith(",", at):
        raise syntax_error("not valid JSON: expecting ',' or ']'", text, at, name, first_line)
    behind = skip_space(text, at + 1)
    if text.startswith("]", behind):
        raise syntax_error("not valid JSON: a comma behind the last element", text, at, name, first_line)
    return behind


def _is_blank(raw: bytes) -> bool:
    return not raw.removeprefix(codecs.BOM_UTF8).strip(b" \t\r\n")


def _is_syntax_error(item: JsonValue | InputError) -> bool:
    return isinstance(item, InputError) and item.code == "PKV901"
