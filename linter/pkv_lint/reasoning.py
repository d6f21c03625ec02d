"""The reasoning of a reply: in a field of its own, or in its text."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from .changes import Chat, content, role, text_of

FIELDS = ("reasoning", "reasoning_content")
INLINE = re.compile(
    r"\s*(?:<(think|thinking|thought|reasoning|seed:think)>(?P<tagged>.*?)</\1>|\[THINK\](?P<marked>.*?)\[/THINK\]"
    r"|<\|channel\|>analysis<\|message\|>(?P<channel>.*?)<\|end\|>|\A(?P<opened>.*?)</think>)\s*",
    re.S,
)
"""Reasoning inside of a reply's text, as models write it; an opening that stood in the prompt is missing."""


def thoughts_of(message: Any) -> str:
    """The reasoning that comes with a reply, empty when there is none."""
    if not isinstance(message, dict) or role(message) not in ("assistant", ""):
        return ""
    given = next((message[name] for name in FIELDS if message.get(name)), None)
    if given is not None:
        return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    found = INLINE.match(text_of(message))
    return next((text for name in INLINE.groupindex if (text := found[name])), "").strip() if found else ""


def without_thoughts(text: str) -> str:
    """The text of a reply without its reasoning."""
    return INLINE.sub("", text, count=1)


def without_reasoning(chat: Chat, places: Collection[int]) -> Chat:
    """A body without the reasoning of the messages at these places."""
    return {
        **chat,
        "messages": [bare(message) if at in places else message for at, message in enumerate(chat["messages"])],
    }


def bare(message: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in message.items() if name not in FIELDS}
    if isinstance(kept.get("content"), str):
        kept["content"] = without_thoughts(kept["content"])
    elif isinstance(kept.get("content"), list):
        kept["content"] = [
            {**part, "text": without_thoughts(part["text"])} if isinstance(part, dict) and "text" in part else part
            for part in kept["content"]
        ]
    return kept


def restored(chat: Chat, place: int, completion: str) -> Iterator[Chat]:
    """The body with the reasoning of a generated text put back into the reply at a place, as a field or in its text."""
    message = chat["messages"][place]
    found = INLINE.match(completion)
    inline = {**message, "content": (found[0] if found else "") + text_of(message)}
    fields = {**bare(message), "content": content(message), "reasoning": thoughts_of({"content": completion})}
    for version in (fields, inline):
        yield {**chat, "messages": [*chat["messages"][:place], version, *chat["messages"][place + 1 :]]}
