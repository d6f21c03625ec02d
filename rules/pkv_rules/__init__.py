"""The rules that come with pkv-lint, one module each, listed here."""

from __future__ import annotations

from importlib import import_module
from typing import Any

CODES = ("pkv101", "pkv103", "pkv201", "pkv301")


def all_rules() -> list[Any]:
    """The rule modules, for the entry point group `pkv.rules`."""
    return [import_module(f"{__name__}.{code}") for code in CODES]
