"""Edits of JSON text: what they do not name stays as it is, character for character."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from pkv_lint.prompt.json_spans import Steps, elements, members, span_of

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, order=True)
class TextEdit:
    """Put `text` in the place of the characters `[start, end)`."""

    start: int
    end: int
    text: str


def applied(text: str, edits: Iterable[TextEdit]) -> str:
    """The text with the edits made. None may reach into another."""
    pieces, at = [], 0
    for edit in sorted(edits):
        if edit.start < at:
            raise ValueError(f"edits overlap at character {edit.start}")
        pieces += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*pieces, text[at:]])


def reordered(text: str, spans: Sequence[Span], places: Sequence[int]) -> Iterator[TextEdit]:
    """Put the text of span `places[i]` in the place of span `i`; what stands between them stays."""
    for (start, end), place in zip(spans, places, strict=True):
        new = text[slice(*spans[place])]
        if new != text[start:end]:
            yield TextEdit(start, end, new)


def without_items(items: Sequence[Span], gone: Set[int]) -> Iterator[TextEdit]:
    """Take items out of the list or object whose items have these spans, each with a comma next to it."""
    first = next((index for index in range(len(items)) if index not in gone), None)
    if first is None:
        yield TextEdit(items[0][0], items[-1][1], "")
        return
    for index in sorted(gone):
        if index < first:
            yield TextEdit(items[index][0], items[index + 1][0], "")
        else:
            yield TextEdit(items[index - 1][1], items[index][1], "")


def without_members(text: str, steps: Steps, names: Set[str]) -> Iterator[TextEdit]:
    """Take members out of the object that steps lead to."""
    span = span_of(text, steps)
    found = list(members(text, span[0])) if span else []
    gone = {index for index, member in enumerate(found) if member.key in names}
    yield from without_items([(member.key_at, member.end) for member in found], gone) if gone else ()


def with_member(text: str, steps: Steps, key: str, value: str) -> Iterator[TextEdit]:
    """Put a member behind the last one of the object that steps lead to; `key` and `value` are JSON texts."""
    span = span_of(text, steps)
    found = list(members(text, span[0])) if span else []
    if found:
        last = found[-1].end
        yield TextEdit(last, last, f"{separator(text, [(m.key_at, m.end) for m in found])}{key}: {value}")


def listed_again(text: str, span: Span, items: Sequence[str]) -> str:
    """The text of the list at a span with these items in the place of its own, spaced as they are."""
    own = list(elements(text, span[0]))
    if not own:
        return f"[{', '.join(items)}]"
    front, back = text[span[0] : own[0][0]], text[own[-1][1] : span[1]]
    return front + separator(text, own).join(items) + back


def separator(text: str, items: Sequence[Span]) -> str:
    """What stands between the last two items."""
    return text[items[-2][1] : items[-1][0]] if len(items) > 1 else ", "
