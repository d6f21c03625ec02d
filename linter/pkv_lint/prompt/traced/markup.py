"""What the filter `safe` gives, traced: like markupsafe's Markup it escapes HTML in what is joined with it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, SupportsIndex

from pkv_lint.prompt.traced.printing import escape_into, text_of
from pkv_lint.prompt.traced.strings import Builder, Traced, concat, plain, separated, traced, untraced

_SPECIAL = re.compile("[&<>'\"]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;"}


class TracedMarkup(Traced):
    """Plain text is escaped where it meets markup: in sums, joins and replacements."""

    __slots__ = ()

    def __html__(self) -> TracedMarkup:
        return self

    def __str__(self) -> Traced:
        return Traced(self, self._ends, self._runs)

    def _cut(self, start: int, end: int) -> Traced:
        return markup(super()._cut(start, end))

    def _mapped(self, change: Any) -> Traced:
        return markup(super()._mapped(change))

    def __add__(self, other: Any) -> Any:
        return markup(concat((self, escaped(other)))) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return markup(concat((escaped(other), self))) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> Traced:
        return markup(super().__mul__(count))

    __rmul__ = __mul__

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> Traced:
        return markup(super().replace(old, escaped(new), count))

    def join(self, parts: Iterable[Any], /) -> Traced:
        return markup(concat(separated(self, map(escaped, parts))))


def markup(text: str) -> TracedMarkup:
    text = traced(text)
    return TracedMarkup(text, text._ends, text._runs)


def escaped(value: Any) -> TracedMarkup:
    """`markupsafe.escape(value)`."""
    if isinstance(value, TracedMarkup):
        return value
    if hasattr(value, "__html__"):
        return markup(untraced(plain(value.__html__())))
    builder = Builder()
    escape_into(builder, text_of(value), _SPECIAL, _ENTITIES.__getitem__)
    return markup(builder.build())
