"""Text in the columns of a terminal."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Iterator

MARKS = {"\n": "⏎", "\t": "→", "\r": "␍", "\ufe0e": "", "\ufe0f": ""}
"""What stands for characters that move the cursor, and for those that change how wide the one in front of them is (an
emoji in colour is wider on some terminals only)."""
NO_WIDTH = ("Mn", "Me")
JAMO = range(0x1160, 0x1200)
"""Vowels and final consonants of Hangul, drawn into the syllable in front of them."""


def terminal_columns(otherwise: int) -> int:
    """How wide the terminal is (or `COLUMNS` says), where there is one."""
    return shutil.get_terminal_size((otherwise, 24)).columns


def visible(text: str) -> str:
    """One line, as wide as `width` says; what a terminal would obey (escape codes) is only shown."""
    return "".join(MARKS.get(c, c if c.isprintable() else "·") for c in text)


def width(text: str) -> int:
    """Columns of a terminal that the visible text takes: wide characters take two, combining ones none."""
    return len(text) if text.isascii() else sum(map(columns_of, text))


def columns_of(character: str) -> int:
    if unicodedata.category(character) in NO_WIDTH or ord(character) in JAMO:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fitting(text: str, columns: int) -> int:
    """How many characters of the text fit into so many columns."""
    for index, character in enumerate(text):
        columns -= columns_of(character)
        if columns < 0:
            return index
    return len(text)


def fitting_end(text: str, columns: int) -> int:
    """Where the longest end of the text begins that fits into so many columns, and not with a combining character."""
    start = len(text) - fitting(text[::-1], columns)
    while start < len(text) and not columns_of(text[start]):
        start += 1
    return start


def padded(text: str, columns: int) -> str:
    """The text cut or filled up to so many columns."""
    if width(text) > columns:
        text = text[: fitting(text, columns - 1)] + "…"
    return text + " " * (columns - width(text))


def wrapped(text: str, columns: int, indent: str = "") -> Iterator[str]:
    """Lines of whole words, each behind `indent`, that fit into so many columns; a longer word stands alone."""
    line = indent
    for word in text.split():
        if line != indent and width(line) + 1 + width(word) > columns:
            yield line
            line = indent
        line += word if line == indent else f" {word}"
    if line != indent:
        yield line
