"""The rules that come with pkv-lint, one module each, listed here."""

from __future__ import annotations

from importlib import import_module
from typing import Any

CODES = (
    "pkv101",
    "pkv102",
    "pkv103",
    "pkv104",
    "pkv105",
    "pkv106",
    "pkv201",
    "pkv202",
    "pkv203",
    "pkv204",
    "pkv205",
    "pkv301",
    "pkv302",
    "pkv303",
    "pkv304",
    "pkv305",
    "pkv401",
    "pkv402",
    "pkv403",
    "pkv404",
    "pkv501",
    "pkv502",
    "pkv503",
    "pkv504",
    "pkv505",
    "pkv601",
    "pkv602",
    "pkv603",
    "pkv604",
    "pkv901",
    "pkv902",
    "pkv903",
    "pkv904",
)


def all_rules() -> list[Any]:
    """The rule modules, for the entry point group `pkv.rules`."""
    return [import_module(f"{__name__}.{code}") for code in CODES]
