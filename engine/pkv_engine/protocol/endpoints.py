"""The endpoints that take a prompt, and how a request to each is written."""

from __future__ import annotations

from typing import Any

from pkv_lint.prompt.traffic import Api

PATHS: dict[Api, str] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
}
_REPLACED = ("max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens", "n", "best_of")


def streaming(api: Api, body: dict[str, Any], max_tokens: int, *, return_token_ids: bool) -> dict[str, Any]:
    """The body of a request that generates `max_tokens` tokens in one sample and streams them with their usage.

    `return_token_ids` asks for the ids of prompt and reply, which only some servers offer.
    """
    made = {name: value for name, value in body.items() if name not in _REPLACED}
    made["stream"] = True
    if api == "responses":
        made["max_output_tokens"] = max_tokens
        made["store"] = False
        return made
    made["max_tokens"] = max_tokens
    if api == "messages":
        return made
    made["stream_options"] = {"include_usage": True}
    if return_token_ids:
        made["return_token_ids"] = True
    return made
