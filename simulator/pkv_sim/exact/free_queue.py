"""The free blocks in eviction order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

_NOT_FREE = -1


class FreeKVCacheBlockQueue:
    """A doubly linked list over block ids 0 to num_blocks - 1, all free and in id order at first.

    The links lie in two arrays indexed by block id (vLLM's lie in the blocks themselves), so taking a block out of the
    middle costs the same as taking the first. The index num_blocks stands for both ends.
    """

    __slots__ = ("_end", "_next", "_previous", "num_free_blocks")

    def __init__(self, num_blocks: int) -> None:
        self._end = num_blocks
        self._next: list[int] = [*range(1, num_blocks + 1), 0]
        self._previous: list[int] = [num_blocks, *range(num_blocks)]
        self.num_free_blocks = num_blocks

    def popleft_n(self, count: int) -> list[int]:
        """Takes the first `count` blocks. The caller has made sure that there are as many."""
        following = self._next
        taken = []
        block = following[self._end]
        for _ in range(count):
            taken.append(block)
            after = following[block]
            following[block] = _NOT_FREE
            block = after
        following[self._end] = block
        self._previous[block] = self._end
        self.num_free_blocks -= count
        return taken

    def remove(self, block: int) -> None:
        """Takes a block out of wherever it stands. It must be free."""
        before, after = self._previous[block], self._next[block]
        self._next[before] = after
        self._previous[after] = before
        self._next[block] = _NOT_FREE
        self.num_free_blocks -= 1

    def prepend_n(self, blocks: Sequence[int]) -> None:
        """Puts blocks in front of all others, in this order."""
        self._insert(blocks, self._end, self._next[self._end])

    def append_n(self, blocks: Sequence[int]) -> None:
        """Puts blocks behind all others, in this order."""
        self._insert(blocks, self._previous[self._end], self._end)

    def _insert(self, blocks: Iterable[int], before: int, after: int) -> None:
        following, previous = self._next, self._previous
        count = 0
        for block in blocks:
            following[before] = block
            previous[block] = before
            before = block
            count += 1
        following[before] = after
        previous[after] = before
        self.num_free_blocks += count

    def __contains__(self, block: int) -> bool:
        return self._next[block] != _NOT_FREE

    def __iter__(self) -> Iterator[int]:
        """The free blocks, next to be taken first."""
        block = self._next[self._end]
        while block != self._end:
            yield block
            block = self._next[block]

    def check_invariants(self) -> None:
        """Raises AssertionError when the links contradict each other."""
        blocks = list(self)
        assert len(blocks) == len(set(blocks)) == self.num_free_blocks
        assert sum(block in self for block in range(self._end)) == self.num_free_blocks
        for before, after in zip([self._end, *blocks], [*blocks, self._end], strict=True):
            assert self._next[before] == after
            assert self._previous[after] == before
