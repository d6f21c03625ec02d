"""House rules for pkv-lint. Each is a module; `all_rules` is the entry point that pkv-lint calls."""

from __future__ import annotations

from types import ModuleType

from . import house001


def all_rules() -> list[ModuleType]:
    return [house001]
