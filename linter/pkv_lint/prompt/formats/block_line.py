"""A request of which a trace tells the cache blocks, or only the lengths, instead of its content."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

from pkv_lint.prompt.clock import UNKNOWN, Moment
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.source import format_path

MOST_SECONDS = 1e15
"""Times since the start of a trace are below."""


@dataclass(frozen=True, slots=True)
class BlockLine:
    """`index` counts requests from 0, bad lines included; `line` of `file` is 1-based. Lengths are in tokens.

    `runs` are the full blocks of the prompt as ids, run-length coded: first id, last id, first id, last id and so on;
    what is consecutive is one run.
    Equal ids at the same place behind equal ids are equal content; a partial block at the end has no id. None: nothing
    is known of the content. `output_length` None: not said.
    """

    index: int
    file: str
    line: int
    input_length: int
    output_length: int | None = None
    runs: array[int] | None = None
    session_id: str | None = None
    moment: Moment = UNKNOWN
    end: Moment = UNKNOWN


def whole_number(value: dict[str, Any], name: str, least: int = 0) -> int:
    """The member of that name. Raises InputError for what is missing or no whole number of at least `least`."""
    given = value.get(name)
    if isinstance(given, int) and not isinstance(given, bool) and least <= given < 2**40:
        return given
    raise InputError(f"needs a whole number of at least {least}", path=name if name in value else None)


def seconds(value: dict[str, Any], name: str, scale: float = 1.0) -> Moment:
    """A time since the start of the trace; `scale` turns it into seconds. Raises InputError."""
    given = value.get(name)
    if given is None:
        return UNKNOWN
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < MOST_SECONDS:
        return Moment(given * scale)
    raise InputError("needs a number that is not negative", path=name)


def runs_of_ids(ids: Any, path: tuple[str | int, ...], base: int = 0) -> array[int]:
    """Ids as runs, `base` added to each. Raises InputError with the path of what is no id."""
    if not isinstance(ids, list):
        raise InputError("needs a list of block ids", path=format_path(path))
    runs = array("q")
    last = None
    for at, block in enumerate(ids):
        if type(block) is not int or not 0 <= block < 2**40:
            raise InputError("is not a block id", path=format_path((*path, at)))
        if last is not None and block == last + 1:
            runs[-1] += 1
        else:
            runs.extend((base + block, base + block))
        last = block
    return runs


def runs_of_pairs(pairs: Any, path: tuple[str | int, ...], base: int = 0) -> array[int]:
    """Pairs [first, last] as runs, `base` added to each id. Raises InputError with the path of what is no pair."""
    if not isinstance(pairs, list):
        raise InputError("needs a list of pairs [first, last]", path=format_path(path))
    runs = array("q")
    for at, pair in enumerate(pairs):
        try:
            first, last = pair
            if type(first) is not int or type(last) is not int or not 0 <= first <= last < 2**40:
                raise ValueError
        except (TypeError, ValueError):
            raise InputError("is not a pair [first, last] of block ids", path=format_path((*path, at))) from None
        if runs and runs[-1] + 1 == base + first:
            runs[-1] = base + last
        else:
            runs.append(base + first)
            runs.append(base + last)
    return runs


def full_blocks(runs: array[int], tokens: int, block_size: int, path: tuple[str | int, ...]) -> array[int]:
    """The runs without the id of a partial last block. Raises InputError where ids and length contradict each other."""
    count = number_of_blocks(runs)
    full, partial = divmod(tokens, block_size)
    if count == full + 1 and partial:
        runs[-1] -= 1
        if runs[-1] < runs[-2]:
            del runs[-2:]
    elif count != full:
        message = f"{count:,} blocks of {block_size} tokens do not make a prompt of {tokens:,} tokens"
        if fits := [size for size in (16, 32, 64, 128, 256, 512, 1024) if -(-tokens // size) == count]:
            message += f" (blocks of {fits[0]} would: --block-size {fits[0]})"
        raise InputError(message, path=format_path(path))
    return runs


def number_of_blocks(runs: array[int]) -> int:
    """How many ids the runs stand for."""
    return sum(runs[1::2]) - sum(runs[::2]) + len(runs) // 2
