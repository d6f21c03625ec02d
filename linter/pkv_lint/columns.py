"""Text in the columns of a terminal."""

from __future__ import annotations

import shutil
import unicodedata

MARKS = {"\n": "⏎", "\t": "→", "\r": "␍"}


def terminal_columns(otherwise: int) -> int:
    """How wide the terminal is (or `COLUMNS` says), where there is one."""
    return shutil.get_terminal_size((otherwise, 24)).columns


def visible(text: str) -> str:
    """One line, as wide as `width` says; what a terminal would obey (escape codes) is only shown."""
    return "".join(MARKS.get(c, c if c.isprintable() else "·") for c in text)


def width(text: str) -> int:
    """Columns of a terminal that the text takes: wide characters take two, combining ones none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def fitting(text: str, columns: int) -> int:
    """How many characters of the text fit into so many columns."""
    for index, character in enumerate(text):
        columns -= width(character)
        if columns < 0:
            return index
    return len(text)


def padded(text: str, columns: int) -> str:
    """The text cut or filled up to so many columns."""
    if width(text) > columns:
        text = text[: fitting(text, columns - 1)] + "…"
    return text + " " * (columns - width(text))
