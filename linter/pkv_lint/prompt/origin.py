"""Where a piece of rendered text came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["value", "key", "syntax", "template", "clock", "computed"]


@dataclass(frozen=True, slots=True)
class Source:
    """One place that text can come from.

    kind      where
    value     JSON path of a string (or number, boolean) in the request, such as `messages[0].content`
    key       JSON path of the member whose name was printed
    syntax    JSON path of the value for which quotes, braces or separators were written
    template  `line N` of the chat template (literals of the template, special tokens as `bos_token`)
    clock     `strftime_now`
    computed  empty: a number the template worked out, or text whose way could not be followed
    """

    kind: Kind
    where: str


COMPUTED = Source("computed", "")


@dataclass(frozen=True, slots=True)
class Origin:
    """A run of rendered characters `[start, end)` of the prompt text and the place they came from.

    `offset` is the 0-based code point in the decoded value at `source.where` that the first character came from; when
    `linear`, character `start + i` came from `offset + i`, else every character of the run came from the one at
    `offset` (an escape such as `\\n` prints two characters for one).
    """

    start: int
    end: int
    source: Source
    offset: int = 0
    linear: bool = True

    @property
    def kind(self) -> Kind:
        return self.source.kind

    @property
    def path(self) -> str | None:
        """The JSON path in the request, or None when the text is not from the request."""
        return self.source.where if self.source.kind in ("value", "key", "syntax") else None
