"""Block ids as runs of consecutive numbers: first id, last id, first id, last id and so on."""

from __future__ import annotations

from array import array
from collections.abc import Iterator


def pairs(runs: array[int]) -> Iterator[tuple[int, int]]:
    """The first and the last id of each run."""
    return zip(runs[::2], runs[1::2], strict=True)


def num_shared(one: array[int], other: array[int]) -> int:
    """How many ids both have in common from their starts. Runs are as long as they can be."""
    count = 0
    for (first, last), (other_first, other_last) in zip(pairs(one), pairs(other), strict=False):
        if first != other_first:
            break
        count += min(last, other_last) - first + 1
        if last != other_last:
            break
    return count


def cut(runs: array[int], start: int, stop: int) -> array[int]:
    """The ids at places [start, stop), as runs."""
    found = array("q")
    place = 0
    for first, last in pairs(runs):
        low, high = max(start, place), min(stop, place + last - first + 1)
        if low < high:
            found.extend((first + low - place, first + high - 1 - place))
        place += last - first + 1
    return found
