"""PKV501: templates that print the clock of the server."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from pkv_lint.findings import Finding
from pkv_lint.prompt.prefix_tree import common_prefix

from .conversations import Line, alone, history, lint, loud, prompt, renderer
from .templates import MESSAGES, OPENING, PLAIN, SYSTEM, TOOLS, asked, template

DATED = "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"


def found(lines: list[Line], chat_template: str, **settings: Any) -> list[Finding]:
    return [finding for finding in lint(lines, chat_template=chat_template, **settings) if finding.code == "PKV501"]


def clock(format_: str) -> str:
    return template(front=f"Now: {{{{ strftime_now('{format_}') }}}}\n")


CLOCKS = {
    "date": (clock("%d %b %Y"), "day"),
    "weekday": (clock("%A"), "day"),
    "day of the year": (clock("%j"), "day"),
    "week": (clock("%W"), "week"),
    "month": (clock("%B %Y"), "month"),
    "year": (clock("%Y"), "year"),
    "hour": (clock("%Y-%m-%d %H h"), "hour"),
    "half of the day": (clock("%p"), "hour"),
    "minute": (clock("%H:%M"), "minute"),
    "second": (clock("%X"), "second"),
    "fraction": (clock("%S.%f"), "fraction"),
    "spelled": (template(front="{{ strftime_now('%B %d') | upper }}\n"), "day"),
    "in a macro": (
        template(front="{% macro now() %}[{{ strftime_now('%H:%M') }}]{% endmacro %}{{ now() }}\n"),
        "minute",
    ),
    "behind the system prompt": (template(system=SYSTEM + "{{ strftime_now('%Y-%m-%d') }}\n"), "day"),
    "as a branch": (template(front="{{ 'Night.' if strftime_now('%H') | int < 7 else 'Day.' }}\n"), "hour"),
    "with tools": (template(front="{% if tools %}{{ strftime_now('%H:%M') }}\n{% endif %}"), "minute"),
    "default of an argument": (template(front=DATED + "{{ date_string }}\n"), "day"),
}


@pytest.mark.parametrize("name", CLOCKS)
def test_names_the_unit(name: str) -> None:
    source, unit = CLOCKS[name]
    (finding,) = found(alone(asked(tools=TOOLS)), source)
    assert finding.severity == ("info" if unit in ("day", "week", "month", "year") else "warning")
    assert finding.evidence["granularity"] == unit
    assert (finding.path, finding.blame) == (None, "template")


def test_shows_what_was_printed_and_where() -> None:
    source = "{# a comment #}\n" + template(front="\n{{ 'Today is ' + strftime_now('%d %b %Y') }}\n")
    line = {"timestamp": "2026-03-31T23:41:00", "request": asked()}
    (finding,) = found([line], source)
    assert "31 Mar 2026" in finding.message and "line 3" in finding.message
    assert finding.evidence["template_line"] == 3


def test_a_clock_that_only_a_default_system_message_has() -> None:
    default = "{% if messages[0].role != 'system' %}I am Tern. {{ strftime_now('%Y-%m-%d') }}\n{% endif %}"
    source = template(front=default)
    (finding,) = found(alone(asked(system="")), source)
    assert "Send a system message" in finding.fix
    assert found(alone(asked()), source) == []


def test_the_clock_of_a_later_request() -> None:
    source = template(front="{% if tools %}{{ strftime_now('%H:%M') }}\n{% endif %}")
    (finding,) = found([*alone(asked()), *alone(asked(tools=TOOLS))], source)
    assert finding.request == 1


def test_a_clock_in_every_message_breaks_the_next_turn() -> None:
    source = template(messages=MESSAGES.replace("<|im_end|>", " [{{ strftime_now('%H:%M') }}]<|im_end|>"))
    (finding,) = found(alone({"messages": history(0)}), source)
    assert finding.severity == "warning"


PINS = {
    "date_string": DATED + "{{ date_string }}\n",
    "current_date": "{{ current_date or strftime_now('%d %B') }}\n",
    "todays_date": "{{ todays_date if todays_date is defined else strftime_now('%x') }}\n",
}


@pytest.mark.parametrize("name", PINS)
def test_names_the_argument_that_pins_it(name: str) -> None:
    (finding,) = found(alone(asked()), template(front=PINS[name]))
    assert f"chat_template_kwargs.{name}" in finding.fix
    assert finding.evidence["pinned_by"] == name


def test_an_argument_that_does_not_replace_the_clock_is_no_pin() -> None:
    source = template(front="{{ date_format }}{{ strftime_now('%d %B') }}\n")
    (finding,) = found(alone(asked()), source)
    assert finding.evidence["pinned_by"] is None and "copy of the template" in finding.fix


@pytest.mark.parametrize(
    "test",
    [
        "{% if strftime_now is defined %}",
        "{% if not strftime_now is not defined %}",
        "{%if strftime_now  is\ndefined%}",
    ],
)
def test_says_that_it_assumed_a_clock(test: str) -> None:
    source = template(front=f"{test}{{{{ strftime_now('%d %b %Y') }}}}{{% else %}}26 Jul 2024{{% endif %}}\n")
    (finding,) = found(alone(asked()), source)
    assert "assumed: the engine has strftime_now" in finding.message
    (plain,) = found(alone(asked()), clock("%d %b %Y"))
    assert "assumed" not in plain.message


MIDNIGHT = ("2026-03-31T23:30:00", "2026-03-31T23:50:00", "2026-04-01T00:10:00", "2026-04-01T00:20:00")


def over_midnight(**fields: Any) -> list[Line]:
    return [
        {"session_id": "s", "timestamp": time, "request": asked(turn, **fields)} for turn, time in enumerate(MIDNIGHT)
    ]


def test_a_date_that_changes_has_its_cost() -> None:
    lines = over_midnight()
    (finding,) = found(lines, clock("%d %b %Y"))
    assert (finding.request, finding.requests_affected, finding.severity) == (2, 1, "info")
    renders = renderer(clock("%d %b %Y"))
    before, after = (renders.render(lines[turn]["request"], datetime(2026, 4, 1), api="chat") for turn in (1, 2))
    unbroken = common_prefix(before.token_ids, after.token_ids) // 16 * 16
    assert unbroken > 200 and finding.evidence["hit"] < 16
    assert finding.tokens_lost == unbroken - finding.evidence["hit"]


def test_a_time_that_changes_in_every_request() -> None:
    (finding,) = found(over_midnight(), clock("%H:%M"))
    assert (finding.severity, finding.requests_affected) == ("warning", 3)


QUIET: dict[str, tuple[list[Line], str, dict[str, Any]]] = {
    "no clock": (alone(asked()), PLAIN, {}),
    "constant date": (over_midnight(), template(front="Today: 26 Jul 2024\n"), {}),
    "the name in a comment": (alone(asked()), template(front="{# strftime_now('%Y') #}"), {}),
    "the name as text": (alone(asked()), template(front="{{ 'strftime_now' }}"), {}),
    "a branch not taken": (
        alone(asked()),
        template(front="{% if dated %}{{ strftime_now('%d %b %Y') }}{% endif %}"),
        {},
    ),
    "only its length": (alone(asked()), template(front="{{ strftime_now('%Y') | length }}"), {}),
    "pinned by the request": (
        over_midnight(chat_template_kwargs={"date_string": "1 Jan 2026"}),
        template(front=DATED + "{{ date_string }}\n"),
        {},
    ),
    "pinned by the server": (
        over_midnight(),
        template(front=DATED + "{{ date_string }}\n"),
        {"vllm_args": """--default-chat-template-kwargs '{"date_string": "1 Jan 2026"}'"""},
    ),
    "a date from the client": (alone(asked(system=prompt("Today is 2026-03-31."))), PLAIN, {}),
    "behind everything": (alone(asked()), template(end="[{{ strftime_now('%H:%M') }}]\n" + OPENING), {}),
    "a clock that is not printed": (alone(asked()), template(front="{% set now = strftime_now('%X') %}"), {}),
    "an own system message": (
        alone(asked()),
        template(front="{% if messages[0].role != 'system' %}{{ strftime_now('%X') }}{% endif %}"),
        {},
    ),
}


@pytest.mark.parametrize("name", QUIET)
def test_leaves_alone(name: str) -> None:
    lines, source, settings = QUIET[name]
    assert found(lines, source, **settings) == []
    if name != "a date from the client":
        assert loud(lint(lines, chat_template=source, **settings)) == []


def test_of_the_builtin_layout_nothing_is_said() -> None:
    assert [finding for finding in lint(over_midnight()) if finding.code.startswith("PKV5")] == []
