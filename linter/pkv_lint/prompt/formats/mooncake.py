"""Traces with one request per line that name their blocks by `hash_ids` (Mooncake, and what was written like it)."""

from __future__ import annotations

from collections.abc import Iterator

from pkv_lint.prompt.formats.block_line import BlockLine, full_blocks, runs_of_ids, seconds, whole_number
from pkv_lint.prompt.json_values import JsonValue

BLOCK_SIZE = 512
"""Tokens that one id of Mooncake's own traces stands for."""


def requests(item: JsonValue, index: int, name: str, block_size: int) -> Iterator[BlockLine]:
    """The request of a line. Raises InputError."""
    value = item.value
    tokens = whole_number(value, "input_length", 1)
    ids = runs_of_ids(value.get("hash_ids"), ("hash_ids",))
    yield BlockLine(
        index,
        name,
        item.line,
        tokens,
        whole_number(value, "output_length") if value.get("output_length") is not None else None,
        full_blocks(ids, tokens, block_size, ("hash_ids",)),
        moment=seconds(value, "timestamp", 0.001),
    )
