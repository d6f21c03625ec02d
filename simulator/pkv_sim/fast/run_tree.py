"""A prefix tree over blocks whose ids are given as runs of consecutive numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from pkv_lint.prompt.errors import InputError
from pkv_sim.fast.prefix_tree import NO_SEGMENT, BlockRequest, PrefixTree


class BlockRunTree(PrefixTree):
    """Chains given as [first, last] ranges of block ids (`hash_ids_rle`); the cost does not depend on their lengths.

    Inside, a run is the depth at which it ends and its shift, id minus depth, which is the same for all its blocks.
    """

    def __init__(self, block_size: int) -> None:
        super().__init__(block_size)
        self._runs: dict[int, tuple[list[int], list[int]]] = {}

    def request(
        self,
        runs: Iterable[Sequence[int]],
        num_prompt_tokens: int,
        *,
        num_output_tokens: int = 0,
        namespace: Hashable = None,
    ) -> BlockRequest:
        """A request whose output is not known but for its length. The id of a partly filled block does not count.

        Raises InputError when a run is empty or a full block has no id.
        """
        full = num_prompt_tokens // self.block_size
        ends: list[int] = []
        shifts: list[int] = []
        depth = 0
        for first, last in runs:
            if last < first:
                raise InputError(f"the run of block ids [{first}, {last}] is empty")
            if depth < full:
                shift = first - depth
                depth += last - first + 1
                if shifts and shifts[-1] == shift:
                    ends[-1] = depth
                else:
                    ends.append(depth)
                    shifts.append(shift)
        if depth < full:
            raise InputError(f"{num_prompt_tokens} prompt tokens fill {full} blocks, but {depth} have an id")
        if ends:
            ends[-1] = full
        segment = self._find_or_add(ends, shifts, namespace)
        return self._request(segment, num_prompt_tokens, num_output_tokens, output_known=False)

    def _find_or_add(self, ends: list[int], shifts: list[int], namespace: Hashable) -> int:
        """The segment in which the chain of these runs ends."""
        if not ends:
            return NO_SEGMENT
        children = self._children
        segment, depth, index = NO_SEGMENT, 0, 0
        key: tuple[int, Hashable, Hashable] = (NO_SEGMENT, namespace, shifts[0])
        while True:
            parent = segment
            segment = children.get(key, NO_SEGMENT)
            if segment == NO_SEGMENT:
                children[key] = segment = self._add_segment(parent, depth)
                self._runs[segment] = ends[index:], shifts[index:]
                return segment
            known_ends, known_shifts = self._runs[segment]
            known = 0
            while shifts[index] == known_shifts[known]:
                end, known_end = ends[index], known_ends[known]
                if end <= known_end:
                    depth = end
                    index += 1
                    if index == len(ends):
                        return segment
                if known_end <= end:
                    depth = known_end
                    known += 1
                    if known == len(known_ends):
                        # A branch starts where a chain leaves a segment, so at the end there is none: it grows.
                        if shifts[index] == known_shifts[-1]:
                            known_ends[-1] = ends[index]
                            index += 1
                        known_ends += ends[index:]
                        known_shifts += shifts[index:]
                        return segment
            key = (segment, depth, shifts[index])
