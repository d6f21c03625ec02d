"""JSON and Python spellings of request values, traced (`provenance.py`) where the values are."""

from __future__ import annotations

import json
from typing import Any

from pkv_lint.prompt.errors import RenderError

_PLAIN_SCALARS = (str, int, float, bool, type(None))


def json_text(value: Any, *, ensure_ascii: bool = False) -> str:
    """`json.dumps(value)`. Raises RenderError for a value that is nested too deeply for it."""
    try:
        if _is_plain(value):
            return json.dumps(value, ensure_ascii=ensure_ascii)
        from pkv_lint.prompt.traced.printing import json_of

        return json_of(value, ensure_ascii)
    except RecursionError:
        raise RenderError("nested too deeply") from None


def python_text(value: Any) -> str:
    """`str(value)`."""
    if _is_plain(value):
        return str(value)
    from pkv_lint.prompt.traced.printing import text_of

    return text_of(value)


def _is_plain(value: Any) -> bool:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind is dict:
            if any(type(name) is not str for name in value):
                return False
            waiting += value.values()
        elif kind is list:
            waiting += value
        elif kind not in _PLAIN_SCALARS:
            return False
    return True
