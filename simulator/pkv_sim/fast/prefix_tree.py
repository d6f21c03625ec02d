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

    def _request(
        self, segment: int, num_prompt_tokens: int, num_output_tokens: int, *, output_known: bool
    ) -> BlockRequest:
        """A request whose chain is on the way to `segment`: all of it, or, without a known output, that of its prompt.

        What fills further blocks then is like nothing else.
        """
        size = self.block_size
        num_tokens = num_with_kv(num_prompt_tokens, num_output_tokens)
        prompt_blocks = num_prompt_tokens // size
        full_blocks = num_tokens // size
        if full_blocks > prompt_blocks and not output_known:
            segment = self._add_segment(segment if prompt_blocks else NO_SEGMENT, prompt_blocks)
        # The last token of a prompt is always computed, for its logits.
        max_hit = (num_prompt_tokens - 1) // size if num_prompt_tokens else 0
        return BlockRequest(segment, max_hit, prompt_blocks, full_blocks, -(-num_tokens // size), num_prompt_tokens)


def num_with_kv(num_prompt_tokens: int, num_output_tokens: int) -> int:
    """The tokens of a request that have a place in the cache at its end: all but the last sampled one."""
    return num_prompt_tokens + num_output_tokens - 1 if num_output_tokens else num_prompt_tokens
