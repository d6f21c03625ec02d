"""PKV504: templates that write HTML entities."""

from __future__ import annotations

from typing import Any

import pytest

from pkv_lint.findings import Finding

from .conversations import Line, alone, lint, tool, value_at
from .templates import MESSAGES, PLAIN, TOOLS, asked, template, traffic

SAID = "Is 3 < 4 & \"4\" > '3'?"


def found(lines: list[Line], source: str) -> list[Finding]:
    return [finding for finding in lint(lines, chat_template=source) if finding.code == "PKV504"]


def user(text: str) -> list[Line]:
    return alone({"messages": [{"role": "user", "content": text}]})


def printing(expression: str) -> str:
    return template(messages=MESSAGES.replace("message.content", expression))


ESCAPING = {
    "sum": printing("'> ' | safe + message.content"),
    "sum the other way round": printing("message.content + (' .' | safe)"),
    "safe text kept in a variable": template(
        messages="{% set mark = '> ' | safe %}" + MESSAGES.replace("message.content", "mark + message.content")
    ),
    "join": printing("(', ' | safe).join([message.content, 'end'])"),
    "escape": printing("message.content | e"),
    "escape by its long name": printing("message.content | escape"),
    "escape by force": printing("message.content | forceescape"),
    "filter block": template(
        messages=MESSAGES.replace("{{ message.content }}", "{% filter e %}{{ message.content }}{% endfilter %}")
    ),
    "format": printing("'%s .' | safe | format(message.content)"),
    "format method": printing("('{} .' | safe).format(message.content)"),
    "addresses made links": printing("message.content | urlize"),
    "replacement": printing("('<q>_</q>' | safe).replace('_', message.content)"),
}


@pytest.mark.parametrize("name", ESCAPING)
def test_finds_entities(name: str) -> None:
    (finding,) = found(user(SAID), ESCAPING[name])
    assert (finding.severity, finding.blame) == ("warning", "template")
    assert finding.evidence["entity"] in ("&lt;", "&amp;", "&#34;", "&gt;", "&#39;")
    assert finding.path in ("messages[0].content", None)


def test_points_at_the_character() -> None:
    lines = user(SAID)
    (finding,) = found(lines, ESCAPING["sum"])
    assert value_at(lines, finding) == "<" and finding.evidence["entity"] == "&lt;"
    assert "|safe (first at its line" in finding.message


def test_the_quotes_of_tools_as_json() -> None:
    lines = alone(asked(tools=TOOLS))
    (finding,) = found(lines, template(tools="{{ 'Use ' | safe + (tools | tojson) }}"))
    assert finding.evidence["entity"] == "&#34;" and (finding.path or "").startswith("tools")


def test_text_of_the_template_itself() -> None:
    (finding,) = found(user("Hello."), template(front="{{ '<tool>' + ('x' | safe) }}"))
    assert finding.path is None


def test_a_fault_behind_requests_that_hold_entities() -> None:
    source = template(tools="{% if tools %}{{ '' | safe + tools[0].function.description }}{% endif %}")
    lines = [
        *user("Write &lt;b&gt; for bold."),
        *alone(asked(tools=[tool("go", "Go to <place>.")])),
    ]
    (finding,) = found(lines, source)
    assert (finding.request, finding.path) == (1, "tools[0].function.description")


def test_one_finding_for_all_requests() -> None:
    (finding,) = found(
        traffic(4, tools=[tool("go", "Go to <place>.")]),
        template(tools="{{ '' | safe + tools[0].function.description }}"),
    )
    assert finding.requests_affected == 4


QUIET: dict[str, tuple[list[Line], str]] = {
    "no markup": (user(SAID), PLAIN),
    "entities of the request": (user("&lt;b&gt; &amp; &#39;x&#39; &#34;"), PLAIN),
    "entities of the request, marked safe": (user("&lt;b&gt; &amp;"), printing("message.content | safe")),
    "text marked safe": (user(SAID), printing("message.content | safe")),
    "entities of the template": (user("Hello."), template(front="{{ '' | safe }}Write &lt; for <.\n")),
    "entities the template puts in": (user(SAID), printing("'' | safe ~ message.content | replace('<', '&lt;')")),
    "markup and text side by side": (user(SAID), printing("'' | safe }}{{ message.content")),
    "joined with a tilde": (user(SAID), printing("'> ' | safe ~ message.content")),
    "joined by a filter": (user(SAID), printing("['> ' | safe, message.content] | join")),
    "JSON marked safe": (user(SAID), printing("message.content | tojson | safe")),
    "nothing to escape": (user("Plain text."), ESCAPING["sum"]),
    "markup in a branch not taken": (
        user(SAID),
        printing("('' | safe + message.content) if html else message.content"),
    ),
}


@pytest.mark.parametrize("name", QUIET)
def test_leaves_alone(name: str) -> None:
    assert found(*QUIET[name]) == []


def test_of_the_builtin_layout_nothing_is_said() -> None:
    findings: list[Any] = [finding for finding in lint(user(SAID)) if finding.code == "PKV504"]
    assert findings == []
