"""Stretches: blocks of one segment that were last used together.

The cached blocks of a segment are a flat list [stop, state, stop, state, ...], ascending. A stretch ends before depth
`stop` and starts where the one before ends, the first one at the start of the segment. Its state is the time since
which it is free, from 1 on, or, while it is in use, minus the number of its users.
"""

from __future__ import annotations


class Copy:
    """Blocks of a segment that got their hash while another block held it already.

    They cannot be hit, and they keep their place in the eviction order, until the block in front of them is evicted.
    `spans` are the [low, high) depths for which that has not happened, ascending; what takes over leaves them.
    """

    __slots__ = ("segment", "spans", "state")

    def __init__(self, segment: int, low: int, high: int) -> None:
        self.segment = segment
        self.spans = [(low, high)]
        self.state = -1

    @property
    def num_blocks(self) -> int:
        return sum(high - low for low, high in self.spans)

    def split_off(self, low: int, high: int) -> list[tuple[int, int]]:
        """Takes out what lies within [low, high)."""
        taken = [(max(low, a), min(high, b)) for a, b in self.spans if a < high and low < b]
        if taken:
            rest = [piece for a, b in self.spans for piece in ((a, min(b, low)), (max(a, high), b))]
            self.spans = [(a, b) for a, b in rest if a < b]
        return taken


def cut(stretches: list[int], depth: int) -> int:
    """Sees to it that a stretch ends at a depth, which is within the list; the index of the one behind it."""
    index = 0
    while stretches[index] < depth:
        index += 2
    if stretches[index] > depth:
        stretches[index:index] = (depth, stretches[index + 1])
    return index + 2


def join(stretches: list[int]) -> None:
    """Makes one stretch of neighbours of equal state."""
    for index in range(len(stretches) - 4, -1, -2):
        if stretches[index + 1] == stretches[index + 3]:
            del stretches[index : index + 2]


def without(low: int, high: int, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """[low, high) less some spans, in ascending order."""
    rest = []
    for first, last in sorted(spans):
        if low < min(first, high):
            rest.append((low, min(first, high)))
        low = max(low, last)
    if low < high:
        rest.append((low, high))
    return rest


def take_over(copies: dict[Copy, None], low: int, high: int) -> list[int]:
    """The stretches that take the place of evicted blocks [low, high): at each depth the copy that is first in order.

    Copies that are used up by that are removed. Deeper blocks may remain without a successor.
    """
    wanted = [(low, high)]
    found: list[tuple[int, int, int]] = []
    used_up = []
    for copy in copies:
        taken = [piece for span in wanted for piece in copy.split_off(*span)]
        if taken:
            found += ((first, last, copy.state) for first, last in taken)
            wanted = [piece for span in wanted for piece in without(*span, taken)]
            if not copy.spans:
                used_up.append(copy)
            if not wanted:
                break
    for copy in used_up:
        del copies[copy]
    return [value for _, last, state in sorted(found) for value in (last, state)]
