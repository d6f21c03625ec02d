"""What a server says in answer to a request, read from its events or from one JSON body."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pkv_lint.prompt.traffic import Api


class ReplyError(Exception):
    """The server said something that is no reply: text that is not JSON, or an error in the stream."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as reported; None for what is not said. `details` tells whether the object that holds the cached
    tokens was there at all."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    details: bool = False

    @property
    def wrong(self) -> str | None:
        """What cannot be true of it."""
        if self.prompt_tokens is None or self.prompt_tokens <= 0:
            return f"prompt_tokens is {self.prompt_tokens}"
        if self.cached_tokens is not None and not 0 <= self.cached_tokens <= self.prompt_tokens:
            return f"{self.cached_tokens} cached tokens of {self.prompt_tokens}"
        return None


@dataclass(slots=True)
class Reply:
    """A reply as far as it has come. `begun`: a token has come, be it one without text. `ended`: nothing is missing.

    `plain` tells that `text` is all that was generated but for special tokens: no reasoning and no tool calls were
    taken out of it.
    """

    api: Api
    begun: bool = False
    ended: bool = False
    text: str = ""
    plain: bool = True
    usage: Usage | None = None
    response_id: str | None = None
    prompt_token_ids: array[int] | None = None
    token_ids: array[int] | None = None
    _read: dict[str, int | None] = field(default_factory=dict)

    def take_event(self, data: bytes) -> None:
        """Raises ReplyError."""
        if data.strip() == b"[DONE]":
            self.ended = True
            return
        event = _object(data)
        if event.get("error"):
            raise ReplyError(f"error in the stream: {_message(event['error'])}")
        if self.api in ("chat", "completions"):
            self._take_chunk(event)
        elif self.api == "messages":
            self._take_message_event(event)
        else:
            self._take_response_event(event)

    def take_body(self, data: bytes) -> None:
        """A reply that was not streamed. Raises ReplyError."""
        body = _object(data)
        if self.api in ("chat", "completions"):
            self._take_chunk(body)
        elif self.api == "messages":
            self._take_message(body)
            for part in _objects(body.get("content")):
                self._take_part(part)
        else:
            self._take_response(body)
            for item in _objects(body.get("output")):
                self._take_item(item)
        self.begun = self.ended = True

    def _take_chunk(self, chunk: Mapping[str, Any]) -> None:
        """A chunk of Chat Completions or Completions; a whole body has the same members, and `message` for `delta`."""
        self._identify(chunk)
        self._take_ids(chunk)
        for choice in _objects(chunk.get("choices")):
            if choice.get("index", 0) != 0:
                continue
            self._take_ids(choice)
            delta = _mapping(choice.get("delta") or choice.get("message") or choice)
            text = delta.get("content") if "content" in delta else delta.get("text")
            other = delta.get("reasoning") or delta.get("reasoning_content") or delta.get("tool_calls")
            if isinstance(text, str):
                self.text += text
            self.plain = self.plain and not other
            if text or other or choice.get("token_ids") or choice.get("finish_reason"):
                self.begun = True
        if isinstance(chunk.get("usage"), dict):
            self._take_usage(chunk["usage"], "prompt_tokens", "completion_tokens", "prompt_tokens_details")

    def _take_ids(self, holder: Mapping[str, Any]) -> None:
        if (prompt := _ids(holder.get("prompt_token_ids"))) is not None:
            self.prompt_token_ids = prompt
        if (ids := _ids(holder.get("token_ids"))) is not None:
            self.token_ids = ids if self.token_ids is None else self.token_ids + ids

    def _take_message_event(self, event: Mapping[str, Any]) -> None:
        kind = event.get("type")
        if kind == "message_start":
            self._take_message(_mapping(event.get("message")))
        elif kind == "content_block_start":
            self._take_part(_mapping(event.get("content_block")))
        elif kind == "content_block_delta":
            delta = _mapping(event.get("delta"))
            self._take_part({**delta, "type": {"text_delta": "text"}.get(str(delta.get("type")), "other")})
        elif kind == "message_delta":
            self.begun = True
            self._take_message(event)
        elif kind == "message_stop":
            self.ended = True

    def _take_part(self, part: Mapping[str, Any]) -> None:
        text = part.get("text")
        if part.get("type") == "text" and isinstance(text, str):
            self.text += text
            self.begun = self.begun or bool(text)
        else:
            self.plain = False
            self.begun = True

    def _take_message(self, message: Mapping[str, Any]) -> None:
        """The usage of Messages: `input_tokens` are those that were neither read from a cache nor written to one, and a
        later event may report what an earlier one did not."""
        self._identify(message)
        usage = message.get("usage")
        if not isinstance(usage, dict):
            return
        names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        self._read |= {name: _count(usage.get(name)) for name in names if name in usage}
        told, generated, read, created = (self._read.get(name) for name in names)
        prompt = None if told is None else told + (read or 0) + (created or 0)
        self.usage = Usage(prompt, generated, read, "cache_read_input_tokens" in self._read)

    def _take_response_event(self, event: Mapping[str, Any]) -> None:
        kind = str(event.get("type"))
        if kind == "response.output_text.delta":
            self.text += str(event.get("delta", ""))
            self.begun = True
        elif kind.endswith(".delta"):
            self.plain, self.begun = False, True
        elif kind in ("response.completed", "response.incomplete", "response.created"):
            self._take_response(_mapping(event.get("response")))
            self.ended = self.begun = kind != "response.created"
        elif kind == "response.failed":
            raise ReplyError(f"error in the stream: {_message(_mapping(event.get('response')).get('error'))}")

    def _take_response(self, response: Mapping[str, Any]) -> None:
        self._identify(response)
        if isinstance(response.get("usage"), dict):
            self._take_usage(response["usage"], "input_tokens", "output_tokens", "input_tokens_details")

    def _take_item(self, item: Mapping[str, Any]) -> None:
        if item.get("type") != "message":
            self.plain = False
            return
        for part in _objects(item.get("content")):
            self.text += str(part.get("text", ""))

    def _take_usage(self, usage: Mapping[str, Any], prompt: str, completion: str, details: str) -> None:
        given = usage.get(details)
        told = isinstance(given, dict)
        cached = _count(_mapping(given).get("cached_tokens"))
        self.usage = Usage(_count(usage.get(prompt)), _count(usage.get(completion)), cached, told)

    def _identify(self, holder: Mapping[str, Any]) -> None:
        if self.response_id is None and isinstance(holder.get("id"), str):
            self.response_id = holder["id"]


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise ReplyError(f"not JSON: {_shown(data)}") from None
    if not isinstance(value, dict):
        raise ReplyError(f"not a JSON object: {_shown(data)}")
    return value


def error_message(data: bytes) -> str:
    """What an error body says, as one short line."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return _shown(data)
    return _message(value)


def _message(value: object) -> str:
    """The text of an error in any of the forms that servers write."""
    while isinstance(value, dict):
        value = value.get("message") or value.get("error") or value.get("detail") or json.dumps(value)
    return _shown(str(value).encode())


def _shown(data: bytes) -> str:
    text = " ".join(data.decode(errors="replace").split())
    return text if len(text) <= 160 else text[:157] + "..."


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _ids(value: object) -> array[int] | None:
    if not isinstance(value, list) or not all(type(token) is int and 0 <= token < 2**31 for token in value):
        return None
    return array("i", value)
