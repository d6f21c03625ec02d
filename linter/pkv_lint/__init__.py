"""Why did my prompt miss the KV cache, what does it cost, and how do I prove it is fixed?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pkv_lint.capturing import capture as capture
    from pkv_lint.linting import lint as lint
    from pkv_lint.testing import assert_prefix_stable as assert_prefix_stable

__all__ = ["assert_prefix_stable", "capture", "lint"]

_MODULES = {
    "assert_prefix_stable": "pkv_lint.testing",
    "capture": "pkv_lint.capturing",
    "lint": "pkv_lint.linting",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the command line imports this package before it knows what it needs.
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
