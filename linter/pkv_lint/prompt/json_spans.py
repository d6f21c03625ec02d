"""Where the parts of a JSON value stand in its text. The text is known to be JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Steps = Sequence[str | int]
"""Member names and list indices that lead to a value."""

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
# One decoded character of a string, or a run of them that stand for themselves. Only two escaped halves make a pair.
_CHARACTERS = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2} | \\u[0-9a-fA-F]{4} | \\. | [^\\\"]+", re.VERBOSE
)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object: its key stands at `key_at`, its value at `[start, end)`."""

    key: str
    key_at: int
    start: int
    end: int


def skip_space(text: str, at: int) -> int:
    """Where the white space of JSON that starts at `at` ends."""
    space = _SPACE.match(text, at)
    return space.end() if space else at


def elements(text: str, at: int) -> Iterator[tuple[int, int]]:
    """The spans of the elements of the list at `at`; none where it is no list."""
    if not text.startswith("[", at):
        return
    at = skip_space(text, at + 1)
    while not text.startswith("]", at):
        _, end = _DECODER.raw_decode(text, at)
        yield at, end
        at = _behind_comma(text, end)


def members(text: str, at: int) -> Iterator[Member]:
    """The members of the object at `at`, equal keys as often as they are there; none where it is no object."""
    if not text.startswith("{", at):
        return
    at = skip_space(text, at + 1)
    while not text.startswith("}", at):
        key, end = _DECODER.raw_decode(text, at)
        start = skip_space(text, skip_space(text, end) + 1)
        _, end = _DECODER.raw_decode(text, start)
        yield Member(key, at, start, end)
        at = _behind_comma(text, end)


def _behind_comma(text: str, at: int) -> int:
    at = skip_space(text, at)
    return skip_space(text, at + 1) if text.startswith(",", at) else at


def child(text: str, at: int, step: str | int) -> tuple[int, int] | None:
    """Where an element, or the last member of a name, of the value at `at` is written (a member: its key), and where
    its value starts; None where the value has none."""
    if isinstance(step, int):
        return next(((start, start) for index, (start, _) in enumerate(elements(text, at)) if index == step), None)
    named = [member for member in members(text, at) if member.key == step]
    return (named[-1].key_at, named[-1].start) if named else None


def span_of(text: str, steps: Steps) -> tuple[int, int] | None:
    """The span of the value that steps lead to; None where there is none."""
    at = skip_space(text, 0)
    for step in steps:
        found = child(text, at, step)
        if found is None:
            return None
        at = found[1]
    return at, _DECODER.raw_decode(text, at)[1]


def find(text: str, steps: Steps, offset: int | None, *, key: bool) -> int:
    """See `source.locate`: the index in the text."""
    at = skip_space(text, 0)
    for depth, step in enumerate(steps):
        if text.startswith('"', at):
            value, _ = _DECODER.raw_decode(text, at)
            try:
                inner = find(value, steps[depth:], offset, key=key)
            except (ValueError, RecursionError):
                return at
            return character(text, at, inner)
        found = child(text, at, step)
        if found is None:
            return at
        at = found[0] if key and depth == len(steps) - 1 else found[1]
    if offset is None or not text.startswith('"', at):
        return at
    return character(text, at, offset)


def character(text: str, at: int, offset: int) -> int:
    """Index in `text` of the decoded character `offset` of the string whose opening quote is at `at`. Raises ValueError
    for one beyond the string."""
    index = at + 1
    rest = offset
    while rest > 0:
        run = _CHARACTERS.match(text, index)
        if run is None:
            raise ValueError(f"offset {offset} is beyond the string")
        if run[0][0] == "\\":
            rest -= 1
            index = run.end()
        else:
            step = min(rest, run.end() - index)
            rest -= step
            index += step
    return index
