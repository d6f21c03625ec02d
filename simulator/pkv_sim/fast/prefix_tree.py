"""The prefixes of a traffic as a tree of segments, independent of any cache."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

NO_SEGMENT = -1


class BlockRequest(NamedTuple):
    """A request in blocks, made by a prefix tree for all caches over this tree.

    Its chain is the first `full_blocks` blocks on the way from the root to the end of `segment`. A lookup may find
    `max_hit` of them; `prompt_blocks` are findable as soon as the request is admitted, the others, which generated
    tokens fill, when it ends. It takes `num_blocks` blocks, partly filled ones included. `num_prompt_tokens` is in
    tokens.
    """

    segment: int
    max_hit: int
    prompt_blocks: int
    full_blocks: int
    num_blocks: int
    num_prompt_tokens: int


class PrefixTree:
    """Segments of blocks. A segment never splits: what leaves it in the middle is a child that starts at that depth.

    Depths count blocks from the start of a prompt. Segment s holds the blocks from `starts[s]` on of every chain that
    goes through it; the blocks before are those of its parent's chain. So a segment and a depth name a chain, as a
    block hash does. Where a prefix stands never changes, and the tree never forgets.
    """

    def __init__(self, block_size: int) -> None:
        """`block_size` is in tokens."""
        if block_size < 1:
            raise ValueError("a block holds at least one token")
        self.block_size = block_size
        self.parents: list[int] = []
        self.starts: list[int] = []
        # By parent, depth and first block; at the root the namespace stands for the depth.
        self._children: dict[tuple[int, Hashable, Hashable], int] = {}

    def _add_segment(self, parent: int, start: int) -> int:
        self.parents.append(parent)
        self.starts.append(start)
        return len(self.starts) - 1

    def _num_full_blocks(self, num_prompt_tokens: int, num_output_tokens: int) -> int:
        """The full blocks of a request at its end. The last sampled token has no KV."""
        return (num_prompt_tokens + max(0, num_output_tokens - 1)) // self.block_size

    def _request(self, segment: int, num_prompt_tokens: int, num_output_tokens: int) -> BlockRequest:
        """A request whose whole chain, output included, is on the way to `segment`."""
        size = self.block_size
        num_tokens = num_prompt_tokens + max(0, num_output_tokens - 1)
        # The last token of a prompt is always computed, for its logits.
        max_hit = max(0, num_prompt_tokens - 1) // size
        return BlockRequest(
            segment, max_hit, num_prompt_tokens // size, num_tokens // size, -(-num_tokens // size), num_prompt_tokens
        )

    def _request_of_unknown_output(self, segment: int, num_prompt_tokens: int, num_output_tokens: int) -> BlockRequest:
        """A request whose prompt is on the way to `segment`, and whose output is like no other."""
        prompt_blocks = num_prompt_tokens // self.block_size
        if self._num_full_blocks(num_prompt_tokens, num_output_tokens) > prompt_blocks:
            segment = self._add_segment(segment if prompt_blocks else NO_SEGMENT, prompt_blocks)
        return self._request(segment, num_prompt_tokens, num_output_tokens)
