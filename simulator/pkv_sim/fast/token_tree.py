"""Prefix trees over blocks that are given one by one: as token ids, or as one id for each block."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence

from pkv_lint.prompt.errors import InputError
from pkv_sim.fast.prefix_tree import NO_SEGMENT, BlockRequest, PrefixTree, num_with_kv

# Blocks are compared as raw bytes by the C library, in place. Where they part is found by bisection, in a stretch that
# grows fourfold, so that a difference near the start is found soon.
_FIRST_STRETCH = 16


class BytesTree(PrefixTree):
    """Each segment keeps its blocks as bytes, `width` of them for a block."""

    def __init__(self, block_size: int, width: int) -> None:
        super().__init__(block_size)
        self._width = width
        self._contents: dict[int, bytearray] = {}

    def _find(self, data: memoryview, namespace: Hashable) -> tuple[int, int]:
        """The segment in which the known part of a chain ends, and how many bytes that is."""
        width, children, contents = self._width, self._children, self._contents
        segment, position = NO_SEGMENT, 0
        place = namespace
        while True:
            child = children.get((segment, place, data[position : position + width].tobytes()))
            if child is None:
                return segment, position
            segment = child
            content = contents[segment]
            end = position + len(content)
            if end <= len(data) and content.startswith(data[position:end]):
                # A branch starts where a chain leaves a segment, so at the end of one there is none.
                return segment, end
            position += _num_common_blocks(content, data[position:end], width) * width
            if position == len(data):
                return segment, position
            place = position // width

    def _find_or_add(self, data: memoryview, namespace: Hashable) -> int:
        """The segment in which a chain ends."""
        if not data:
            return NO_SEGMENT
        segment, position = self._find(data, namespace)
        if position == len(data):
            return segment
        if segment != NO_SEGMENT:
            content = self._contents[segment]
            if self.starts[segment] * self._width + len(content) == position:
                content += data[position:]
                return segment
        depth = position // self._width
        child = self._add_segment(segment, depth)
        place = depth if depth else namespace
        self._children[segment, place, data[position : position + self._width].tobytes()] = child
        self._contents[child] = bytearray(data[position:])
        return child


def _num_common_blocks(content: bytearray, data: memoryview, width: int) -> int:
    """How many blocks at the start are the same. One of both may be longer."""
    end = min(len(content), len(data))
    low, stretch = 0, _FIRST_STRETCH * width
    while True:
        if low == end:
            return end // width
        high = min(low + stretch, end)
        if not content.startswith(data[low:high], low):
            break
        low = high
        stretch *= 4
    # In blocks: the first `same` are, the first `other` are not.
    same, other = low // width, high // width
    while same + 1 < other:
        middle = (same + other) // 2
        if content.startswith(data[low : middle * width], low):
            same = middle
        else:
            other = middle
    return same


class TokenTree(BytesTree):
    """Chains given as token ids below 2**31."""

    def __init__(self, block_size: int) -> None:
        super().__init__(block_size, width=block_size * array("i").itemsize)

    def request(
        self,
        prompt: Sequence[int],
        output: Sequence[int] = (),
        *,
        num_output_tokens: int = 0,
        namespace: Hashable = None,
    ) -> BlockRequest:
        """A request with its generated tokens, or, without an `output`, with only their number known.

        Arrays of 32-bit integers (`array("i")`, numpy's int32) are read in place, other sequences converted. Requests
        share blocks within a `namespace` only: put there whatever sets blocks apart (a salt, an adapter).
        """
        num_prompt = len(prompt)
        if not len(output):
            segment = self._find_or_add(self._whole_blocks(prompt), namespace)
            return self._request(segment, num_prompt, num_output_tokens, output_known=False)
        size = num_with_kv(num_prompt, len(output)) // self.block_size * self._width
        data = memoryview(b"".join((_raw(prompt), _raw(output))))[:size]
        return self._request(self._find_or_add(data, namespace), num_prompt, len(output), output_known=True)

    def known_prefix(self, prompt: Sequence[int], namespace: Hashable = None) -> tuple[int, int]:
        """The longest known prefix of a prompt, in full blocks: the segment in which it ends (NO_SEGMENT without one)
        and its depth. Adds nothing."""
        segment, position = self._find(self._whole_blocks(prompt), namespace)
        return segment, position // self._width

    def _whole_blocks(self, tokens: Sequence[int]) -> memoryview:
        return _raw(tokens)[: len(tokens) // self.block_size * self._width]


def _raw(tokens: Sequence[int]) -> memoryview:
    try:
        view = memoryview(tokens)  # type: ignore[arg-type]
    except TypeError:
        view = memoryview(array("i", tokens))
    if view.format != "i":
        view = memoryview(array("i", tokens))
    return view.cast("B")


class BlockIdTree(BytesTree):
    """Chains given as one id of up to 64 bits for each block (`hash_ids`)."""

    def __init__(self, block_size: int) -> None:
        super().__init__(block_size, width=array("q").itemsize)

    def request(
        self,
        hash_ids: Sequence[int],
        num_prompt_tokens: int,
        *,
        num_output_tokens: int = 0,
        namespace: Hashable = None,
    ) -> BlockRequest:
        """A request whose output is not known but for its length. The id of a partly filled block does not count.

        Raises InputError when a full block has no id or an id does not fit.
        """
        full = num_prompt_tokens // self.block_size
        if len(hash_ids) < full:
            raise InputError(f"{num_prompt_tokens} prompt tokens fill {full} blocks, but {len(hash_ids)} have an id")
        try:
            data = memoryview(array("q", hash_ids[:full])).cast("B")
        except OverflowError:
            raise InputError("block ids must fit into 64 bits, with a sign") from None
        segment = self._find_or_add(data, namespace)
        return self._request(segment, num_prompt_tokens, num_output_tokens, output_known=False)
