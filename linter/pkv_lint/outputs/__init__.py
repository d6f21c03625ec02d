"""What the commands print, one module per format: each makes the lines of its text from the reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pkv_lint.linting import Report


def lines(name: str, reports: Sequence[Report], **options: Any) -> Iterator[str]:
    """The text of a format, without line ends; `options` are its own. What nobody asked for is not imported."""
    return cast("Iterator[str]", import_module(f"{__name__}.{name}").lines(reports, **options))
