"""Traffic of every format: requests with their content, or traces that tell blocks or lengths only.

The format is told by the first value of a file; all of a file is of one format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, tzinfo
from itertools import chain
from typing import Any, Literal

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.formats import datasets, lengths, mooncake, weka
from pkv_lint.prompt.formats.block_line import BlockLine, number_of_blocks
from pkv_lint.prompt.json_values import JsonValue, read_values
from pkv_lint.prompt.streams import Source, name_of, plain_stream
from pkv_lint.prompt.traffic import TrafficLine, misplaced, request_line

__all__ = ["BlockLine", "Format", "Traffic", "number_of_blocks", "read_traffic"]

Format = Literal["requests", "mooncake", "weka", "azure", "burstgpt", "sharegpt", "custom", "spec_bench"]
Item = TrafficLine | BlockLine | InputError

NAMES: dict[Format, str] = {
    "requests": "requests",
    "mooncake": "a trace with hash_ids",
    "weka": "a trace of sessions",
    "azure": "a table of lengths",
    "burstgpt": "a table of lengths",
    "sharegpt": "ShareGPT conversations",
    "custom": "prompts of a benchmark",
    "spec_bench": "questions of a benchmark",
}


@dataclass(frozen=True, slots=True)
class Traffic:
    """`items` are the requests in the order of the file, read as they are taken; what cannot be used stands in its
    place as an InputError. `block_size` is what one block id stands for, in tokens; None where content is known."""

    format: Format
    block_size: int | None
    items: Iterator[Item]


def read_traffic(
    source: Source,
    *,
    name: str | None = None,
    zone: tzinfo = UTC,
    block_size: int | None = None,
    subagents: bool = False,
) -> Traffic:
    """The requests of a file (`-` is stdin) or of a binary stream; gzip and zstd are told by the first bytes.

    `block_size` is what one id of a trace with `hash_ids` stands for (by default what its format says), `subagents`
    says whether the requests of nested agents count, `zone` is the server's time zone. Raises InputError when the file
    as a whole cannot be read, here or while the items are taken.
    """
    reader = _Reader(name_of(source, name), zone, block_size, subagents)
    items = reader.items(source)
    first = next(items)
    return Traffic(reader.format, reader.block_size, chain([first], items))


class _Reader:
    def __init__(self, name: str, zone: tzinfo, block_size: int | None, subagents: bool) -> None:
        self.name = name
        self.zone = zone
        self.format: Format = "requests"
        self.block_size: int | None = None
        self._stated_block_size = block_size
        self._subagents = subagents
        self._index = 0

    def items(self, source: Source) -> Iterator[Item]:
        """Raises InputError for a file that holds no request."""
        found = False
        for item in self._read(source):
            found = True
            yield item
        if not found:
            raise InputError("holds no request", file=self.name, code="PKV901")

    def _read(self, source: Source) -> Iterator[Item]:
        with plain_stream(source, self.name) as stream:
            # Buffered readers and GzipFile can be looked into.
            head: bytes = stream.peek(lengths.MAX_LINE)  # type: ignore[attr-defined]
            table = lengths.table_of(head.partition(b"\n")[0])
            if table is not None:
                self.format = "azure" if table.name == "azure" else "burstgpt"
                yield from lengths.read_table(stream, table, self.name, self.zone)
                return
            make: Callable[[JsonValue, int], Iterator[Item]] | None = None
            for item in read_values(stream, self.name):
                if isinstance(item, InputError):
                    self._index += 1
                    yield item
                    continue
                kind = format_of(item.value)
                if make is None:
                    self.format, make = kind, self._maker(kind)
                yield from self._checked(item, kind, make)

    def _checked(
        self, item: JsonValue, kind: Format, make: Callable[[JsonValue, int], Iterator[Item]]
    ) -> Iterator[Item]:
        try:
            if kind != self.format:
                raise InputError(f"is {NAMES[kind]}, the file began as {NAMES[self.format]}")
            for made in make(item, self._index):
                self._index += 1
                yield made
        except InputError as error:
            if error.file is not None:
                raise
            self._index += 1
            yield misplaced(error, item, self.name)

    def _maker(self, kind: Format) -> Callable[[JsonValue, int], Iterator[Item]]:
        name = self.name
        if kind == "requests":
            return lambda item, index: iter([request_line(item, index, name, self.zone)])
        if kind == "mooncake":
            size = self.block_size = self._stated_block_size or mooncake.BLOCK_SIZE
            return lambda item, index: mooncake.requests(item, index, name, size)
        if kind == "weka":
            sessions = weka.Sessions(self._stated_block_size, subagents=self._subagents)

            def session(item: JsonValue, index: int) -> Iterator[Item]:
                for request in sessions.requests(item, index, name):
                    self.block_size = sessions.block_size
                    yield request

            return session
        of = {"sharegpt": datasets.sharegpt, "custom": datasets.custom, "spec_bench": datasets.spec_bench}[kind]
        return lambda item, index: of(item, index, name)


def format_of(value: Any) -> Format:
    """The format that one value of a file is written in."""
    if not isinstance(value, dict) or any(name in value for name in ("request", "token_ids", "messages", "body")):
        return "requests"
    if "hash_ids" in value:
        return "mooncake"
    if "requests" in value:
        return "weka"
    if "conversations" in value:
        return "sharegpt"
    if "turns" in value:
        return "spec_bench"
    if "prompt" in value and "model" not in value:
        return "custom"
    return "requests"
