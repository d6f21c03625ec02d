"""The exact prompt of one request: text, token ids, and on demand where each part of it came from."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property

from pkv_lint.prompt.origin import COMPUTED, Origin


class Prompt:
    """`text` is None where the server makes ids without text (gpt-oss, Mistral) or was handed ids. `token_ids` is an
    `array('i')`, `approximate` says that another vocabulary or layout than the server's was used."""

    def __init__(
        self,
        text: str | None,
        token_ids: array[int],
        *,
        approximate: bool = False,
        trace: Callable[[], Sequence[Origin]] | None = None,
        offsets: Callable[[], list[tuple[int, int]]] | None = None,
    ) -> None:
        self.text = text
        self.token_ids = token_ids
        self.approximate = approximate
        self._trace = trace
        self._offsets = offsets

    @cached_property
    def origins(self) -> tuple[Origin, ...]:
        """Contiguous runs that cover `text`. Costs a second render that follows every character."""
        if self._trace is None:
            length = len(self.text or "")
            return (Origin(0, length, COMPUTED, linear=False),) if length else ()
        return tuple(self._trace())

    @cached_property
    def token_spans(self) -> list[tuple[int, int]]:
        """The characters `[start, end)` of `text` that each token stands for; empty spans where there is no text."""
        return self._offsets() if self._offsets else [(0, 0)] * len(self.token_ids)

    @cached_property
    def _ends(self) -> list[int]:
        return [origin.end for origin in self.origins]

    def origin(self, char: int) -> Origin:
        """Where one character of `text` came from. Raises IndexError outside of the text."""
        if not 0 <= char < len(self.text or ""):
            raise IndexError(f"no character {char} in a text of {len(self.text or '')}")
        return cut(self.origins[bisect_right(self._ends, char)], char, char + 1)

    def token_origin(self, token: int) -> tuple[Origin, ...]:
        """The runs that one token's characters came from, in order; empty for a token without text (an added BOS)."""
        start, end = self.token_spans[token]
        return self.origins_between(start, end)

    def origins_between(self, start: int, end: int) -> tuple[Origin, ...]:
        """The runs of the characters `[start, end)`."""
        found = []
        index = bisect_right(self._ends, start)
        while start < end and index < len(self.origins):
            origin = self.origins[index]
            if origin.start >= end:
                break
            found.append(cut(origin, max(start, origin.start), min(end, origin.end)))
            index += 1
        return tuple(found)


def cut(origin: Origin, start: int, end: int) -> Origin:
    """The part `[start, end)` of a run."""
    offset = origin.offset + (start - origin.start) if origin.linear else origin.offset
    return Origin(start, end, origin.source, offset, origin.linear)
