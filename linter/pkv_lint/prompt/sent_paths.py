"""From a path in the chat form of a Messages or Responses body back to the body as it was sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pkv_lint.prompt.source import format_path, parse_path
from pkv_lint.prompt.traced import origins

Span = tuple[int, int]


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
    """The place that the first text in a value came from that was sent."""
    for inner, text in texts(value, ()):
        for origin in origins(text):
            if origin.path is None or not (span is None or origin.start <= span[0] < origin.end):
                continue
            if span is None:
                steps = parse_path(origin.path)
                # The whole value rather than the first text in it, where it stands in the body as one.
                whole = len(steps) > len(inner) > 0 and steps[-len(inner) :] == inner
                return format_path(steps[: -len(inner)]) if whole else origin.path, None
            start = origin.offset + (span[0] - origin.start if origin.linear else 0)
            return origin.path, (start, start + min(span[1], origin.end) - span[0])
    return None


def texts(value: Any, steps: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The strings in a value, each with the way to it."""
    if isinstance(value, str):
        yield steps, value
    elif isinstance(value, (dict, list)):
        for step, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield from texts(member, (*steps, step))
