"""The tool definitions that a template sees."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Serve = Callable[..., Any]

DUMP = "{{ tools | tojson }}"


def printed(serve: Serve, *tools: dict[str, Any], **fields: Any) -> str:
    text: str = serve(DUMP).text(tools=list(tools), **fields)
    return text


@pytest.mark.parametrize(
    ("tool", "seen"),
    [
        (
            {
                "function": {"strict": True, "parameters": {}, "description": "d", "name": "f"},
                "defer_loading": False,
                "type": "function",
            },
            '{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}, "strict": true, '
            '"defer_loading": false}, "defer_loading": false}',
        ),
        (
            {"type": "function", "function": {"name": "f"}},
            '{"type": "function", "function": {"name": "f", "description": null, "parameters": null}}',
        ),
        (
            {"function": {"name": "f", "description": "", "parameters": None, "strict": None}},
            '{"type": "function", "function": {"name": "f", "description": "", "parameters": null}}',
        ),
        (
            {
                "type": "function",
                "function": {"name": "f", "strict": False, "defer_loading": None},
                "defer_loading": None,
            },
            '{"type": "function", "function": {"name": "f", "description": null, "parameters": null, "strict": false}}',
        ),
        (
            {"type": "function", "function": {"name": "f", "defer_loading": True}},
            '{"type": "function", "function": {"name": "f", "description": null, "parameters": null, '
            '"defer_loading": true}}',
        ),
        (
            {"type": "function", "function": {"name": "f", "defer_loading": True}, "defer_loading": False},
            '{"type": "function", "function": {"name": "f", "description": null, "parameters": null, '
            '"defer_loading": true}, "defer_loading": false}',
        ),
        (
            {
                "type": "function",
                "cache_control": {"type": "ephemeral"},
                "x-extra": 1,
                "strict": True,
                "function": {"name": "f", "return": {}, "response": {}, "x-extra": 1, "title": "t"},
            },
            '{"type": "function", "function": {"name": "f", "description": null, "parameters": null}}',
        ),
    ],
    ids=["order", "missing", "null", "strict", "inner defer", "outer defer", "unknown members"],
)
def test_a_definition(serve: Serve, tool: dict[str, Any], seen: str) -> None:
    assert printed(serve, tool) == f"[{seen}]"


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ('{"required": ["b"], "properties": {"b": {"x-y": 1, "type": "string"}, "a": {}}, "type": "object"}',) * 2,
        ('{"a": null, "b": [null], "c": {"d": null}}',) * 2,
        ('{"a": 1e3, "b": 0.50, "c": -0.0, "d": -0, "e": 1.0}', '{"a": 1000.0, "b": 0.5, "c": -0.0, "d": 0, "e": 1.0}'),
        ('{"a": 123456789012345678901234567890}',) * 2,
        ('{"a": NaN, "b": -Infinity, "c": 1e400}', '{"a": NaN, "b": -Infinity, "c": Infinity}'),
        ('{"a": 1, "b": 2, "a": 3}', '{"a": 3, "b": 2}'),
        ('{"a": "\\u00e9<\\n"}', '{"a": "é<\\n"}'),
        ("{}", "{}"),
        ("null", "null"),
    ],
)
def test_parameters_stay_as_sent(serve: Serve, sent: str, seen: str) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": json.loads(sent)}}
    text = printed(serve, tool)
    assert text.removesuffix("}}]").partition('"parameters": ')[2] == seen


TOOL = {"type": "function", "function": {"name": "f"}}
NAMED = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize("choice", ["none", "auto", "required", NAMED, None], ids=str)
def test_the_choice_of_a_tool_does_not_change_what_is_printed(serve: Serve, choice: Any) -> None:
    assert printed(serve, TOOL, tool_choice=choice) == printed(serve, TOOL)


def test_only_a_flag_of_the_server_hides_tools_that_must_not_be_chosen(serve: Serve) -> None:
    parser = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    server = serve("{{ tools is none }}", "--exclude-tools-when-tool-choice-none", *parser)
    assert server.text(tools=[TOOL], tool_choice="none") == "True"
    for choice in ("auto", "required", NAMED, None):
        assert server.text(tools=[TOOL], tool_choice=choice) == "False"


@pytest.mark.parametrize("fields", [{}, {"tools": None}], ids=str)
def test_without_tools_a_template_sees_none(serve: Serve, fields: dict[str, Any]) -> None:
    assert serve("{{ tools is none }}").text(**fields) == "True"


def test_tools_among_the_arguments_win_as_they_are(serve: Serve) -> None:
    kwargs = {"tools": [{"b": 1, "a": 2}]}
    assert serve(DUMP).text(tools=[TOOL], chat_template_kwargs=kwargs) == '[{"b": 1, "a": 2}]'
    assert serve(DUMP).text(chat_template_kwargs=kwargs) == '[{"b": 1, "a": 2}]'
    assert serve(DUMP).text(chat_template_kwargs={"tools": []}) == "[]"


@pytest.mark.parametrize("tools", [["x"], [1], "x", [[]]], ids=str)
def test_tools_among_the_arguments_are_objects(serve: Serve, tools: Any) -> None:
    message = serve(DUMP).refusal(chat_template_kwargs={"tools": tools}).message
    assert message.startswith("Tools should either be a JSON schema, or a callable function")


def test_default_tools_of_the_server_are_for_requests_without(serve: Serve) -> None:
    parser = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    server = serve(DUMP, "--default-chat-template-kwargs", '{"tools": [{"a": 1}]}', *parser)
    assert server.text() == '[{"a": 1}]'
    assert server.text(tools=[TOOL]) == printed(serve, TOOL)
