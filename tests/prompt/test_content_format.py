"""Whether a template is given content as a string or as parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pkv_lint.prompt.chat_template import ChatTemplate

Serve = Callable[..., Any]

EACH = "{% for message in messages %}"
LOOP = "{% for part in message.content %}{% endfor %}"
END = "{% endfor %}"


@pytest.mark.parametrize(
    "source",
    [
        EACH + LOOP + END,
        EACH + "{% for part in message['content'] %}{% endfor %}" + END,
        EACH + "{% for part in message.content | list %}{% endfor %}" + END,
        EACH + "{% for part in message.content[1:] %}{% endfor %}" + END,
        EACH + "{% if message.content is string %}x{% else %}" + LOOP + "{% endif %}" + END,
        "{% for m in messages[1:] %}{% for part in m.content %}{% endfor %}{% endfor %}",
        "{% set rest = messages %}{% for m in rest %}{% for part in m.content %}{% endfor %}{% endfor %}",
        "{% set a = messages[1:] %}{% set b = a %}{% for m in b %}{% for part in m.content %}{% endfor %}{% endfor %}",
        EACH + "{% set content = message.content %}{% for part in content %}{% endfor %}" + END,
        # Any loop over that name counts.
        "{% for part in content %}{% endfor %}",
        "{% macro show(c) %}{% for part in c %}{% endfor %}{% endmacro %}" + EACH + "{{ show(message.content) }}" + END,
        "{% macro show(c) %}{% for part in c %}{% endfor %}{% endmacro %}"
        + EACH
        + "{{ show(c=message.content) }}"
        + END,
    ],
)
def test_templates_that_want_parts(source: str) -> None:
    assert ChatTemplate(source).content_format == "openai"


@pytest.mark.parametrize(
    "source",
    [
        EACH + "{{ message.content }}" + END,
        "{{ messages }}",
        EACH + "{% for part in message.parts %}{% endfor %}" + END,
        # Indexed messages, lookups by `get` and aliases of another name than `content` are not followed.
        "{% for part in messages[0].content %}{% endfor %}",
        EACH + "{% for part in message.get('content') %}{% endfor %}" + END,
        EACH + "{% set c = message.content %}{% for part in c %}{% endfor %}" + END,
        "{% for part in message.content %}{% endfor %}",
        # In a macro the name alone is no sign.
        "{% macro show(content) %}{% for part in content %}{% endfor %}{% endmacro %}",
        "{% macro show(c) %}{% for part in c %}{% endfor %}{% endmacro %}" + EACH + "{{ show(message.text) }}" + END,
        # vLLM gives up at a loop that unpacks.
        "{% for a, b in messages %}{% endfor %}" + EACH + LOOP + END,
    ],
)
def test_templates_that_want_a_string(source: str) -> None:
    assert ChatTemplate(source).content_format == "string"


def test_assignments_in_a_circle_end() -> None:
    assert ChatTemplate("{% set a = messages %}{% set b = a %}{% set a = b %}").content_format == "string"


@pytest.mark.parametrize(
    ("given", "loops", "seen"),
    [
        ("auto", True, '[{"type": "text", "text": "x"}]'),
        ("auto", False, '"x"'),
        ("string", True, '"x"'),
        ("openai", False, '[{"type": "text", "text": "x"}]'),
    ],
)
def test_the_server_can_say_what_it_is(serve: Serve, given: str, loops: bool, seen: str) -> None:
    source = "{{ messages[0].content | tojson }}" + (EACH + LOOP + END if loops else "")
    server = serve(source, "--chat-template-content-format", given)
    assert server.text({"role": "user", "content": "x"}) == seen
