"""The reasoning of a reply: in a field of its own, or in its text."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from pkv_lint.changes import Chat, content, role, text_of

FIELDS = ("reasoning", "reasoning_content")
INLINE = re.compile(
    r"\s*(?:<(think|thinking|thought|reasoning|seed:think)>(?P<tagged>.*?)</\1>|\[THINK\](?P<marked>.*?)\[/THINK\]"
    r"|<\|channel\|>analysis<\|message\|>(?P<channel>.*?)<\|end\|>|\A(?P<opened>.*?)</think>)\s*",
    re.S,
)
"""Reasoning inside of a reply's text, as models write it; an opening that stood in the prompt is missing."""

END = re.compile(r"(?:<[|/\w][^<>\s]*>)*")
"""Special tokens that end a reply."""


def thoughts_of(message: Any) -> str:
    """The reasoning that comes with a reply, empty when there is none."""
    if not isinstance(message, dict) or role(message) != "assistant":
        return ""
    given = next((message[name] for name in FIELDS if message.get(name)), None)
    if given is not None:
        return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return thoughts_in(text_of(message))


def thoughts_in(text: str) -> str:
    """The reasoning in front of the answer in a text as it was generated, empty when there is none."""
    found = INLINE.match(text)
    return next((part for name in INLINE.groupindex if (part := found[name])), "").strip() if found else ""


def without_thoughts(text: str) -> str:
    """The text of a reply without its reasoning."""
    return INLINE.sub("", text, count=1)


def is_faithful(message: Any, completion: str) -> bool:
    """Whether a reply says what was generated. White space around reasoning and calls is the server's to take away."""
    text = text_of(message)
    answer = without_thoughts(completion) if thoughts_in(completion) and not thoughts_in(text) else completion
    answer = answer.rpartition("<|message|>")[2]  # gpt-oss writes whom a message is for in front of it
    if message.get("tool_calls"):
        return text.strip() in completion
    return answer.startswith(text) and END.fullmatch(answer, len(text)) is not None


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


def restored(chat: Chat, place: int, thought: str) -> Chat:
    """The body with reasoning put back into the reply at a place."""
    messages = chat["messages"]
    reply = {**bare(messages[place]), "content": content(messages[place]), "reasoning": thought}
    return {**chat, "messages": [*messages[:place], reply, *messages[place + 1 :]]}
