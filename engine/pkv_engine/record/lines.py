"""One exchange as a line of native traffic."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pkv_engine.protocol.endpoints import PATHS
from pkv_engine.protocol.replies import Reply
from pkv_lint.prompt.traffic import Api


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that was answered: its body, what the server said, and when; `started` and `ended` are Unix seconds,
    `ttft` seconds to the first event with content (None: not streamed). `session_id` is what the client named."""

    api: Api
    request: dict[str, Any]
    reply: Reply
    started: float
    ended: float
    ttft: float | None
    session_id: str | None = None


def native_line(exchange: Exchange) -> dict[str, Any]:
    """The exchange as `pkv-lint`, `pkv-sim` and `pkv-verify` read it. Nothing of its headers is in it."""
    reply = exchange.reply
    line: dict[str, Any] = {
        "timestamp": timestamp(exchange.started),
        "end_timestamp": timestamp(exchange.ended),
        "path": PATHS[exchange.api],
        "session_id": exchange.session_id,
        "request": exchange.request,
        # With reasoning or tool calls taken out of it, the text is not what the model wrote.
        "completion": reply.text if reply.plain and reply.text else None,
        "output_token_ids": None if reply.token_ids is None else reply.token_ids.tolist(),
        **counts(exchange),
    }
    return {name: value for name, value in line.items() if value is not None}


def counts(exchange: Exchange) -> dict[str, Any]:
    """Usage and time to the first token, which hold no text."""
    usage = exchange.reply.usage
    if usage is None:
        return {"ttft": rounded(exchange.ttft)}
    told = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_tokens": usage.cached_tokens,
    }
    return {
        "usage": {name: count for name, count in told.items() if count is not None},
        "ttft": rounded(exchange.ttft),
    }


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def written(line: dict[str, Any]) -> bytes:
    """A line of a file, end of line included. It is ASCII, so that nothing in it passes for the end of a line."""
    return json.dumps(line).encode("ascii") + b"\n"
