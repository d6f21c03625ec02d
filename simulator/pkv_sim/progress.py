"""A line on the terminal while work takes longer than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Progress(Protocol):
    """What items are passed through while they are worked on."""

    def __call__(self, items: Iterable[T], name: str, total: int | None = None) -> Iterable[T]: ...


def silently(items: Iterable[T], name: str, total: int | None = None) -> Iterable[T]:
    """The items, and nothing is shown."""
    return items


PATIENCE = 1.0
"""Seconds before anything is shown."""
PAUSE = 0.1
"""Seconds between two updates."""
BAR = 24
"""Characters of a full bar."""


def on_terminal(items: Iterable[T], name: str, total: int | None = None) -> Iterator[T]:
    """The items, shown as they are taken: a bar where the `total` is known, else their number. Only on a terminal."""
    stream = sys.stderr
    if not stream.isatty():
        yield from items
        return
    shown = time.monotonic() + PATIENCE - PAUSE
    drawn = False
    try:
        for count, item in enumerate(items, 1):
            yield item
            if (now := time.monotonic()) - shown >= PAUSE:
                shown, drawn = now, True
                stream.write(f"\r{name} {_state(count, total)}\033[K")
                stream.flush()
    finally:
        if drawn:
            stream.write("\r\033[K")
            stream.flush()


def _state(count: int, total: int | None) -> str:
    if not total:
        return f"{count:,}"
    full = min(count, total) * BAR // total
    return f"[{'#' * full}{'.' * (BAR - full)}] {count:,} of {total:,}"
