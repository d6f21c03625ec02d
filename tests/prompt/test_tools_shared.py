"""Tools that many requests send are one object; nothing of that shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.template import ChatTemplates
from pkv_lint.prompt.tools import known_tools

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"a": 1}}}


def test_equal_tools_are_the_same_objects() -> None:
    one, other = known_tools([TOOL]), known_tools([json.loads(json.dumps(TOOL))])
    assert one[0] is other[0]


@pytest.mark.parametrize(
    "parameters", [{"a": 1.0}, {"a": True}, {"b": 1, "a": 1}, {"a": 1, "b": 1}, {"a": -0.0}, {"a": 0.0}, {"a": None}]
)
def test_what_a_template_could_tell_apart_is_kept_apart(parameters: dict[str, Any]) -> None:
    (tool,) = known_tools([{**TOOL, "function": {**TOOL["function"], "parameters": parameters}}])
    assert repr(tool["function"]["parameters"]) == repr(parameters)
    assert tool._json_text() == json.dumps(tool)


def rendered(template: str) -> str:
    body = {"messages": [{"role": "user", "content": "x"}], "tools": [TOOL]}
    builtin = Renderer.load()
    return Renderer(ChatTemplates(template), builtin.tokenizer).render(body).text or ""


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ tools[0] }}", repr(known_tools([TOOL])[0])),
        ("{{ tools[0] is mapping }} {{ tools | tojson }}", f"True {json.dumps(known_tools([TOOL]))}"),
        ("{{ tools[0] | tojson(indent=1) }}", json.dumps(known_tools([TOOL])[0], indent=1)),
        ("{{ tools[0].nothing is defined }} {{ tools[0]['_json_text'] is defined }}", "False False"),
    ],
)
def test_a_template_sees_plain_objects(template: str, text: str) -> None:
    assert rendered(template) == text


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ 'a' + tools[0] }}", 'can only concatenate str (not "dict") to str'),
        ("{{ tools[0].nothing.more }}", "'dict object' has no attribute 'nothing'"),
    ],
)
def test_errors_name_a_dict(template: str, message: str) -> None:
    with pytest.raises(RenderError) as caught:
        rendered(template)
    assert caught.value.message == message
