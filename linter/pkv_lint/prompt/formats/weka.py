"""WEKA's traces of coding agents: one session per line, its requests inside, blocks named by ids of the session."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

from pkv_lint.prompt.clock import UNKNOWN, Moment
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.formats.block_line import BlockLine, full_blocks, runs_of_ids, runs_of_pairs, seconds, whole_number
from pkv_lint.prompt.json_values import JsonValue
from pkv_lint.prompt.source import format_path, join_path

BLOCK_SIZE = 64
"""Tokens that one id stands for where a session does not say."""


class Sessions:
    """Reads sessions one after the other. The ids of a session are its own, so each gets a range to itself.

    `subagents` says whether requests of nested agents count; they start `t` seconds after their agent does.
    """

    def __init__(self, block_size: int | None, *, subagents: bool) -> None:
        self.block_size = block_size
        self.subagents = subagents
        self._base = 0

    def requests(self, item: JsonValue, index: int, name: str) -> Iterator[BlockLine]:
        """The requests of a session, in its order. Raises InputError for the session as a whole."""
        value = item.value
        size = whole_number(value, "block_size", 1) if "block_size" in value else BLOCK_SIZE
        if self.block_size is None:
            self.block_size = size
        elif size != self.block_size:
            raise InputError(f"its blocks hold {size} tokens, not {self.block_size}", path="block_size")
        base = 0 if value.get("hash_id_scope") == "global" else self._base
        session = str(value.get("id") or f"line {item.line}")
        # A session that cannot be used is left out as a whole.
        found = [
            BlockLine(
                at, name, item.line, request.tokens, request.output, request.runs, session, request.moment, request.end
            )
            for at, request in enumerate(self._requests(value, (), 0.0, base), index)
        ]
        yield from found

    def _requests(
        self, value: dict[str, Any], path: tuple[str | int, ...], start: float, base: int
    ) -> Iterator[_Request]:
        given = value.get("requests")
        if not isinstance(given, list):
            raise InputError("needs a list of requests", path=format_path((*path, "requests")))
        for at, request in enumerate(given):
            place = (*path, "requests", at)
            if not isinstance(request, dict):
                raise InputError("needs a JSON object", path=format_path(place))
            try:
                if "requests" in request:
                    if self.subagents:
                        began = seconds(request, "t").seconds or 0.0
                        yield from self._requests(request, place, start + began, base)
                else:
                    yield self._request(request, start, base)
            except InputError as error:
                inner = error.path or ""
                raise InputError(
                    error.message, path=inner if inner.startswith("requests[") else join_path(format_path(place), inner)
                ) from None

    def _request(self, request: dict[str, Any], start: float, base: int) -> _Request:
        assert self.block_size is not None
        tokens = whole_number(request, "in", 1)
        name = "hash_ids" if "hash_ids" in request else "hash_ids_rle"
        read = runs_of_ids if name == "hash_ids" else runs_of_pairs
        runs = read(request.get(name), (name,), base)
        self._base = max(self._base, max(runs, default=-1) + 1)
        began = seconds(request, "t").seconds
        took = seconds(request, "api_time").seconds
        return _Request(
            tokens,
            whole_number(request, "out") if request.get("out") is not None else None,
            full_blocks(runs, tokens, self.block_size, (name,)),
            Moment(start + began) if began is not None else UNKNOWN,
            Moment(start + began + took) if began is not None and took is not None else UNKNOWN,
        )


class _Request(NamedTuple):
    tokens: int
    output: int | None
    runs: array[int]
    moment: Moment
    end: Moment
