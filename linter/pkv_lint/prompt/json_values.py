"""The JSON values of a stream: one per line, one over several lines, or the elements of an array."""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.json_spans import skip_space
from pkv_lint.prompt.source import check_encoding, decode, parse, parse_value

# No server takes a body of this size. Longer lines are skipped without being held in memory.
MAX_LINE_BYTES = 64 * 1024 * 1024
# A value that is written over several lines, or an element of an array, is held whole.
MAX_DOCUMENT_BYTES = 256 * 1024 * 1024
# Bytes of an array that are read at once.
CHUNK = 1024 * 1024
# Characters of `-Infinity`: a word that is cut off fails where it begins.
LONGEST_WORD = 9

_DECODER = json.JSONDecoder()


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
        yield from _elements(_Text(stream, raw, number, name))
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
    """JSON values one after the other; ends at the first that is not JSON."""
    try:
        text = decode(data, name, first_line)
        at, seen = skip_space(text, 0), 0
        line, column = first_line, 1
        while at < len(text):
            value, end = parse_value(text, at, name, first_line)
            line, column = _moved(text, seen, at, line, column)
            seen = at
            yield JsonValue(value, text[at:end], line, column)
            at = skip_space(text, end)
    except InputError as error:
        yield error


def _moved(text: str, start: int, stop: int, line: int, column: int) -> tuple[int, int]:
    """The place of the character `stop` of a text, given that of `start`."""
    if breaks := text.count("\n", start, stop):
        return line + breaks, stop - text.rfind("\n", start, stop)
    return line, column + stop - start


class _Text:
    """The text of a stream, held from the value on that is being read. `text[start]` stands at `line` and `column`."""

    def __init__(self, stream: io.BufferedIOBase, head: bytes, line: int, name: str) -> None:
        self.name = name
        self.text = ""
        self.start = 0
        self.line = line
        self.column = 1
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._append(head.removeprefix(codecs.BOM_UTF8))

    def more(self) -> bool:
        """Read on, as much again as is held; False at the end of the stream."""
        if len(self.text) - self.start > MAX_DOCUMENT_BYTES:
            message = f"an element of the array is longer than {MAX_DOCUMENT_BYTES // 1024**2} MiB"
            raise self.error(message, self.start)
        data = self._stream.read(max(CHUNK, len(self.text) - self.start))
        self._append(data)
        return bool(data)

    def _append(self, data: bytes) -> None:
        try:
            self.text += self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            self.text += error.object[: error.start].decode()
            message = f"byte 0x{error.object[error.start]:02x} is not UTF-8"
            raise self.error(message, len(self.text)) from None

    def advance(self, at: int) -> int:
        """Let go of what stands in front of a character; returns where that one is now."""
        self.line, self.column = _moved(self.text, self.start, at, self.line, self.column)
        if at > len(self.text) // 2:  # not every time: the rest is copied
            self.text, at = self.text[at:], 0
        self.start = at
        return at

    def space(self, at: int) -> int:
        """Where the white space that starts at `at` ends: at a character, or at the end of the stream."""
        while (at := skip_space(self.text, at)) == len(self.text) and self.more():
            pass
        return at

    def value(self, at: int) -> tuple[Any, int]:
        """The value that starts at `at`, and where it ends. Raises InputError (PKV901)."""
        while True:
            size = len(self.text)
            try:
                value, end = _DECODER.raw_decode(self.text, at)
                if end < size or not self.more():
                    return value, end
            except json.JSONDecodeError as error:
                # What was cut off inside fails at its end, or where a string begins.
                cut_off = error.pos > size - LONGEST_WORD or error.msg.startswith("Unterminated string")
                if not cut_off or not self.more():
                    break
            except (RecursionError, ValueError):
                break
        try:
            parse_value(self.text[at:], 0, self.name)
        except InputError as error:
            raise self.error(error.message, at + _index(self.text[at:], error)) from None
        raise AssertionError("what is no JSON was read")

    def error(self, message: str, at: int) -> InputError:
        """What is wrong at a character."""
        line, column = _moved(self.text, self.start, at, self.line, self.column)
        return InputError(message, file=self.name, line=line, column=column, code="PKV901")


def _index(text: str, error: InputError) -> int:
    """The character of a text that an error names by line and column."""
    index = 0
    for _ in range((error.line or 1) - 1):
        index = text.index("\n", index) + 1
    return index + (error.column or 1) - 1


def _elements(held: _Text) -> Iterator[JsonValue | InputError]:
    """The elements of a JSON array; ends at the first that is not JSON."""
    try:
        at = held.space(held.space(0) + 1)
        while at < len(held.text) and held.text[at] != "]":
            at = held.advance(at)
            value, end = held.value(at)
            yield JsonValue(value, held.text[at:end], held.line, held.column, listed=True)
            at = held.space(end)
            if at < len(held.text) and held.text[at] != "]":
                if held.text[at] != ",":
                    raise held.error("not valid JSON: expecting ',' or ']'", at)
                behind = held.space(at + 1)
                if held.text.startswith("]", behind):
                    raise held.error("not valid JSON: a comma behind the last element", at)
                at = behind
        if at == len(held.text):
            raise held.error("not valid JSON: the array does not end", at)
        end = held.space(at + 1)
        if end < len(held.text):
            raise held.error("not valid JSON: extra data behind the array", end)
    except InputError as error:
        yield error


def _is_blank(raw: bytes) -> bool:
    return not raw.removeprefix(codecs.BOM_UTF8).strip(b" \t\r\n")


def _is_syntax_error(item: JsonValue | InputError) -> bool:
    return isinstance(item, InputError) and item.code == "PKV901"
