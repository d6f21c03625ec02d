"""PKV502: templates that print tools or system text at the last turn."""

from __future__ import annotations

from typing import Any

import pytest

from pkv_lint.findings import Finding

from .conversations import Line, alone, codes, lint, prompt
from .templates import CALLS, DOCUMENTS, MESSAGES, OPENING, PLAIN, PRINT_TOOLS, TOOLS, asked, calling, template, traffic

LAST_USER = "{% set users = messages | selectattr('role', 'equalto', 'user') | list %}"


def at_last(piece: str, condition: str = "message == users[-1]") -> str:
    """The messages, with something in front of the one that the condition holds for."""
    return LAST_USER + MESSAGES.replace("<|im_start|>", f"{{% if {condition} %}}{piece}{{% endif %}}<|im_start|>", 1)


IN_SYSTEM = "<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n"
JSON_TOOLS = "[TOOLS]{{ tools | tojson }}[/TOOLS]"
MOVING: dict[str, tuple[str, str]] = {
    "tools in front of the last user message": (template(tools="", messages=at_last(JSON_TOOLS)), "tools"),
    "tools in front of the last message": (template(tools="", messages=at_last(JSON_TOOLS, "loop.last")), "tools"),
    "tools behind the history": (template(tools="", end=JSON_TOOLS + OPENING), "tools"),
    "tools in the words of the template": (
        template(tools="", messages=at_last("{% for t in tools %}{{ t.function.description }}\n{% endfor %}")),
        "tools",
    ),
    "tools before the last two messages": (
        template(tools="", messages=at_last(JSON_TOOLS, "loop.revindex == 2 or messages | length == 2")),
        "tools",
    ),
    "system text at the last user message": (template(system="", messages=at_last(IN_SYSTEM)), "messages[0]"),
    "system text inside the last user message": (
        template(
            system="",
            messages=LAST_USER
            + "{% for message in messages if message.role != 'system' %}<|im_start|>{{ message.role }}\n"
            "{% if message == users[-1] %}{{ messages[0].content }}\n\n{% endif %}"
            "{{ message.content }}" + CALLS + "<|im_end|>\n{% endfor %}",
        ),
        "messages[0]",
    ),
    "system text behind the history": (template(system="", end=IN_SYSTEM + OPENING), "messages[0]"),
    "system text behind a title": (template(system="{{ '# ' }}", messages=at_last(IN_SYSTEM)), "messages[0]"),
    "system text and tools": (template(system="", tools="", messages=at_last(IN_SYSTEM + JSON_TOOLS)), "messages[0]"),
    "documents at the last user message": (
        template(tools=PRINT_TOOLS, messages=at_last("{% for d in documents %}{{ d.text }}\n{% endfor %}")),
        "documents",
    ),
}


def found(lines: list[Line], source: str, **settings: Any) -> list[Finding]:
    return [finding for finding in lint(lines, chat_template=source, **settings) if finding.code == "PKV502"]


@pytest.mark.parametrize("name", MOVING)
def test_seen_to_move(name: str) -> None:
    source, path = MOVING[name]
    findings = found(traffic(4, tools=TOOLS, documents=DOCUMENTS), source)
    assert findings[0].severity == "error"
    assert (findings[0].path or "").startswith(path) and findings[0].request == 1
    assert findings[0].requests_affected == 3 and findings[0].tokens_lost > 0
    assert findings[0].blame == "template"


@pytest.mark.parametrize("name", MOVING)
def test_told_from_one_request(name: str) -> None:
    source, path = MOVING[name]
    (finding,) = found(alone(asked(tools=TOOLS, documents=DOCUMENTS)), source)
    assert finding.severity == "warning" and (finding.path or "").startswith(path)
    assert finding.evidence["tokens_next_turn"] > 16


def test_cheap_moves_are_notes() -> None:
    source = template(system="", messages=at_last(IN_SYSTEM))
    (finding,) = found(
        alone({"messages": [{"role": "system", "content": "Brief."}, {"role": "user", "content": "Hi"}]}), source
    )
    assert finding.severity == "info"


def test_tools_that_only_some_turns_print() -> None:
    """Printed in front, but only while a user speaks: the next call of a tool breaks it."""
    source = template(tools="{% if messages[-1].role == 'user' %}" + PRINT_TOOLS + "{% endif %}")
    (finding,) = found(alone(asked(tools=TOOLS)), source)
    assert (finding.path, finding.severity) == ("tools", "warning")


def test_the_cost_is_what_the_next_turn_computes_again() -> None:
    source, _ = MOVING["tools in front of the last user message"]
    lines = traffic(2, tools=TOOLS)
    (static,) = found(lines[:1], source)
    (seen,) = found(lines, source)
    assert abs(static.evidence["tokens_next_turn"] - seen.tokens_lost) < 32


QUIET: dict[str, tuple[list[Line], str]] = {
    "everything in front": (traffic(4, tools=TOOLS, documents=DOCUMENTS), PLAIN),
    "everything in front, alone": (alone(asked(tools=TOOLS, documents=DOCUMENTS)), PLAIN),
    "tools in front of the system text": (
        traffic(4, tools=TOOLS),
        template(front="{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}", tools=""),
    ),
    "system text inside the first user message": (
        traffic(4),
        template(
            system="",
            messages=MESSAGES.replace(
                "{{ message.content }}",
                "{% if loop.first %}{{ messages[0].content }}\n{% endif %}{{ message.content }}",
            ),
        ),
    ),
    "tools at the first user message": (
        alone(asked(tools=TOOLS)),
        template(
            tools="", messages=MESSAGES.replace("<|im_start|>", "{% if loop.first %}{{ tools }}{% endif %}<|im_start|>")
        ),
    ),
    "nothing to move": (
        traffic(4),
        template(tools="", messages=at_last(JSON_TOOLS.replace("{{ tools", "{{ tools or 0"))),
    ),
    "a tool loop behind one user message": (
        [{"session_id": "s", "request": asked(0, tools=TOOLS)}, {"session_id": "s", "request": calling()}],
        MOVING["tools in front of the last user message"][0],
    ),
    "requests that do not go on": (
        [
            {"session_id": f"s{n}", "request": asked(0, tools=TOOLS, system=prompt()) | {"user": str(n)}}
            for n in range(3)
        ],
        MOVING["tools in front of the last user message"][0],
    ),
    "the last message marked": (
        traffic(4, tools=TOOLS),
        template(messages=at_last("[last]", "loop.last")),
    ),
    "tools again at the end": (alone(asked(tools=TOOLS)), template(end="{{ tools | length }} tools\n" + OPENING)),
    "a template that takes no further turn": (
        alone(asked(0, tools=TOOLS)),
        template(
            tools="",
            messages="{% if messages | length > 2 %}{{ raise_exception('one turn') }}{% endif %}" + at_last(JSON_TOOLS),
        ),
    ),
    "an unfinished reply": (
        alone(
            asked(tools=TOOLS, continue_final_message=True, add_generation_prompt=False)
            | {"messages": [*asked()["messages"], {"role": "assistant", "content": "Well,"}]}
        ),
        MOVING["tools in front of the last user message"][0],
    ),
}


@pytest.mark.parametrize("name", QUIET)
def test_leaves_alone(name: str) -> None:
    assert found(*QUIET[name]) == []


def test_of_the_builtin_layout_nothing_is_said() -> None:
    assert codes(lint(traffic(4, tools=TOOLS))) == []
