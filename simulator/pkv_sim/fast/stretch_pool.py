"""The blocks of a KV cache as stretches of chains: who uses them, which are cached, which is evicted next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from pkv_sim.fast.prefix_tree import PrefixTree
from pkv_sim.fast.stretches import Copy, cut, join, take_over, without

_UNBOUNDED = 1 << 62


class StretchPool:
    """What is cached is a prefix of every chain: who uses a block uses the blocks before it and lets go of them later.

    So a few stretches for each segment of the tree say it all. Blocks become free in the order in which their requests
    end, those of one request from the last to the first. The queue has the segment in which each request ended: what
    has been used again since is told by its newer state. Free blocks without a hash need only be counted, as they are
    taken first of all, or in older releases first of their request.
    """

    def __init__(self, tree: PrefixTree, num_gpu_blocks: int | None, *, unhashed_first: bool) -> None:
        """`num_gpu_blocks` counts the null block, as vLLM's option does; None is a cache without bounds."""
        if num_gpu_blocks is not None and num_gpu_blocks < 1:
            raise ValueError("a block pool needs at least the null block")
        self.tree = tree
        self.num_usable_blocks = _UNBOUNDED if num_gpu_blocks is None else num_gpu_blocks - 1
        self.num_free_blocks = self.num_usable_blocks
        self.num_cached_hashes = 0
        self._unhashed_first = unhashed_first
        # Of the free blocks, those without a hash that are taken first.
        self._num_blank = self.num_usable_blocks
        # Those that are taken with their request, by its time.
        self._late_blank: dict[int, int] = {}
        self._stretches: dict[int, list[int]] = {}
        # By segment, in the order in which they got their hashes; and by the time since which they are free.
        self._copies: dict[int, dict[Copy, None]] = {}
        self._copies_since: dict[int, list[Copy]] = {}
        # Where the requests ended, the time of the first of them, and the time of the next.
        self._queue: deque[int] = deque()
        self._front = 1
        self._now = 1

    @property
    def num_cached_blocks(self) -> int:
        """Blocks with a hash. Several may hold the same one."""
        return self.num_cached_hashes + sum(copy.num_blocks for copies in self._copies.values() for copy in copies)

    def reset(self) -> bool:
        """Forgets all hashes. Refused (False) while any block is in use."""
        if self.num_free_blocks != self.num_usable_blocks:
            return False
        self._stretches.clear()
        self._copies.clear()
        self._copies_since.clear()
        self._queue.clear()
        self._late_blank.clear()
        self._front = self._now
        self._num_blank = self.num_usable_blocks
        self.num_cached_hashes = 0
        return True

    def _hops(self, segment: int, depth: int, low: int = 0) -> Iterator[tuple[int, int, int]]:
        """The way back along a chain of `depth` blocks that goes through `segment` at its end or before, as far as it
        lies behind the first `low` blocks: segments with the first block and the end of their part."""
        parents, starts = self.tree.parents, self.tree.starts
        while depth > low:
            start = starts[segment]
            if start < depth:
                yield segment, start if start > low else low, depth
                depth = start
            segment = parents[segment]

    def cached_blocks_of(self, segment: int, depth: int) -> int:
        """How many of the first `depth` blocks of a chain through `segment` are cached."""
        for hop, _, end in self._hops(segment, depth):
            if (stretches := self._stretches.get(hop)) is not None:
                return min(stretches[-2], end)
        return 0

    def _num_free_of(self, segment: int, depth: int) -> int:
        """How many of the first `depth` blocks of a chain, which are cached, are free."""
        count = 0
        for hop, low, end in self._hops(segment, depth):
            stretches = self._stretches[hop]
            for index in range(0, len(stretches), 2):
                if low >= end:
                    break
                stop = min(stretches[index], end)
                if stretches[index + 1] > 0:
                    count += stop - low
                low = stop
        return count

    def _hold(self, segment: int, depth: int) -> None:
        """Uses the first `depth` blocks of a chain, which are cached, once more."""
        for hop, low, end in self._hops(segment, depth):
            stretches = self._stretches[hop]
            for index in range(0, cut(stretches, end), 2):
                state = stretches[index + 1]
                if state > 0:
                    self.num_free_blocks -= stretches[index] - low
                    state = 0
                stretches[index + 1] = state - 1
                low = stretches[index]

    def _take(self, count: int) -> None:
        """Uses the `count` free blocks that come first. There are as many."""
        self.num_free_blocks -= count
        self._num_blank -= count
        if self._num_blank < 0:
            lacking, self._num_blank = -self._num_blank, 0
            self._evict(lacking)

    def _register(self, segment: int, low: int, depth: int) -> list[Copy]:
        """Gives new blocks the hashes [low, depth) of a chain. Those that are cached already make copies."""
        made = []
        for hop, first, end in self._hops(segment, depth, low):
            stretches = self._stretches.setdefault(hop, [])
            cached = stretches[-2] if stretches else first
            if first < cached:
                copy = Copy(hop, first, min(cached, end))
                self._copies.setdefault(hop, {})[copy] = None
                made.append(copy)
            if cached < end:
                self.num_cached_hashes += end - cached
                if stretches and stretches[-1] == -1:
                    stretches[-2] = end
                else:
                    stretches += (end, -1)
        return made

    def _release(self, segment: int, depth: int, copies: list[Copy], num_unhashed: int) -> None:
        """Lets go of the blocks of a request: the first `depth` ones of its chain, or its copies where it has such, and
        those without a hash."""
        now = self._now
        for hop, low, end in self._hops(segment, depth):
            stretches = self._stretches[hop]
            held = [(low, end)]
            if copies:
                # A copy that took over meanwhile is no longer one: others may use it as well.
                held = without(low, end, [span for copy in copies if copy.segment == hop for span in copy.spans])
            for first, last in held:
                begin = cut(stretches, first) if first > low else 0
                for index in range(begin, cut(stretches, last), 2):
                    state = stretches[index + 1] + 1
                    if not state:
                        state = now
                        self.num_free_blocks += stretches[index] - first
                    stretches[index + 1] = state
                    first = stretches[index]
            if len(stretches) > 2:
                join(stretches)
        if copies:
            self._copies_since[now] = copies
        for copy in copies:
            copy.state = now
            self.num_free_blocks += copy.num_blocks
        self.num_free_blocks += num_unhashed
        self._close(segment, num_unhashed)

    def _close(self, segment: int, num_unhashed: int) -> None:
        """Queues the blocks that have become free now, on the way to `segment` and without a hash."""
        if self._unhashed_first:
            self._num_blank += num_unhashed
        elif num_unhashed:
            self._late_blank[self._now] = num_unhashed
        self._queue.append(segment)
        self._now += 1

    def _evict(self, count: int) -> None:
        """Takes their hashes from the `count` free blocks that come first."""
        known, copies, queue, late_blank = self._stretches, self._copies, self._queue, self._late_blank
        parents, starts = self.tree.parents, self.tree.starts
        when = self._front
        while True:
            segment = queue[0]
            if when in late_blank:
                taken = min(count, late_blank[when])
                count -= taken
                late_blank[when] -= taken
                if not late_blank[when]:
                    del late_blank[when]
            while count and segment >= 0:
                if segment in copies:
                    count -= self._evict_among_copies(segment, when, count)
                elif (stretches := known.get(segment)) is not None:
                    # Without copies deeper blocks are never newer, neither in a segment nor along a chain.
                    if stretches[-1] == when:
                        low = stretches[-4] if len(stretches) > 2 else starts[segment]
                        taken = stretches[-2] - low
                        if taken > count:
                            taken = count
                            stretches[-2] -= count
                        elif len(stretches) > 2:
                            del stretches[-2:]
                        else:
                            del known[segment]
                        self.num_cached_hashes -= taken
                        count -= taken
                    elif not copies:
                        break
                if count:
                    segment = parents[segment]
            if not count:
                queue[0] = segment
                self._front = when
                return
            queue.popleft()
            self._copies_since.pop(when, None)
            when += 1

    def _evict_among_copies(self, segment: int, when: int, count: int) -> int:
        """Evicts the deepest blocks of a segment that are free since `when`, at most `count`; how many these are."""
        left = count
        copies = self._copies[segment]
        own = [copy for copy in self._copies_since.get(when, ()) if copy.segment == segment]
        while left:
            low = self.tree.starts[segment]
            found: list[tuple[int, int, Copy | None]] = []
            stretches = self._stretches[segment]
            for index in range(0, len(stretches), 2):
                if stretches[index + 1] == when:
                    found.append((stretches[index], low, None))
                low = stretches[index]
            found += ((high, low, copy) for copy in own for low, high in copy.spans)
            if not found:
                break
            high, low, copy = max(found, key=lambda blocks: blocks[0])
            low = max(low, high - left)
            left -= high - low
            if copy is None:
                self._succeed(segment, low, high)
            else:
                copy.split_off(low, high)
                if not copy.spans:
                    del copies[copy]
        if not copies:
            del self._copies[segment]
        return count - left

    def _succeed(self, segment: int, low: int, high: int) -> None:
        """Lets the copies of evicted blocks take over from them; where there are none, the hash is gone."""
        stretches = self._stretches[segment]
        begin = cut(stretches, low) if low > self.tree.starts[segment] else 0
        end = cut(stretches, high)
        heirs = take_over(self._copies[segment], low, high)
        stretches[begin:end] = heirs
        self.num_cached_hashes -= high - (heirs[-2] if heirs else low)
        join(stretches)
        if not stretches:
            del self._stretches[segment]

    def check_invariants(self) -> None:
        """Raises AssertionError when the pool contradicts itself. Costs time in proportion to tree and queue."""
        parents, starts = self.tree.parents, self.tree.starts
        num_hashes = num_free = num_held = 0
        free_since: dict[int, set[int]] = {}
        for segment, stretches in self._stretches.items():
            low, parent = starts[segment], parents[segment]
            assert parent < 0 or (parent in self._stretches and self._stretches[parent][-2] >= low)
            for stop, state in zip(stretches[::2], stretches[1::2], strict=True):
                assert low < stop and state != 0
                num_hashes += stop - low
                if state > 0:
                    num_free += stop - low
                    free_since.setdefault(state, set()).add(segment)
                else:
                    num_held += stop - low
                low = stop
        assert num_hashes == self.num_cached_hashes
        for segment, copies in self._copies.items():
            assert copies
            for copy in copies:
                assert copy.spans and copy.segment == segment and copy.state
                assert all(starts[segment] <= a < b <= self._stretches[segment][-2] for a, b in copy.spans)
                if copy.state > 0:
                    num_free += copy.num_blocks
                    free_since.setdefault(copy.state, set()).add(segment)
                    assert copy in self._copies_since[copy.state]
                else:
                    num_held += copy.num_blocks
        assert self._num_blank >= 0 and min(self._late_blank.values(), default=1) > 0
        assert num_free + self._num_blank + sum(self._late_blank.values()) == self.num_free_blocks
        assert num_held + self.num_free_blocks <= self.num_usable_blocks
        assert self._front + len(self._queue) == self._now
        for when, segment in enumerate(self._queue, self._front):
            chain = set()
            while segment >= 0:
                chain.add(segment)
                segment = parents[segment]
            assert free_since.pop(when, set()) <= chain
        assert not free_since
