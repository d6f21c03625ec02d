"""Which endpoint a body is taken to."""

from __future__ import annotations

import io
import json

import pytest

from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.template import ChatTemplates
from pkv_lint.prompt.traffic import TrafficLine, read_requests

# Prints the function of a call as it stands.
DUMP = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}"


def test_the_chat_endpoint_refuses_a_prompt() -> None:
    with pytest.raises(RenderError) as caught:
        Renderer.load().render({"prompt": "x"})
    assert caught.value.path == "messages"


def test_traffic_takes_a_bare_prompt_to_completions() -> None:
    [line] = read_requests(io.BytesIO(json.dumps({"model": "m", "prompt": "x"}).encode()))
    assert isinstance(line, TrafficLine)
    assert line.api == "completions"


def test_calls_of_responses_keep_the_order_that_the_server_writes() -> None:
    call = {"type": "function_call", "name": "f", "arguments": '{"a": 1}', "call_id": "c"}
    result = {"type": "function_call_output", "call_id": "c", "output": "1"}
    builtin = Renderer.load()

    renderer = Renderer(ChatTemplates(DUMP), builtin.tokenizer)
    chat = {
        "messages": [
            {"role": "user", "content": "x"},
            {
                "role": "assistant",
                "tool_calls": [{"type": "function", "id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "1"},
        ]
    }
    responses = {"model": "m", "input": [{"role": "user", "content": "x"}, call, result]}
    assert renderer.render(chat).text == '{"arguments": {"a": 1}, "name": "f"}'
    assert renderer.render(responses).text == '{"name": "f", "arguments": {"a": 1}}'
