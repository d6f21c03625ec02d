"""A `str` that knows where each of its characters came from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, SupportsIndex

from pkv_lint.prompt.origin import COMPUTED, Origin, Source

Run = tuple[Source, int, bool]
"""A source, the offset in it of the first character, and whether the next characters come from the next offsets."""

_COMPUTED_RUN: Run = (COMPUTED, 0, False)


class Traced(str):
    """A `str` in every respect, except that whatever makes a new string of it makes a `Traced` one.

    A template takes the very branches it takes for the plain string, so nothing has to be searched, marked or guessed.
    Run `i` covers the characters from `_ends[i - 1]` to `_ends[i]`; what could not be followed has the source COMPUTED.
    """

    __slots__ = ("_ends", "_runs")
    _ends: list[int]
    _runs: list[Run]

    def __new__(cls, text: str, ends: list[int], runs: list[Run]) -> Traced:
        self = super().__new__(cls, plain(text))
        self._ends = ends
        self._runs = runs
        return self

    def __str__(self) -> Traced:
        """Itself: Jinja's filters call `str` on what they get."""
        return self

    def __copy__(self) -> Traced:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Traced:
        return self

    def __reduce__(self) -> Any:
        return type(self), (plain(self), self._ends, self._runs)

    def _cut(self, start: int, end: int) -> Traced:
        """The characters `[start, end)`; both lie within the text."""
        if start >= end:
            return EMPTY
        if not start and end == len(self):
            return self if type(self) is Traced else Traced(self, self._ends, self._runs)
        text = str.__getitem__(self, slice(start, end))
        ends = self._ends
        first = bisect_right(ends, start)
        source, offset, linear = self._runs[first]
        if linear:
            offset += start - (ends[first - 1] if first else 0)
        if end <= ends[first]:
            return Traced(text, [end - start], [(source, offset, linear)])
        last = bisect_right(ends, end - 1)
        cut_ends = [at - start for at in ends[first:last]]
        cut_ends.append(end - start)
        return Traced(text, cut_ends, [(source, offset, linear), *self._runs[first + 1 : last + 1]])

    def __getitem__(self, key: SupportsIndex | slice) -> Traced:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step == 1:
                return self._cut(start, stop)
            return concat(self._cut(i, i + 1) for i in range(start, stop, step))
        at = range(len(self))[key]
        return self._cut(at, at + 1)

    def __iter__(self) -> Iterator[Traced]:
        start = 0
        for end, (source, offset, linear) in zip(self._ends, self._runs, strict=True):
            for at in range(start, end):
                char = str.__getitem__(self, at)
                yield Traced(char, [1], [(source, offset + at - start if linear else offset, linear)])
            start = end

    def __add__(self, other: Any) -> Any:
        return concat((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return concat((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> Traced:
        return concat(repeated(self, len(str.__mul__(self, count))))

    __rmul__ = __mul__

    def strip(self, chars: str | None = None, /) -> Traced:
        return self._cut(len(self) - len(str.lstrip(self, chars)), len(str.rstrip(self, chars)))

    def lstrip(self, chars: str | None = None, /) -> Traced:
        return self._cut(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> Traced:
        return self._cut(0, len(str.rstrip(self, chars)))

    def removeprefix(self, prefix: str, /) -> Traced:
        return self._cut(len(self) - len(str.removeprefix(self, prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> Traced:
        return self._cut(0, len(str.removesuffix(self, suffix)))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Any]:
        parts = []
        at = 0
        for part in str.split(self, sep, maxsplit):
            if sep is None:
                at = self.index(part, at)
            parts.append(self._cut(at, at + len(part)))
            at += len(part) + len(sep or "")
        return parts

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Any]:
        parts = []
        end = len(self)
        for part in reversed(str.rsplit(self, sep, maxsplit)):
            if sep is None:
                end = self.rindex(part, 0, end) + len(part)
            parts.append(self._cut(end - len(part), end))
            end -= len(part) + len(sep or "")
        return parts[::-1]

    def splitlines(self, keepends: bool = False) -> list[Any]:
        lines = []
        at = 0
        for whole, line in zip(str.splitlines(self, True), str.splitlines(self), strict=True):
            lines.append(self._cut(at, at + len(whole if keepends else line)))
            at += len(whole)
        return lines

    def partition(self, sep: str, /) -> tuple[Any, Any, Any]:
        head, found, _ = str.partition(self, sep)
        return self._parted(len(head), len(found))

    def rpartition(self, sep: str, /) -> tuple[Any, Any, Any]:
        head, found, _ = str.rpartition(self, sep)
        return self._parted(len(head), len(found))

    def _parted(self, at: int, length: int) -> tuple[Traced, Traced, Traced]:
        return self._cut(0, at), self._cut(at, at + length), self._cut(at + length, len(self))

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> Traced:
        if old:
            return concat(separated(new, self.split(old, count))) if old in self else self
        # Nothing is found in front of every character and at the end.
        times = len(self) + 1 if int(count) < 0 else min(int(count), len(self) + 1)
        pieces: list[str] = []
        for at in range(times):
            pieces += (new, self._cut(at, at + 1) if at < len(self) else "")
        pieces.append(self._cut(min(times, len(self)), len(self)))
        return concat(pieces)

    def join(self, parts: Iterable[Any], /) -> Traced:
        parts = list(parts)
        plain_text = str.join(self, parts)  # also says what is wrong with the parts
        return concat(separated(self, parts)) if plain_text else EMPTY

    def _mapped(self, change: Callable[[str], str]) -> Traced:
        """`change` acts on characters; a few change to several, such as the German sharp s to "SS"."""
        result = change(plain(self))
        if len(result) == len(self):
            return Traced(result, self._ends, self._runs)
        builder = Builder()
        for char in self:
            changed = change(plain(char))
            source, offset, linear = char._runs[0]
            builder.add_run(changed, source, offset, linear and len(changed) == 1)
        mapped = builder.build()
        return mapped if mapped == result else untraced(result)

    def lower(self) -> Traced:
        return self._mapped(str.lower)

    def upper(self) -> Traced:
        return self._mapped(str.upper)

    def casefold(self) -> Traced:
        return self._mapped(str.casefold)

    def swapcase(self) -> Traced:
        return self._mapped(str.swapcase)

    def title(self) -> Traced:
        return self._mapped(str.title)

    def capitalize(self) -> Traced:
        return self._mapped(str.capitalize)

    def translate(self, table: Any, /) -> Traced:
        return self._mapped(lambda text: text.translate(table))

    def ljust(self, width: SupportsIndex, fillchar: str = " ", /) -> Traced:
        missing = len(str.ljust(self, width, fillchar)) - len(self)
        return concat((self, *repeated(fillchar, missing)))

    def rjust(self, width: SupportsIndex, fillchar: str = " ", /) -> Traced:
        missing = len(str.rjust(self, width, fillchar)) - len(self)
        return concat((*repeated(fillchar, missing), self))

    def center(self, width: SupportsIndex, fillchar: str = " ", /) -> Traced:
        missing = len(str.center(self, width, fillchar)) - len(self)
        left = missing // 2 + (missing & int(width) & 1)  # CPython puts the odd one to the left in an odd width
        return concat((*repeated(fillchar, left), self, *repeated(fillchar, missing - left)))

    def zfill(self, width: SupportsIndex, /) -> Traced:
        missing = len(str.zfill(self, width)) - len(self)
        sign = int(self.startswith(("+", "-")))
        return concat((self._cut(0, sign), "0" * missing, self._cut(sign, len(self))))

    def expandtabs(self, tabsize: SupportsIndex = 8) -> Traced:
        return untraced(str.expandtabs(self, tabsize)) if "\t" in self else self

    def __mod__(self, values: Any) -> Traced:
        from pkv_lint.prompt.traced.formatting import percent

        return percent(self, values)

    def __rmod__(self, template: Any) -> Any:
        from pkv_lint.prompt.traced.formatting import percent

        return percent(traced(template), self) if isinstance(template, str) else NotImplemented

    def __format__(self, spec: str) -> str:
        from pkv_lint.prompt.traced.formatting import formatted

        return formatted(self, spec)

    def format(self, *args: Any, **kwargs: Any) -> Traced:
        from pkv_lint.prompt.traced.formatting import format_fields

        return format_fields(self, args, kwargs)

    def format_map(self, mapping: Mapping[str, Any], /) -> Traced:  # type: ignore[override]
        from pkv_lint.prompt.traced.formatting import format_fields

        return format_fields(self, (), mapping)


class Builder:
    """Collects pieces of text with their runs; adjoining runs that continue each other become one."""

    __slots__ = ("_ends", "_length", "_runs", "_texts")

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._ends: list[int] = []
        self._runs: list[Run] = []
        self._length = 0

    def add(self, text: str) -> None:
        """Text with the origins it has, COMPUTED when it has none."""
        if not isinstance(text, Traced):
            self.add_run(text, *_COMPUTED_RUN)
            return
        if not text._runs:
            return
        base = self._length
        source, offset, linear = text._runs[0]
        self._texts.append(text)
        self._length += len(text)
        self._extend(base, base + text._ends[0], source, offset, linear)
        if len(text._runs) > 1:
            self._ends += [base + end for end in text._ends[1:]] if base else text._ends[1:]
            self._runs += text._runs[1:]

    def add_run(self, text: str, source: Source, offset: int = 0, linear: bool = False) -> None:
        """Text that came from one place."""
        if text:
            start = self._length
            self._texts.append(text)
            self._length += len(text)
            self._extend(start, self._length, source, offset, linear)

    def _extend(self, start: int, end: int, source: Source, offset: int, linear: bool) -> None:
        if self._runs:
            last_source, last_offset, last_linear = self._runs[-1]
            if last_source is source and last_linear is linear:
                begun = self._ends[-2] if len(self._ends) > 1 else 0
                if offset == (last_offset + start - begun if linear else last_offset):
                    self._ends[-1] = end
                    return
        self._ends.append(end)
        self._runs.append((source, offset, linear))

    def build(self) -> Traced:
        return Traced("".join(self._texts), self._ends, self._runs)


def plain(text: str) -> str:
    """An exact `str`."""
    return str.__str__(text)


EMPTY = Traced("", [], [])


def trace(text: str, source: Source, offset: int = 0) -> Traced:
    """A text that stands in `source` from `offset` on."""
    return Traced(text, [len(text)], [(source, offset, True)]) if text else EMPTY


def written(text: str, source: Source, offset: int = 0) -> Traced:
    """A text that was written for what stands in `source` at `offset`."""
    return Traced(text, [len(text)], [(source, offset, False)]) if text else EMPTY


def untraced(text: str) -> Traced:
    return written(text, COMPUTED)


def traced(text: str) -> Traced:
    """The text with the origins it has."""
    return text if isinstance(text, Traced) else untraced(text)


def concat(pieces: Iterable[str]) -> Traced:
    builder = Builder()
    for piece in pieces:
        builder.add(piece)
    return builder.build()


def separated(separator: str, parts: Iterable[str]) -> Iterator[str]:
    first = True
    for part in parts:
        if not first:
            yield separator
        first = False
        yield part


def repeated(text: str, length: int) -> list[str]:
    """As many copies as give `length` characters."""
    return [text] * (length // len(text)) if length else []


def origins(text: str) -> tuple[Origin, ...]:
    """Contiguous runs that cover the text; no two of them could be one."""
    runs = traced(text)
    found: list[Origin] = []
    start = 0
    for end, (source, offset, linear) in zip(runs._ends, runs._runs, strict=True):
        last = found[-1] if found else None
        if (
            last is not None
            and last.linear == linear
            and offset == last.offset + (start - last.start if linear else 0)
            and last.source == source
        ):
            found[-1] = Origin(last.start, end, source, last.offset, linear)
        else:
            found.append(Origin(start, end, source, offset, linear))
        start = end
    return tuple(found)
