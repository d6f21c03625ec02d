"""Why did my prompt miss the KV cache, what does it cost, and how do I prove it is fixed?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pkv_lint.linting import lint as lint

__all__ = ["lint"]


def __getattr__(name: str) -> Any:
    # Loaded on first use: the command line imports this package before it knows what it needs.
    if name == "lint":
        from pkv_lint.linting import lint

        return lint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
