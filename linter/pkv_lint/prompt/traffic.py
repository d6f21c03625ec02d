"""Requests from files: one request, a JSON array, or one per line, bare or wrapped; read as a stream."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import stat
import sys
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, tzinfo
from importlib import import_module
from itertools import chain
from typing import Any, BinaryIO, Literal

from pkv_lint.prompt.clock import UNKNOWN, Moment, read_timestamp
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.source import (
    Position,
    check_encoding,
    decode,
    format_path,
    join_path,
    locate,
    parse,
    parse_value,
    skip_space,
    syntax_error,
)

Api = Literal["chat", "completions", "messages", "responses"]

# No server takes a body of this size. Longer lines are skipped without being held in memory.
MAX_LINE_BYTES = 64 * 1024 * 1024
# A JSON array, or a request that is written over several lines, is held whole.
MAX_DOCUMENT_BYTES = 256 * 1024 * 1024

_ENDPOINT = re.compile(r"/(chat/completions|completions|messages|responses)(?:/render)?/?(?:\?.*)?$")
_APIS: dict[str, Api] = {
    "chat/completions": "chat",
    "completions": "completions",
    "messages": "messages",
    "responses": "responses",
}


@dataclass(frozen=True, slots=True)
class TrafficLine:
    """One request of a traffic, with what was recorded about it.

    `index` counts from 0 over everything the file holds, bad lines included. `text` is the JSON text of the line (or of
    the element of the array), which starts at `line` and `column` of `file`; `prefix` is the path of the request in it
    (`request`, `body` or empty). `request` is the body (None when only `token_ids` are given), `api` the endpoint it is
    meant for (None: not said). `completion` is the raw generated text, `output_tokens` how many tokens were generated.
    """

    index: int
    file: str
    line: int
    column: int
    text: str
    prefix: str = ""
    request: dict[str, Any] | None = None
    token_ids: array[int] | None = None
    api: Api | None = None
    session_id: str | None = None
    tenant: str | None = None
    moment: Moment = UNKNOWN
    end: Moment = UNKNOWN
    completion: str | None = None
    output_token_ids: array[int] | None = None
    output_tokens: int | None = None

    def locate(self, path: str, offset: int | None = None, *, key: bool = False) -> Position:
        """The place in the file of the value at `path` of the request; see `source.locate`."""
        place = locate(self.text, join_path(self.prefix, path), offset, key=key)
        return _shifted(place, self.line, self.column)


def read_requests(
    source: str | os.PathLike[str] | BinaryIO, *, name: str | None = None, zone: tzinfo = UTC
) -> Iterator[TrafficLine | InputError]:
    """The requests of a file (`-` is stdin) or of a binary stream, in order; gzip and zstd are told by the first bytes.

    A file holds one request, a JSON array of them, JSON values one after the other, or one request per line. Each is a
    bare body, a native line (`{"request": …}` or `{"token_ids": …}` with `timestamp`, `session_id` and so on), a line
    of an OpenAI Batch file, or a recording (`{"body": …}`). `name` is what messages call the file; `zone` is the
    server's time zone, for timestamps that need one.

    What cannot be used comes as an InputError in its place, so that the others are still read. Raises InputError when
    the file as a whole cannot be read.
    """
    if not isinstance(source, str | os.PathLike):
        yield from _read(source, name or "input", zone)
    elif (path := os.fspath(source)) == "-":
        yield from _read(sys.stdin.buffer, name or "stdin", zone)
    else:
        with _open(path, name or path) as stream:
            yield from _read(stream, name or path, zone)


def _open(path: str, name: str) -> BinaryIO:
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise InputError("is a directory", file=name)
        if not stat.S_ISREG(mode):
            # Opening a pipe that nobody writes to would wait for ever.
            raise InputError("is not a regular file (to read from a command, pipe it into stdin and name -)", file=name)
        return open(path, "rb")
    except FileNotFoundError:
        raise InputError("no such file", file=name) from None
    except PermissionError:
        raise InputError("no permission to read it", file=name) from None
    except OSError as error:
        raise InputError(f"cannot be opened ({(error.strerror or str(error)).lower()})", file=name) from None
    except ValueError:  # a zero byte in the name
        raise InputError("is not a file name", file=name) from None


def _read(stream: BinaryIO, name: str, zone: tzinfo) -> Iterator[TrafficLine | InputError]:
    # Other streams (BytesIO, sockets) cannot be looked into before reading; they stay open.
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)  # type: ignore[type-var]
    damage: tuple[type[Exception], ...] = (gzip.BadGzipFile, zlib.error)
    try:
        plain: io.BufferedIOBase = buffered
        magic = buffered.peek(4)[:4]
        if magic[:2] == b"\x1f\x8b":
            plain = gzip.GzipFile(fileobj=buffered)
        elif magic == b"\x28\xb5\x2f\xfd":
            zstandard = _zstandard(name)
            plain, damage = io.BufferedReader(_ZstdStream(buffered, zstandard)), (zstandard.ZstdError,)
        yield from _Reader(plain, name, zone).items()
    except EOFError:
        raise InputError("the compressed data ends too early", file=name) from None
    except damage as error:
        raise InputError(f"the compressed data is damaged ({str(error).lower()})", file=name) from None
    except OSError as error:
        raise InputError(f"cannot be read ({(error.strerror or str(error)).lower()})", file=name) from None
    finally:
        if buffered is not stream:
            buffered.detach()


def _zstandard(name: str) -> Any:
    try:
        return import_module("zstandard")
    except ImportError:
        raise InputError("is compressed with zstd; install the package zstandard to read it", file=name) from None


class _ZstdStream(io.RawIOBase):
    """The plain bytes of zstd frames (zstandard's own stream_reader takes a frame that is cut off for a whole one)."""

    def __init__(self, source: io.BufferedIOBase, zstandard: Any) -> None:
        self._source = source
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame: Any = None
        self._packed = b""
        self._plain = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._plain:
            # Little at a time: a few bytes can stand for megabytes.
            packed = self._packed or self._source.read(2048)
            if not packed:
                if self._frame is not None:
                    raise EOFError
                return 0
            if self._frame is None:
                self._frame = self._decompressor.decompressobj()
            self._plain = memoryview(self._frame.decompress(packed))
            self._packed = b""
            if self._frame.eof:
                self._packed, self._frame = self._frame.unused_data, None
        size = min(len(buffer), len(self._plain))
        buffer[:size] = self._plain[:size]
        self._plain = self._plain[size:]
        return size


class _Reader:
    """Takes one stream apart. `index` counts the requests so far, bad ones included."""

    def __init__(self, stream: io.BufferedIOBase, name: str, zone: tzinfo) -> None:
        self.stream = stream
        self.name = name
        self.zone = zone
        self.index = 0

    def items(self) -> Iterator[TrafficLine | InputError]:
        for item in self._lines_or_values():
            self.index += 1
            yield item
        if self.index == 0:
            raise InputError("holds no request", file=self.name, code="PKV901")

    def _lines_or_values(self) -> Iterator[TrafficLine | InputError]:
        lines = self._lines()
        first = next(((number, raw) for number, raw in lines if not _is_blank(raw)), None)
        if first is None:
            return
        number, raw = first
        check_encoding(raw, self.name)
        if raw.removeprefix(codecs.BOM_UTF8).lstrip(b" \t\r\n").startswith(b"["):
            data = raw + self.stream.read(max(0, MAX_DOCUMENT_BYTES + 1 - len(raw)))
            if len(data) > MAX_DOCUMENT_BYTES:
                limit = MAX_DOCUMENT_BYTES // 1024**2
                raise InputError(f"is a JSON array of over {limit} MiB; write one request per line", file=self.name)
            yield from self._values(data, number)
            return
        item = self._line(number, raw)
        if isinstance(item, InputError) and item.code == "PKV901" and len(raw) <= MAX_LINE_BYTES:
            # Either a request that is written over several lines, or one bad line in front of others.
            held, complete = self._held(first, lines)
            if complete:
                values = self._values(b"".join(raw for _, raw in held), number)
                value = next(values)
                if not _is_syntax_error(value) or not any(self._is_request(*line) for line in held[1:10]):
                    yield value
                    yield from values
                    return
            lines = chain(held[1:], lines)
        yield item
        for number, raw in lines:
            if not _is_blank(raw):
                yield self._line(number, raw)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines and their numbers; of one that is too long, the first MAX_LINE_BYTES + 1 bytes."""
        number = 0
        while raw := self.stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            yield number, raw
            while len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
                raw = self.stream.readline(MAX_LINE_BYTES + 1)

    def _held(
        self, first: tuple[int, bytes], lines: Iterator[tuple[int, bytes]]
    ) -> tuple[list[tuple[int, bytes]], bool]:
        """The first line and those behind it, and whether these are all (they may be too many to hold)."""
        held, size = [first], len(first[1])
        for line in lines:
            held.append(line)
            size += len(line[1])
            if size > MAX_DOCUMENT_BYTES:
                return held, False
        return held, True

    def _is_request(self, number: int, raw: bytes) -> bool:
        # The objects inside a request that is written over several lines are indented.
        return raw.startswith(b"{") and isinstance(self._line(number, raw), TrafficLine)

    def _line(self, number: int, raw: bytes) -> TrafficLine | InputError:
        if len(raw) > MAX_LINE_BYTES:
            message = f"the line is longer than {MAX_LINE_BYTES // 1024**2} MiB"
            return InputError(message, file=self.name, line=number, code="PKV901")
        try:
            text = decode(raw, self.name, number).rstrip("\r\n")
            return self._item(parse(text, self.name, number), text, number, 1)
        except InputError as error:
            return error

    def _values(self, data: bytes, first_line: int) -> Iterator[TrafficLine | InputError]:
        """The elements of a JSON array, or JSON values one after the other; ends at the first that is not JSON."""
        try:
            text = decode(data, self.name, first_line)
            at = skip_space(text, 0)
            listed = text.startswith("[", at)
            if listed:
                at = skip_space(text, at + 1)
            line, column, seen = first_line, 1, 0
            while at < len(text) and not (listed and text[at] == "]"):
                value, end = parse_value(text, at, self.name, first_line)
                if breaks := text.count("\n", seen, at):
                    line, column = line + breaks, at - text.rfind("\n", seen, at)
                else:
                    column += at - seen
                seen = at
                if listed and self.index == 0 and isinstance(value, dict) and "role" in value:
                    message = 'is a list of messages, not of requests; write {"messages": [...]}'
                    raise InputError(message, file=self.name, line=line, column=column, code="PKV902")
                yield self._item(value, text[at:end], line, column)
                at = skip_space(text, end)
                if listed and not text.startswith("]", at):
                    at = self._behind_comma(text, at, first_line)
            if listed:
                end = skip_space(text, at + 1)
                if at == len(text) or end < len(text):
                    message = "the array does not end" if at == len(text) else "extra data behind the array"
                    raise syntax_error(f"not valid JSON: {message}", text, min(end, len(text)), self.name, first_line)
        except InputError as error:
            yield error

    def _behind_comma(self, text: str, at: int, first_line: int) -> int:
        if not text.startswith(",", at):
            raise syntax_error("not valid JSON: expecting ',' or ']'", text, at, self.name, first_line)
        behind = skip_space(text, at + 1)
        if text.startswith("]", behind):
            raise syntax_error("not valid JSON: a comma behind the last element", text, at, self.name, first_line)
        return behind

    def _item(self, value: Any, text: str, line: int, column: int) -> TrafficLine | InputError:
        try:
            return TrafficLine(self.index, self.name, line, column, text, **_members(value, self.zone))
        except InputError as error:
            place = _shifted(locate(text, error.path or ""), line, column)
            return InputError(
                error.message, file=self.name, line=place.line, column=place.column, path=error.path, code="PKV902"
            )


def _is_blank(raw: bytes) -> bool:
    return not raw.removeprefix(codecs.BOM_UTF8).strip(b" \t\r\n")


def _is_syntax_error(item: TrafficLine | InputError) -> bool:
    return isinstance(item, InputError) and item.code == "PKV901"


def _shifted(place: Position, line: int, column: int) -> Position:
    """A place in a text that itself starts at `line` and `column`."""
    return Position(line + place.line - 1, place.column + (column - 1 if place.line == 1 else 0))


def _members(value: Any, zone: tzinfo) -> dict[str, Any]:
    """What one line says, by the names of TrafficLine's fields. Raises InputError with the path in the line."""
    if not isinstance(value, dict):
        raise InputError(f"needs a JSON object, not {_kind(value)}")
    if "request" in value or "token_ids" in value:
        prefix = "request" if value.get("request") is not None else ""
    elif "body" in value and not any(name in value for name in ("messages", "prompt", "input")):
        prefix = "body"
    else:
        return {"request": value}
    request = value[prefix] if prefix else None
    token_ids = _ids(value, "token_ids")
    if request is None and token_ids is None:
        raise InputError("needs a JSON object, not null", path="body" if "body" in value else "request")
    if request is not None and not isinstance(request, dict):
        raise InputError(f"needs a JSON object, not {_kind(request)}", path=prefix)
    return {
        "prefix": prefix,
        "request": request,
        "token_ids": token_ids,
        "api": _api(value),
        "session_id": _identifier(value, "session_id"),
        "tenant": _identifier(value, "tenant"),
        "moment": read_timestamp(value.get("timestamp"), zone, "timestamp"),
        "end": read_timestamp(value.get("end_timestamp"), zone, "end_timestamp"),
        "completion": _text(value, "completion"),
        "output_token_ids": _ids(value, "output_token_ids"),
        "output_tokens": _count(value, "output_tokens"),
    }


def _kind(value: Any) -> str:
    names = {bool: str(value).lower(), str: "a string", int: "a number", float: "a number", list: "a list"}
    return "null" if value is None else names.get(type(value), "an object")


def _api(value: dict[str, Any]) -> Api | None:
    """The endpoint that `url` (Batch) or `path` names. Only a Batch file promises that it is one."""
    name = "url" if "url" in value else "path"
    given = value.get(name)
    found = _ENDPOINT.search(given) if isinstance(given, str) else None
    if found is None and "custom_id" in value and given is not None:
        raise InputError("is not an endpoint that takes a prompt", path=name)
    return _APIS[found[1]] if found else None


def _identifier(value: dict[str, Any], name: str) -> str | None:
    given = value.get(name)
    if given is None or given == "":
        return None
    if isinstance(given, str):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        return str(given)
    raise InputError(f"needs a string, not {_kind(given)}", path=name)


def _text(value: dict[str, Any], name: str) -> str | None:
    given = value.get(name)
    if given is not None and not isinstance(given, str):
        raise InputError(f"needs a string, not {_kind(given)}", path=name)
    return given


def _count(value: dict[str, Any], name: str) -> int | None:
    given = value.get(name)
    if given is None:
        return None
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise InputError("needs a whole number that is not negative", path=name)
    return given


def _ids(value: dict[str, Any], name: str) -> array[int] | None:
    given = value.get(name)
    if given is None:
        return None
    if not isinstance(given, list):
        raise InputError(f"needs a list of token ids, not {_kind(given)}", path=name)
    if all(type(token) is int and 0 <= token < 2**31 for token in given):
        return array("i", given)
    bad = next(at for at, token in enumerate(given) if type(token) is not int or not 0 <= token < 2**31)
    raise InputError("is not a token id", path=format_path((name, bad)))
