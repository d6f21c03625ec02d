"""Requests from files: one request, a JSON array, or one per line, bare or wrapped; read as a stream."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any, Literal

from pkv_lint.prompt import completions
from pkv_lint.prompt.clock import UNKNOWN, Moment, read_timestamp
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.json_values import JsonValue, read_values
from pkv_lint.prompt.source import Position, format_path, join_path, locate
from pkv_lint.prompt.streams import Source, name_of, plain_stream

Api = Literal["chat", "completions", "messages", "responses"]

MAX_LEVELS = 320
"""Levels of lists and objects that a value may have: who looks into one goes down level by level, and Python ends such
descents at about a thousand steps."""

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
    `model` and `cache_salt` stand beside `token_ids`, where there is no body to name them.
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
    model: str | None = None
    cache_salt: str | None = None

    def locate(self, path: str, offset: int | None = None, *, key: bool = False) -> Position:
        """The place in the file of the value at `path` of the request; see `source.locate`."""
        place = locate(self.text, join_path(self.prefix, path), offset, key=key)
        return _shifted(place, self.line, self.column)


def read_requests(source: Source, *, name: str | None = None, zone: tzinfo = UTC) -> Iterator[TrafficLine | InputError]:
    """The requests of a file (`-` is stdin) or of a binary stream, in order; gzip and zstd are told by the first bytes.

    A file holds one request, a JSON array of them, JSON values one after the other, or one request per line. Each is a
    bare body, a native line (`{"request": …}` or `{"token_ids": …}` with `timestamp`, `session_id` and so on), a line
    of an OpenAI Batch file, or a recording (`{"body": …}`). `name` is what messages call the file; `zone` is the
    server's time zone, for timestamps that need one.

    What cannot be used comes as an InputError in its place, so that the others are still read. Raises InputError when
    the file as a whole cannot be read.
    """
    name = name_of(source, name)
    index = -1
    with plain_stream(source, name) as stream:
        for index, item in enumerate(read_values(stream, name)):
            yield item if isinstance(item, InputError) else request_line(item, index, name, zone)
    if index < 0:
        raise InputError("holds no request", file=name, code="PKV901")


def request_line(item: JsonValue, index: int, name: str, zone: tzinfo) -> TrafficLine | InputError:
    """The request of one value of a file; an InputError (PKV902) with its place where it holds none."""
    if item.listed and index == 0 and isinstance(item.value, dict) and "role" in item.value:
        # The whole file is meant; nothing in it can be used.
        message = 'is a list of messages, not of requests; write {"messages": [...]}'
        raise InputError(message, file=name, line=item.line, column=item.column, code="PKV902")
    try:
        if is_deep(item):
            raise InputError(f"is nested more than {MAX_LEVELS} levels deep")
        return TrafficLine(index, name, item.line, item.column, item.text, **_members(item.value, zone))
    except InputError as error:
        return misplaced(error, item, name)


def is_deep(item: JsonValue) -> bool:
    """Whether a value has more than MAX_LEVELS levels. Most texts have fewer brackets than that."""
    if item.text.count("[") + item.text.count("{") <= MAX_LEVELS:
        return False
    level: list[Any] = [item.value]
    for _ in range(MAX_LEVELS):
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list)))
        level = [value for values in inner for value in values]
    return any(isinstance(one, (dict, list)) for one in level)


def misplaced(error: InputError, item: JsonValue, name: str) -> InputError:
    """What is wrong at a path of a value, with its place in the file (PKV902)."""
    place = _shifted(locate(item.text, error.path or ""), item.line, item.column)
    return InputError(error.message, file=name, line=place.line, column=place.column, path=error.path, code="PKV902")


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
        return {"request": value, "api": _api_by_shape(value)}
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
        "api": _api(value) or _api_by_shape(request),
        "session_id": _identifier(value, "session_id"),
        "tenant": _identifier(value, "tenant"),
        "moment": read_timestamp(value.get("timestamp"), zone, "timestamp"),
        "end": read_timestamp(value.get("end_timestamp"), zone, "end_timestamp"),
        "completion": _text(value, "completion"),
        "model": _text(value, "model") if request is None else None,
        "cache_salt": _text(value, "cache_salt") if request is None else None,
        "output_token_ids": _ids(value, "output_token_ids"),
        "output_tokens": _count(value, "output_tokens") if "output_tokens" in value else _completion_tokens(value),
    }


def _kind(value: Any) -> str:
    names = {bool: str(value).lower(), str: "a string", int: "a number", float: "a number", list: "a list"}
    return "null" if value is None else names.get(type(value), "an object")


def _api(value: dict[str, Any]) -> Api | None:
    """The endpoint that `url` (Batch) or `path` names. Only a Batch file promises that it is one."""
    name = "url" if "url" in value else "path"
    given = value.get(name)
    api = api_at(given) if isinstance(given, str) else None
    if api is None and "custom_id" in value and given is not None:
        raise InputError("is not an endpoint that takes a prompt", path=name)
    return api


def api_at(path: str) -> Api | None:
    """The API of the endpoint that a URL or its path ends with; None for one that takes no prompt."""
    found = _ENDPOINT.search(path)
    return _APIS[found[1]] if found else None


def _api_by_shape(request: dict[str, Any] | None) -> Api | None:
    """Completions for a body that has a prompt and no conversation. Only here: a server knows the endpoint."""
    return "completions" if request is not None and completions.looks_like(request) else None


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


def _completion_tokens(value: dict[str, Any]) -> int | None:
    """What a recording says of the usage that the server reported."""
    usage = value.get("usage")
    given = usage.get("completion_tokens", usage.get("output_tokens")) if isinstance(usage, dict) else None
    return given if isinstance(given, int) and not isinstance(given, bool) and given >= 0 else None


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
