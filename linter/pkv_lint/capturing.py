"""The requests that a program sends to a model, as traffic: for tests of agents."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import wraps
from types import ModuleType
from typing import Any

from pkv_lint.prompt.traffic import api_at

CLIENTS = ("httpx", "httpx2")
"""Packages whose clients are followed: the `openai` and `anthropic` clients send through one of them."""


@contextmanager
def capture() -> Iterator[list[dict[str, Any]]]:
    """Follow what httpx clients, sync and async, send to Chat Completions, Completions, Messages and Responses.

        with pkv_lint.capture() as traffic:
            run_my_agent()
        pkv_lint.assert_prefix_stable(traffic)

    Gives a list that grows while the block runs: one native line `{"timestamp", "path", "request"}` for each request
    sent, retries among them, in the order of sending. Requests and replies pass untouched, and no header is kept. All
    clients of the process are followed, also in other threads and those made before.
    """
    traffic: list[dict[str, Any]] = []
    with ExitStack() as restored:
        for name in CLIENTS:
            if importlib.util.find_spec(name) is not None:
                _follow(importlib.import_module(name), traffic, restored)
        yield traffic


def _follow(package: ModuleType, traffic: list[dict[str, Any]], restored: ExitStack) -> None:
    """Have each request noted on its way through `send`, which all others call, whatever the transport."""
    for client in (package.Client, package.AsyncClient):
        send = client.send
        restored.callback(setattr, client, "send", send)
        client.send = _noting(send, traffic)


def _noting(send: Callable[..., Any], traffic: list[dict[str, Any]]) -> Callable[..., Any]:
    # For async clients this returns the coroutine: the request is noted when it is made, which is when it is sent.
    @wraps(send)
    def noting(client: Any, request: Any, **options: Any) -> Any:
        if (line := _line(request)) is not None:
            traffic.append(line)
        return send(client, request, **options)

    return noting


def _line(request: Any) -> dict[str, Any] | None:
    """The line for a request; None for one that asks a model for nothing."""
    path = request.url.path
    if request.method != "POST" or api_at(path) is None:
        return None
    try:
        body = json.loads(request.content)
    except (RuntimeError, ValueError):  # a body that is a stream, or no JSON
        return None
    if not isinstance(body, dict):
        return None
    return {"timestamp": datetime.now(UTC).isoformat(), "path": path, "request": body}
