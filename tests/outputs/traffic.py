"""Traffic whose findings the tests of the outputs show."""

from __future__ import annotations

import io
import json
from typing import Any

from pkv_lint.linting import Report, lint_traffic
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.traffic import read_requests

SYSTEM = "You are a clerk. " + "Answer in short sentences and name your sources. " * 20


def request(system: str = SYSTEM, user: str = "hi", **further: Any) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": system}, {"role": "user", "content": user}], **further}


def clocked(second: int, before: str = "") -> dict[str, Any]:
    return request(f"{before}The time is 2026-11-29 14:05:{second:02d}. {SYSTEM}")


def lines(*values: Any) -> str:
    return "".join((value if isinstance(value, str) else json.dumps(value)) + "\n" for value in values)


def report(*values: Any, name: str = "traffic.jsonl") -> Report:
    """The report of a file with these lines."""
    data = io.BytesIO(lines(*values).encode())
    return lint_traffic(read_requests(data, name=name), Renderer.load())
