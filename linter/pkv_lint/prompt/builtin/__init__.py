"""The layout used when no model is named: an own template and an own small vocabulary, shipped with the package.

It stands in for whatever model a service runs, so prompts made with it are approximate.
"""

from __future__ import annotations

from pathlib import Path

from pkv_lint.prompt.tokenizer import Tokenizer

_DIRECTORY = Path(__file__).parent


def load() -> tuple[str, Tokenizer]:
    """The source of the chat template, and its tokenizer."""
    return (_DIRECTORY / "layout.jinja").read_text(encoding="utf-8"), Tokenizer.load(_DIRECTORY)
