"""Text in the columns of a terminal."""

from __future__ import annotations

import pytest

from pkv_lint.columns import fitting, fitting_end, padded, visible, width, wrapped

WIDTHS = {
    "plain": 5,
    "漢字": 4,
    "\uff46\uff55\uff4c\uff4c": 8,  # full width
    "e\u0301": 1,  # combining accent
    "\u0e01\u0e34": 1,  # Thai vowel sign: a mark (Mn) whose combining class is 0
    "\u0915\u0941": 1,  # Devanagari vowel sign, as well
    "a\u20dd": 1,  # enclosing circle (Me)
    "\u1100\u1161\u11a8": 2,  # Hangul in pieces: one syllable
    "👩": 2,
    "👩\u200d👧": 5,  # the joiner is only shown
    "❤\ufe0f": 1,  # what makes it wide on some terminals is left out
    "a\tb": 3,
    "\x1b[31m": 5,
}


@pytest.mark.parametrize("text", WIDTHS, ids=ascii)
def test_width(text: str) -> None:
    assert width(visible(text)) == width(text) == WIDTHS[text]


def test_visible_is_one_line_that_a_terminal_does_not_obey() -> None:
    assert visible("a\tb\r\n\x1b]0;x\x07\u202e\u2028") == "a→b␍⏎·]0;x···"


def test_parts_that_fit() -> None:
    assert "漢字かな"[: fitting("漢字かな", 5)] == "漢字"
    assert "漢字かな"[fitting_end("漢字かな", 5) :] == "かな"
    text = "ab" + "e\u0301" * 3
    assert text[fitting_end(text, 2) :] == "e\u0301e\u0301"
    assert fitting_end("\u0301\u0301", 4) == 2  # no mark without its letter
    assert padded("漢字", 3) == "漢…"
    assert padded("漢字", 6) == "漢字  "


def test_lines_of_words_that_fit() -> None:
    assert list(wrapped("one two three  four", 10, "  ")) == ["  one two", "  three", "  four"]
    assert list(wrapped("漢字 漢字 漢字", 9)) == ["漢字 漢字", "漢字"]
    assert list(wrapped("a-word-that-is-too-long x", 5)) == ["a-word-that-is-too-long", "x"]
    assert list(wrapped("", 80)) == []
