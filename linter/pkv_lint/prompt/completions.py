"""Requests to /v1/completions: a prompt that is text or ids already."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from pkv_lint.prompt.errors import RenderError

EMPTY = "Either prompt or prompt_embeds must be provided and non-empty."


def looks_like(request: Mapping[str, object]) -> bool:
    """Whether a body without an endpoint is meant for Completions."""
    return "prompt" in request and not any(name in request for name in ("messages", "input"))


def to_chat(request: Mapping[str, object]) -> dict[str, object]:
    """The fields of a completions body in a chat body without messages. `add_special_tokens` is on by default."""
    return {"add_special_tokens": True, **request, "messages": []}


def prompt_of(request: Mapping[str, Any]) -> tuple[str, str] | array[int]:
    """The prompt of a body: text and its path, or ids. Raises RenderError where the server refuses it, and for several
    prompts in one request: each is a request of its own to the cache."""
    prompt, path = request.get("prompt"), "prompt"
    if isinstance(prompt, list) and prompt and not is_id(prompt[0]):
        if len(prompt) > 1:
            raise RenderError("has several prompts: give each in a request of its own to judge them", path=path)
        prompt, path = prompt[0], "prompt[0]"
    if prompt is None or prompt == [] or (prompt == "" and path == "prompt"):
        embeddings = request.get("prompt_embeds") not in (None, [])
        raise RenderError("prompt embeddings have no tokens" if embeddings else EMPTY, path="prompt")
    if isinstance(prompt, str):
        return prompt, path
    if not isinstance(prompt, list) or not all(is_id(token) for token in prompt):
        raise RenderError("needs text or token ids", path=path)
    return array("i", prompt)


def is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
