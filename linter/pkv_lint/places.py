"""Where in a file the user finds what a finding blames."""

from __future__ import annotations

from dataclasses import dataclass

from pkv_lint.changes import reached
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.source import Position, format_path, parse_path
from pkv_lint.prompt.traffic import TrafficLine
from pkv_lint.turns import Turn


@dataclass(frozen=True, slots=True)
class Place:
    """`path` and `span` in the body as it was sent, `line` and `column` of its first character in `file`."""

    file: str
    line: int
    column: int
    path: str | None
    span: tuple[int, int] | None


def place_of(turn: Turn, path: str | None, span: tuple[int, int] | None, renderer: Renderer | None) -> Place:
    """The place of a path (and span) of a request's chat form; without a renderer, of its body as it was sent.

    Falls back to the start of the request where the value itself is not in the file (it was taken away, or made by a
    conversion).
    """
    line = turn.line
    if renderer is not None and path is not None and turn.chat is not line.request and line.request is not None:
        path, span = sent_path(turn, path, span, renderer)
    position = position_of(line, path, span[0] if span else None)
    return Place(line.file, position.line, position.column, path, span)


def position_of(line: TrafficLine, path: str | None, offset: int | None = None) -> Position:
    """The place in the file of a path of a request as it was sent (and a character of the string there), or of the
    request itself where the path is not in it."""
    if path is not None:
        try:
            return line.locate(path, offset)
        except (InputError, LookupError, ValueError):
            pass
    return Position(line.line, line.column)


def region_of(line: TrafficLine, path: str | None, span: tuple[int, int] | None) -> tuple[Position, Position] | None:
    """The places in the file of the first character of a span and of the one behind its last; of a whole value, twice
    the place where it begins. None where it is not in the file."""
    if path is None:
        return None
    try:
        if span is None:
            start = line.locate(path)
            return start, start
        return line.locate(path, span[0]), line.locate(path, span[1])
    except (InputError, LookupError, ValueError):
        return None


def sent_path(
    turn: Turn, path: str, span: tuple[int, int] | None, renderer: Renderer
) -> tuple[str | None, tuple[int, int] | None]:
    """The path in a Messages or Responses body that a path of its chat form came from."""
    from pkv_lint.prompt.traced import origins, trace_value

    assert turn.line.request is not None
    chat = renderer.chat_body(trace_value(turn.line.request, ""), turn.line.api)
    value = reached(chat, parse_path(path))
    inner: list[str | int] = []
    while isinstance(value, (dict, list)) and value:
        step, value = next(iter(value.items() if isinstance(value, dict) else enumerate(value)))
        inner.append(step)
    if not isinstance(value, str):
        return path, span
    for origin in origins(value):
        if origin.path is not None and (span is None or origin.start <= span[0] < origin.end):
            if span is None:
                steps = parse_path(origin.path)
                # The whole value rather than the first text in it, where it stands in the body as one.
                whole = len(steps) > len(inner) > 0 and list(steps[-len(inner) :]) == inner
                return format_path(steps[: -len(inner)]) if whole else origin.path, None
            start = origin.offset + (span[0] - origin.start if origin.linear else 0)
            return origin.path, (start, start + min(span[1], origin.end) - span[0])
    return path, span
