"""Files of conversations that benchmarks send: ShareGPT, and vLLM's `custom` and `spec_bench` datasets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.formats.block_line import whole_number
from pkv_lint.prompt.json_values import JsonValue
from pkv_lint.prompt.traffic import TrafficLine

ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "system": "system",
    "tool": "tool",
}


def sharegpt(item: JsonValue, index: int, name: str) -> Iterator[TrafficLine]:
    """One request for each reply of a conversation: what was said up to there, and the reply as what was generated.

    Replies in front of the first question are left out. Raises InputError.
    """
    turns = item.value["conversations"]
    if not isinstance(turns, list):
        raise InputError("needs a list of turns", path="conversations")
    session = item.value.get("id")
    messages: list[dict[str, Any]] = []
    for at, turn in enumerate(turns):
        role, text = spoken(turn, f"conversations[{at}]")
        asked = any(message["role"] != "system" for message in messages)
        if role == "assistant" and asked:
            request = {"messages": list(messages)}
            yield line(item, index, name, request, session_id=str(session or f"line {item.line}"), completion=text)
            index += 1
        if role != "assistant" or asked:
            messages.append({"role": role, "content": text})


def spoken(turn: Any, path: str) -> tuple[str, str]:
    if not isinstance(turn, dict):
        raise InputError("needs a JSON object", path=path)
    speaker, text = turn.get("from", turn.get("role")), turn.get("value", turn.get("content"))
    if not isinstance(speaker, str) or speaker not in ROLES:
        raise InputError(f"is none of {', '.join(ROLES)}", path=f"{path}.from" if "from" in turn else path)
    if not isinstance(text, str):
        raise InputError("needs a text", path=f"{path}.value" if "value" in turn else path)
    return ROLES[speaker], text


def custom(item: JsonValue, index: int, name: str) -> Iterator[TrafficLine]:
    """The prompt as one question, as `vllm bench serve` sends it. Raises InputError."""
    value = item.value
    if not isinstance(value["prompt"], str):
        raise InputError("needs a text", path="prompt")
    tokens = whole_number(value, "output_tokens") if value.get("output_tokens") is not None else None
    yield line(item, index, name, question(value["prompt"]), output_tokens=tokens)


def spec_bench(item: JsonValue, index: int, name: str) -> Iterator[TrafficLine]:
    """The first turn as one question: replies, which later turns would go on from, are not in the file."""
    turns = item.value["turns"]
    if not isinstance(turns, list) or not turns or not isinstance(turns[0], str):
        raise InputError("needs a list of texts", path="turns")
    yield line(item, index, name, question(turns[0]))


def question(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def line(item: JsonValue, index: int, name: str, request: dict[str, Any], **recorded: Any) -> TrafficLine:
    return TrafficLine(index, name, item.line, item.column, item.text, request=request, **recorded)
