"""From a request to the exact tokens a server will see, and where each of them came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pkv_lint.prompt.errors import InputError as InputError
    from pkv_lint.prompt.errors import PkvError as PkvError
    from pkv_lint.prompt.errors import RenderError as RenderError
    from pkv_lint.prompt.origin import Origin as Origin
    from pkv_lint.prompt.prompt import Prompt as Prompt
    from pkv_lint.prompt.renderer import Renderer as Renderer

_MODULES = {
    "InputError": "errors",
    "Origin": "origin",
    "PkvError": "errors",
    "Prompt": "prompt",
    "RenderError": "errors",
    "Renderer": "renderer",
}
__all__ = ["InputError", "Origin", "PkvError", "Prompt", "RenderError", "Renderer"]


def __getattr__(name: str) -> Any:
    # Loaded on first use, so that reading a file does not import Jinja.
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
