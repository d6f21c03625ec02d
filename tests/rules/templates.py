"""Small chat templates, put together from pieces, with one thing wrong or nothing."""

from __future__ import annotations

from typing import Any

from .conversations import Line, Message, history, prompt, tool

TOOLS = [
    tool("find_part", "Find a part by the number on its plate.", number={"type": "string"}),
    tool("order_part", "Order a part that was found before.", number={"type": "string"}, count={"type": "integer"}),
]
DOCUMENTS = [{"title": "Belts", "text": "A belt is changed after two thousand hours, or when it whistles."}]
SYSTEM = "{% if messages[0].role == 'system' %}<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n{% endif %}"
PRINT_TOOLS = "{% for tool in tools or [] %}\n{{ tool | tojson }}{% endfor %}"
PRINT_DOCUMENTS = "{% for document in documents or [] %}\n{{ document.title }}: {{ document.text }}{% endfor %}"
CALLS = "{% for call in message.tool_calls or [] %}\n<call>{{ call.function | tojson }}</call>{% endfor %}"
MESSAGES = (
    "{% for message in messages if message.role != 'system' %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}" + CALLS + "<|im_end|>\n{% endfor %}"
)
OPENING = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def template(
    *,
    front: str = "",
    system: str = SYSTEM,
    tools: str = PRINT_TOOLS + PRINT_DOCUMENTS,
    messages: str = MESSAGES,
    end: str = OPENING,
) -> str:
    """A template that prints everything in its place, but for the pieces that are given."""
    return front + system + tools + "\n" + messages + end


PLAIN = template()


def asked(turn: int = 1, system: str | None = None, **fields: Any) -> dict[str, Any]:
    """The body of one turn of a conversation with a system prompt (none for an empty one)."""
    front: list[Message] = [] if system == "" else [{"role": "system", "content": system or prompt()}]
    return {"model": "m", "messages": [*front, *history(turn)], **fields}


def traffic(turns: int = 3, **fields: Any) -> list[Line]:
    return [{"session_id": "s1", "request": asked(turn, **fields)} for turn in range(turns)]


def calling(turn: int = 0, **fields: Any) -> dict[str, Any]:
    """The body of a turn in which the model called a tool and its result came back."""
    body = asked(turn, tools=TOOLS, **fields)
    call = {
        "id": "a1b2c3d4e",
        "type": "function",
        "function": {"name": "find_part", "arguments": '{"number": "K 114"}'},
    }
    body["messages"] = [
        *body["messages"],
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": '{"part": "fan belt", "stock": 3}'},
    ]
    return body
