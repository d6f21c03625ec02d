"""Where in a file the user finds what a finding blames."""

from __future__ import annotations

from dataclasses import dataclass

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.source import Position
from pkv_lint.prompt.traffic import TrafficLine
from pkv_lint.turns import Turn

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Place:
    """`path` and `span` in the body as it was sent, `line` and `column` of its first character in `file`."""

    file: str
    line: int
    column: int
    path: str | None
    span: Span | None


def place_of(turn: Turn, path: str | None, span: Span | None, renderer: Renderer | None) -> Place:
    """The place of a path (and span) of a request's chat form; without a renderer, of its body as it was sent.

    Falls back to the start of the request where the value itself is not in the file (it was taken away, or made by a
    conversion).
    """
    line = turn.line
    if renderer is not None and path is not None:
        path, span = sent_place(turn, path, span, renderer)
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


def region_of(line: TrafficLine, path: str | None, span: Span | None) -> tuple[Position, Position] | None:
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


def sent_place(turn: Turn, path: str, span: Span | None, renderer: Renderer) -> tuple[str, Span | None]:
    """The path (and span) in the body as it was sent of a path in its chat form."""
    if turn.chat is turn.line.request or turn.line.request is None:
        return path, span
    from pkv_lint.prompt.sent_paths import sent_path
    from pkv_lint.prompt.traced import trace_value

    chat = renderer.chat_body(trace_value(turn.line.request, ""), turn.line.api)
    return sent_path(chat, path, span) or (path, span)
