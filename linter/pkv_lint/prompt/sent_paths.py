"""From a path in the chat form of a Messages or Responses body back to the body as it was sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from pkv_lint.prompt.source import format_path, parse_path
from pkv_lint.prompt.traced import origins

Span = tuple[int, int]
Steps = tuple[str | int, ...]


def sent_path(chat: Any, path: str, span: Span | None = None) -> tuple[str, Span | None] | None:
    """The path (and span) in the body as sent of what stands at a path of `chat`, the chat form of a traced body; of a
    value that the conversion made, that of the nearest value around it. None where nothing there was sent."""
    steps = list(parse_path(path))
    while steps:
        found = sent_value(reached(chat, steps), span)
        if found is not None:
            return found
        steps, span = steps[:-1], None
    return None


def reached(value: Any, steps: list[str | int]) -> Any:
    for step in steps:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def sent_value(value: Any, span: Span | None) -> tuple[str, Span | None] | None:
    """Where a value came from: a span of a string, or of a whole value what holds all of it that was sent."""
    if span is None:
        places = [place for inner, text in texts(value, ()) if (place := sent_text(text, inner)) is not None]
        return (format_path(common_steps(places)), None) if places else None
    for origin in origins(value) if isinstance(value, str) else ():
        if origin.path is not None and origin.start <= span[0] < origin.end:
            start = origin.offset + (span[0] - origin.start if origin.linear else 0)
            return origin.path, (start, start + min(span[1], origin.end) - span[0])
    return None


def sent_text(text: str, inner: Steps) -> Steps | None:
    """Where a text came from; where the way to it is the same there, the value that it was reached from."""
    path = next((origin.path for origin in origins(text) if origin.path is not None), None)
    if path is None:
        return None
    steps = parse_path(path)
    return steps[: -len(inner)] if len(steps) > len(inner) > 0 and steps[-len(inner) :] == inner else steps


def common_steps(places: Sequence[Steps]) -> Steps:
    first, last = min(places, key=key_of), max(places, key=key_of)
    return tuple(step for step, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))


def key_of(steps: Steps) -> list[str]:
    return [str(step) for step in steps]


def texts(value: Any, steps: Steps) -> Iterator[tuple[Steps, str]]:
    """The strings in a value, each with the way to it."""
    if isinstance(value, str):
        yield steps, value
    elif isinstance(value, (dict, list)):
        for step, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield from texts(member, (*steps, step))
