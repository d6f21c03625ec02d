"""PKV503: what a request sends and its template leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from pkv_lint.findings import Finding

from .conversations import Line, alone, history, lint, loud, prompt, tool
from .templates import (
    CALLS,
    DOCUMENTS,
    MESSAGES,
    OPENING,
    PLAIN,
    PRINT_DOCUMENTS,
    PRINT_TOOLS,
    SYSTEM,
    TOOLS,
    asked,
    calling,
    template,
    traffic,
)

PARTS = (
    "{% for message in messages if message.role != 'system' %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
)


def found(lines: list[Line], source: str, **settings: Any) -> list[Finding]:
    return [finding for finding in lint(lines, chat_template=source, **settings) if finding.code == "PKV503"]


def only(*roles: str) -> str:
    """The messages of these roles, without calls."""
    return MESSAGES.replace("message.role != 'system'", f"message.role in {list(roles)}").replace(CALLS, "")


def parts(*texts: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text, **more} for text in texts]
    return {"messages": [{"role": "system", "content": prompt()}, {"role": "user", "content": content}]}


def said(role: str, content: str = "What this role says stands in a message of its own.") -> list[Line]:
    body = asked(0)
    body["messages"].insert(1, {"role": role, "content": content})
    return alone(body)


MISSING: dict[str, tuple[list[Line], str, str, str]] = {
    "tools": (alone(asked(tools=TOOLS)), template(tools=""), "tools", "tools"),
    "tools of a loop": (
        alone(calling()),
        template(tools="", messages=only("user", "assistant")),
        "tools",
        "tools, tool calls, tool messages",
    ),
    "calls": (alone(calling()), template(messages=MESSAGES.replace(CALLS, "")), "messages[2].tool_calls", "tool calls"),
    "results": (
        alone(calling()),
        template(messages=MESSAGES.replace("!= 'system'", "not in ('system', 'tool')")),
        "messages[3].content",
        "tool messages",
    ),
    "all tools but the first": (
        alone(asked(tools=TOOLS)),
        template(tools="{{ tools[0] | tojson }}"),
        "tools[1]",
        "tools",
    ),
    "documents": (alone(asked(documents=DOCUMENTS)), template(tools=PRINT_TOOLS), "documents", "documents"),
    "documents among the arguments": (
        alone(asked(chat_template_kwargs={"documents": DOCUMENTS})),
        template(tools=PRINT_TOOLS),
        "chat_template_kwargs.documents",
        "documents",
    ),
    "the second document": (
        alone(
            asked(documents=[*DOCUMENTS, {"title": "Oil", "text": "Oil of the class that the plate names, no other."}])
        ),
        template(tools="{{ documents[0].text }}"),
        "documents[1]",
        "documents",
    ),
    "the system message": (alone(asked()), template(system=""), "messages[0].content", "system messages"),
    "a later system message": (
        alone(
            {"messages": [*asked()["messages"], {"role": "system", "content": "Answer in French now."}, *history(0)]}
        ),
        PLAIN,
        "messages[4].content",
        "system messages",
    ),
    "a role of its own": (
        said("observer"),
        template(messages=only("user", "assistant")),
        "messages[1].content",
        "observer messages",
    ),
    "replies": (alone(asked(2)), template(messages=only("user")), "messages[2].content", "assistant messages"),
    "the second part of a message": (
        alone(parts("Look at this, please, and say what it is.", "It came with the last delivery, in a box.")),
        template(messages=PARTS.replace("in message.content %}", "in message.content[:1] %}")),
        "messages[1].content[1]",
        "user messages",
    ),
    "an early message": (
        alone(asked(3)),
        template(messages=MESSAGES.replace("message.role != 'system'", "message not in messages[:2]")),
        "messages[1].content",
        "user messages",
    ),
    "text that stands elsewhere too": (
        alone({"messages": [{"role": "system", "content": prompt()}, {"role": "user", "content": prompt()}]}),
        template(system=""),
        "messages[0].content",
        "system messages",
    ),
}


@pytest.mark.parametrize("name", MISSING)
def test_names_what_is_left_out(name: str) -> None:
    lines, source, path, kinds = MISSING[name]
    (finding,) = found(lines, source)
    assert (finding.severity, finding.path, finding.blame) == ("warning", path, "template")
    assert f"leaves {kinds} out" in finding.message


def test_a_system_message_that_only_some_turns_show() -> None:
    source = template(system="{% if messages[-1].role == 'user' %}" + SYSTEM + "{% endif %}")
    lines = [
        {"session_id": "s", "request": body}
        for body in (asked(0, tools=TOOLS), calling(0), asked(1, tools=TOOLS), calling(1), calling(2))
    ]
    (finding,) = found(lines, source)
    assert (finding.request, finding.requests_affected, finding.path) == (1, 3, "messages[0].content")
    assert "prints other system messages" in finding.message


def test_one_finding_for_all_requests() -> None:
    (finding,) = found(traffic(5, tools=TOOLS), template(tools=""))
    assert finding.requests_affected == 5


ODD = tool("x", "y")
HEADER = "x-anthropic-billing-header: cc_version=2.1; cch=0f3a1"
QUIET: dict[str, tuple[list[Line], str, dict[str, Any]]] = {
    "everything printed": (alone(calling(2, documents=DOCUMENTS)), PLAIN, {}),
    "short texts": (alone({"messages": [{"role": "user", "content": "a"}], "tools": [ODD]}), PLAIN, {}),
    "texts that are equal": (alone({"messages": [{"role": "user", "content": "no"}] * 3}), PLAIN, {}),
    "names of the tools only": (
        alone(asked(tools=TOOLS)),
        template(tools="{{ tools | map(attribute='function.name') | join }}"),
        {},
    ),
    "text in capitals": (
        alone(asked()),
        template(messages=MESSAGES.replace("message.content", "message.content | upper")),
        {},
    ),
    "text as JSON": (
        alone({"messages": [{"role": "user", "content": 'Say "é"\nand <b>\t\\n'}]}),
        template(messages=MESSAGES.replace("message.content", "message.content | tojson")),
        {},
    ),
    "text in quotes of an address": (
        alone({"messages": [{"role": "user", "content": "Straße, Öl & Gänse: was kostet das alles zusammen?"}]}),
        template(messages=MESSAGES.replace("message.content", "message.content | urlencode")),
        {},
    ),
    "text without its white space": (
        alone({"messages": [{"role": "user", "content": "  \n indented \n"}]}),
        template(messages=MESSAGES.replace("message.content", "message.content | trim")),
        {},
    ),
    "empty messages": (
        alone({"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "Is it there?"}]}),
        template(system=""),
        {},
    ),
    "white space": (
        alone({"messages": [{"role": "system", "content": " \n"}, {"role": "user", "content": "Is it there?"}]}),
        template(system=""),
        {},
    ),
    "what was said with a call": (
        alone(calling()),
        template(
            messages=MESSAGES.replace(
                "{{ message.content }}", "{{ message.content if not message.tool_calls else '' }}"
            )
        ),
        {},
    ),
    "thoughts": (
        alone({"messages": [*history(0), {"role": "assistant", "content": "<think>Hm.</think>"}, *history(0)]}),
        template(messages=MESSAGES.replace("message.content", "message.content.split('</think>')[-1]")),
        {},
    ),
    "tools that the server takes out": (
        alone(asked(tools=TOOLS, tool_choice="none")),
        PLAIN,
        {"vllm_args": "--exclude-tools-when-tool-choice-none"},
    ),
    "tools that the arguments replace": (
        alone(asked(tools=TOOLS, chat_template_kwargs={"tools": [tool("other", "Another one.")]})),
        PLAIN,
        {},
    ),
    "tools that are loaded later": (
        alone(asked(tools=[TOOLS[0], {**TOOLS[1], "defer_loading": True}])),
        template(tools="{{ tools[0] | tojson }}"),
        {},
    ),
    "a header of the client": (
        alone({"messages": [{"role": "system", "content": HEADER}, *history(0)]}),
        PLAIN,
        {},
    ),
    "a header above the text": (
        alone({"messages": [{"role": "system", "content": f"{HEADER}\n{prompt()}"}, *history(0)]}),
        PLAIN,
        {},
    ),
    "a developer": (alone({"messages": [{"role": "developer", "content": prompt()}, *history(0)]}), PLAIN, {}),
    "parts": (alone(parts("Look at this.", "It came today.")), template(messages=PARTS), {}),
    "parts that are joined": (alone(parts("Look at this.", "It came today.")), PLAIN, {}),
    "no tools at all": (alone(asked()), template(tools=""), {}),
}


@pytest.mark.parametrize("name", QUIET)
def test_leaves_alone(name: str) -> None:
    lines, source, settings = QUIET[name]
    assert found(lines, source, **settings) == []


MESSAGES_API = {
    "model": "m",
    "max_tokens": 100,
    "system": [{"type": "text", "text": prompt()}],
    "tools": [
        {"name": "find_part", "description": "Find a part.", "input_schema": {"type": "object", "properties": {}}}
    ],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Which belt fits the K 114?"}]}],
}
RESPONSES_API = {
    "model": "m",
    "instructions": prompt(),
    "tools": [
        {"type": "function", "name": "find_part", "description": "Find a part.", "parameters": {"type": "object"}}
    ],
    "input": "Which belt fits the K 114?",
}


@pytest.mark.parametrize("body", [MESSAGES_API, RESPONSES_API], ids=["messages", "responses"])
def test_bodies_of_other_endpoints(body: dict[str, Any]) -> None:
    assert found([{"request": body}], PLAIN) == []
    (finding,) = found([{"request": body}], template(tools=""))
    assert finding.path is not None and finding.path.startswith("tools")
    (finding,) = found([{"request": body}], template(system=""))
    assert finding.path in ("system[0].text", "instructions")


def test_of_the_builtin_layout_nothing_is_said() -> None:
    assert loud(lint(alone(calling(2, documents=DOCUMENTS)))) == []


def test_the_pieces_of_these_tests_print_everything() -> None:
    assert PRINT_TOOLS + PRINT_DOCUMENTS in PLAIN and PLAIN.endswith(OPENING)
