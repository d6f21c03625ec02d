"""Tables that tell only when requests came and how long they were (Azure's and BurstGPT's CSV files)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo

from pkv_lint.prompt.clock import Moment, read_timestamp
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.formats.block_line import MOST_SECONDS, BlockLine


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of one kind of table, in lower case."""

    name: str
    time: str
    input_length: str
    output_length: str


TABLES = (
    Table("azure", "timestamp", "contexttokens", "generatedtokens"),
    Table("burstgpt", "timestamp", "request tokens", "response tokens"),
)
MAX_LINE = 64 * 1024


def table_of(first: bytes) -> Table | None:
    """The kind of table whose first line this is."""
    names = [name.lower() for name in cells(first.removeprefix(b"\xef\xbb\xbf"))]
    wanted = ((table, {table.time, table.input_length, table.output_length}) for table in TABLES)
    return next((table for table, needed in wanted if needed <= set(names)), None)


def cells(line: bytes) -> list[str]:
    """The cells of one line; none of one that is no line of a table."""
    try:
        return [cell.strip() for cell in next(csv.reader([line.decode("utf-8", "replace").strip()]), [])]
    except csv.Error:
        return []


def read_table(stream: io.BufferedIOBase, table: Table, name: str, zone: tzinfo) -> Iterator[BlockLine | InputError]:
    """The requests of a table, whose first line names the columns."""
    names = [name.lower() for name in cells(stream.readline(MAX_LINE).removeprefix(b"\xef\xbb\xbf"))]
    places = [names.index(column) for column in (table.time, table.input_length, table.output_length)]
    index, number = -1, 1
    while raw := stream.readline(MAX_LINE):
        number += 1
        if not raw.strip():
            continue
        index += 1
        try:
            yield row(raw, places, index, number, name, zone)
        except InputError as error:
            yield InputError(error.message, file=name, line=number, path=error.path, code="PKV902")


def row(raw: bytes, places: list[int], index: int, number: int, name: str, zone: tzinfo) -> BlockLine:
    found = cells(raw)
    if len(found) <= max(places):
        raise InputError(f"has {len(found)} columns, {max(places) + 1} are needed")
    time, tokens, output = (found[place] for place in places)
    return BlockLine(index, name, number, length(tokens, 1), length(output, 0), moment=moment(time, zone))


def length(cell: str, least: int) -> int:
    try:
        number = int(cell)
    except ValueError:
        number = -1
    if not least <= number < 2**40:
        raise InputError(f"{cell[:40]!r} is not a number of tokens of at least {least}")
    return number


def moment(cell: str, zone: tzinfo) -> Moment:
    try:
        number = float(cell)
    except ValueError:
        return read_timestamp(cell, zone)
    if not 0 <= number < MOST_SECONDS:
        raise InputError(f"needs ISO 8601 or seconds, not {cell[:40]}", path="timestamp")
    return Moment(number)  # seconds since the start of the table
