"""Messages bodies become the chat bodies that vLLM makes of them."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.prompt.anthropic import has_inline_system, looks_like, refuses_inline_system, to_chat
from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.template import ChatTemplates
from pkv_lint.prompt.tokenizer import Tokenizer
from pkv_lint.prompt.traced import origins, trace_value

SERVER = "--served-model-name m --max-model-len 131072 --enable-auto-tool-choice --tool-call-parser hermes"
REFERENCE = {"type": "tool_reference", "name": "f"}


def body(*messages: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 2048, "messages": list(messages), **members}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def text(value: Any, **members: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **members}


def tool(name: str = "f", **members: Any) -> dict[str, Any]:
    return {"name": name, "input_schema": {"type": "object"}, **members}


def messages(request: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    return to_chat(request, **options)["messages"]  # type: ignore[no-any-return]


def test_golden(shared: Path) -> None:
    tokenizer = Tokenizer.load(shared / "data/tokenizers/qwen3")
    for file in sorted((shared / "data/chat_golden").glob("api.*.jsonl.gz")):
        name = file.name.removeprefix("api.").removesuffix(".jsonl.gz")
        source = (shared / f"data/templates/{name}.jinja").read_text(encoding="utf-8")
        renderer = Renderer(ChatTemplates(stated=source), tokenizer, Deployment.from_vllm_args(SERVER))
        for line in map(json.loads, gzip.decompress(file.read_bytes()).splitlines()):
            if line["path"].startswith("/v1/messages"):
                prompt = renderer.render(line["request"], api="messages")
                assert prompt.text == line["text"], line["case"]
                assert list(prompt.token_ids) == line["prompt_token_ids"], line["case"]


def test_plain_conversation_passes_as_it_is() -> None:
    request = body(user("Hi"), assistant("Hello"), user("Bye"))
    before = copy.deepcopy(request)
    chat = to_chat(request)
    assert chat == {**before, "max_completion_tokens": 2048}
    assert request == before
    assert chat["messages"][0]["content"] is request["messages"][0]["content"]


def test_system_string_is_not_touched() -> None:
    header = "x-anthropic-billing-header: cch=1\nBe brief."
    assert messages(body(user("Hi"), system=header))[0] == {"role": "system", "content": header}
    assert messages(body(user("Hi"), system="")) == [user("Hi")]


def test_system_blocks_are_joined_with_nothing_between_and_billing_headers_are_dropped() -> None:
    blocks = [text("x-anthropic-billing-header: cch=1"), text("A.", cache_control={"type": "ephemeral"}), text("B.")]
    assert messages(body(user("Hi"), system=blocks))[0] == {"role": "system", "content": "A.B."}
    assert messages(body(user("Hi"), system=blocks[:1])) == [user("Hi")]


def test_one_text_block_is_a_string_several_are_parts() -> None:
    assert messages(body(user([text("a", cache_control={})]))) == [user("a")]
    assert messages(body(user([text("a"), text("b")]))) == [user([text("a"), text("b")])]
    assert messages(body(user([text(""), text("b")]))) == [user("b")]
    assert messages(body(user([text("")]))) == []
    assert messages(body(assistant([]))) == [{"role": "assistant"}]


def test_thinking_is_joined_and_redacted_thinking_dropped() -> None:
    blocks = [
        {"type": "thinking", "thinking": "a", "signature": "s"},
        {"type": "redacted_thinking", "data": "zzz"},
        {"type": "thinking", "thinking": "b", "signature": "s"},
        text("c"),
    ]
    assert messages(body(assistant(blocks))) == [{"role": "assistant", "reasoning": "ab", "content": "c"}]


def test_tool_use_becomes_a_call_with_dumped_arguments() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "f", "input": {"city": "Zürich", "n": 1.0}}
    (message,) = messages(body(assistant([text("Let me see."), use])))
    assert message["content"] == "Let me see."
    function = {"name": "f", "arguments": '{"city": "Z\\u00fcrich", "n": 1.0}'}
    assert message["tool_calls"] == [{"id": "t1", "type": "function", "function": function}]


def test_tool_use_without_input_or_id() -> None:
    (message,) = messages(body(assistant([{"type": "tool_use", "name": "f"}])))
    (call,) = message["tool_calls"]
    assert call["function"]["arguments"] == "{}"
    assert len(call["id"]) == len("call_1234567890")
    assert "content" not in message


def test_tool_results_come_before_the_rest_of_their_message() -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [text("18"), text("C")]}
    bare = {"type": "tool_result", "tool_use_id": "t2", "content": "19"}
    assert messages(body(user([text("and?"), result, bare]))) == [
        {"role": "tool", "tool_call_id": "t1", "content": "18\nC"},
        {"role": "tool", "tool_call_id": "t2", "content": "19"},
        user("and?"),
    ]
    assert messages(body(user([{"type": "tool_result"}]))) == [{"role": "tool", "tool_call_id": "", "content": ""}]


def test_images_of_a_tool_result_become_a_user_message() -> None:
    images = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
        {"type": "image", "source": {"type": "url", "url": "http://x"}},
        {"type": "image", "source": {"type": "url"}},
    ]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [text("seen"), *images]}
    urls = ["data:image/png;base64,AA", "http://x"]
    assert messages(body(user([result]))) == [
        {"role": "tool", "tool_call_id": "t1", "content": "seen"},
        user([{"type": "image_url", "image_url": {"url": url}} for url in urls]),
    ]


def test_tool_references_in_a_result_make_a_second_tool_message() -> None:
    references = [{"type": "tool_reference", "tool_name": "f"}, {"type": "tool_reference", "name": "g"}]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [text("found"), *references]}
    assert messages(body(user([result]))) == [
        {"role": "tool", "tool_call_id": "t1", "content": "found"},
        {
            "role": "tool",
            "tool_call_id": "t1",
            "content": [{"type": "tool_reference", "name": "f"}, {"type": "tool_reference", "name": "g"}],
        },
    ]


def test_tool_result_of_an_assistant_becomes_text() -> None:
    result = {"type": "tool_result", "content": [text("18")]}
    assert messages(body(assistant([result]))) == [assistant("Tool result: [{'type': 'text', 'text': '18'}]")]
    assert messages(body(assistant([{"type": "tool_result"}]))) == [assistant("Tool result: ")]


def test_images_of_a_user_are_parts() -> None:
    image = {"type": "image", "source": {"data": "AA"}}
    part = {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,AA"}}
    assert messages(body(user([image]))) == [user([part])]


def test_tools_become_chat_tools_whose_schema_has_a_type() -> None:
    schema: dict[str, Any] = {"properties": {}}
    chat = to_chat(body(user("go"), tools=[{"name": "f", "input_schema": schema, "cache_control": {}}]))
    (function,) = [tool["function"] for tool in chat["tools"]]
    assert function["name"] == "f"
    assert function["description"] is None
    assert list(function["parameters"].items()) == [("properties", {}), ("type", "object")]
    assert schema == {"properties": {}}
    assert "tool_choice" not in chat


def test_an_empty_list_of_tools_reaches_the_template() -> None:
    chat = to_chat(body(user("go"), tools=[], tool_choice={"type": "any"}, chat_template_kwargs={"a": 1}))
    assert chat["chat_template_kwargs"] == {"tools": [], "a": 1}
    assert "tools" not in chat and "tool_choice" not in chat


def test_blocks_add_and_remove_tools() -> None:
    def change(kind: str, **members: Any) -> dict[str, Any]:
        return {"type": kind, "tool": members}

    def names(*blocks: dict[str, Any]) -> list[str]:
        request = body(user("go"), {"role": "system", "content": list(blocks)}, tools=[tool("f"), tool("g")])
        return [tool["function"]["name"] for tool in to_chat(request).get("tools", [])]

    removal = change("tool_removal", type="tool_reference", name="f")
    addition = change("tool_addition", type="tool_reference", name="f")
    definition = change("tool_addition", type="tool_definition", definition=tool("h"))
    assert names(removal) == ["g"]
    assert names(removal, addition) == ["f", "g"]
    assert names(definition) == ["f", "g", "h"]
    with pytest.raises(RenderError, match="not declared"):
        names(change("tool_addition", type="tool_reference", name="unknown"))


def test_a_tool_added_by_reference_is_no_longer_deferred() -> None:
    change = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}
    request = body(user("go"), {"role": "system", "content": [change]}, tools=[tool("f", defer_loading=True)])
    assert to_chat(request)["tools"][0]["function"]["defer_loading"] is None


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "none"}, "none"),
        ({"type": "any", "disable_parallel_tool_use": True}, "required"),
        ({"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
        ({"type": "tool", "name": "unknown"}, "required"),
    ],
)
def test_tool_choice(choice: dict[str, Any], expected: Any) -> None:
    assert to_chat(body(user("go"), tools=[tool("f")], tool_choice=choice))["tool_choice"] == expected


def test_thinking_and_effort() -> None:
    def effort(**members: Any) -> Any:
        return to_chat(body(user("go"), **members)).get("reasoning_effort")

    assert effort() is None
    assert effort(thinking={"type": "disabled"}) == "none"
    assert effort(output_config={"effort": "low"}) == "low"
    assert effort(output_config={"effort": "low"}, thinking={"type": "disabled"}) == "none"
    assert effort(output_config={"effort": "max"}, thinking={"type": "adaptive"}) == "max"
    assert effort(thinking={"type": "enabled", "budget_tokens": 1024}) is None
    disabled = body(user("go"), thinking={"type": "disabled"})
    assert to_chat(disabled, disabled_thinking_effort="low")["reasoning_effort"] == "low"


def test_inline_system_messages_stay_or_are_merged() -> None:
    inline = {"role": "system", "content": [text("x-anthropic-billing-header: 1"), text("B."), text("C.")]}
    request = body(user("Hi"), inline, user("go"), system="A.")
    assert has_inline_system(request) and not has_inline_system(body(user("Hi")))
    assert messages(request) == [
        {"role": "system", "content": "A."},
        user("Hi"),
        {"role": "system", "content": "B.C."},
        user("go"),
    ]
    merged = messages(request, merge_inline_system=True)
    assert merged == [{"role": "system", "content": "A.B.C."}, user("Hi"), user("go")]


@pytest.mark.parametrize(
    ("template", "refuses"),
    [
        (None, True),
        ("{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}", False),
        ("{% for m in messages[1:] if m.role == 'system' %}{{ raise_exception('x') }}{% endfor %}", True),
        ("{{ bos_token + 'x' }}", True),
        ("{{ strftime_now('%d') }}", True),
        ("{% generation %}x{% endgeneration %}", True),
        ("{% if %}", True),
        ("{{ 'x' * 10**12 }}", True),
    ],
)  # fmt: skip
def test_which_templates_refuse_inline_system_messages(template: str | None, refuses: bool) -> None:
    assert refuses_inline_system(template) == refuses


def test_a_trailing_assistant_message_is_not_continued() -> None:
    chat = to_chat(body(user("Hi"), assistant("Hel")))
    assert "continue_final_message" not in chat and "add_generation_prompt" not in chat


def test_fields_of_chat_requests_are_unknown_here() -> None:
    chat = to_chat(body(user("Hi"), documents=[{}], add_generation_prompt=False, echo=True))
    assert not {"documents", "add_generation_prompt", "echo"} & chat.keys()


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        ({"max_tokens": 5, "messages": []}, "model"),
        ({"model": "", "max_tokens": 5, "messages": []}, "model"),
        ({"model": "m", "messages": []}, "max_tokens"),
        (body(max_tokens=0), "max_tokens"),
        (body(messages="Hi"), "messages"),
        (body({"role": "tool", "content": "x"}), "messages[0].role"),
        (body(user(None)), "messages[0].content"),
        (body(user(["Hi"])), "messages[0].content[0]"),
        (body(user([{"type": "document"}])), "messages[0].content[0].type"),
        (body(user([{"type": "text", "text": 5}])), "messages[0].content[0].text"),
        (body(user([{"type": "tool_result", "content": ["x"]}])), "messages[0].content[0].content[0]"),
        (body(user([{"type": "tool_result", "content": [text(5)]}])), "messages[0].content[0].content[0].text"),
        (body(user([{"type": "tool_addition", "tool": REFERENCE}])), "messages[0].content[0]"),
        (body({"role": "system", "content": [{"type": "tool_removal"}]}), "messages[0].content[0].tool"),
        (body(user("x"), system=5), "system"),
        (body(user("x"), tools=[{"name": "web_search", "type": "web_search_20250305"}]), "tools[0].input_schema"),
        (body(user("x"), tool_choice={"type": "tool"}), "tool_choice.name"),
        (body(user("x"), thinking={"type": "enabled", "budget_tokens": 1000}), "thinking.budget_tokens"),
        (body(user("x"), thinking={"type": "enabled", "budget_tokens": 4096}), "thinking.budget_tokens"),
        (body(user("x"), output_config={"effort": "none"}), "output_config.effort"),
    ],
)  # fmt: skip
def test_refused(request_: dict[str, Any], path: str) -> None:
    with pytest.raises(RenderError) as caught:
        to_chat(request_)
    assert caught.value.path == path
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (body(user("Hi")), False),
        (body(user("Hi"), system="x"), True),
        (body(user("Hi"), tools=[tool()]), True),
        (body(user("Hi"), stop_sequences=[]), True),
        (body(user("Hi"), thinking={"type": "enabled"}), False),
        (body(user("Hi"), thinking={"type": "enabled", "budget_tokens": 1024}), True),
        (body(assistant([{"type": "tool_use"}])), True),
        (body(assistant([{"type": "thinking", "thinking": "x"}])), False),
        (body(assistant([{"type": "thinking", "thinking": "x", "signature": "s"}])), True),
        (body(user([{"type": "image_url", "image_url": {"url": "x"}}])), False),
        (body(user([{"type": "image", "source": {}}])), True),
        (body(user("Hi"), tools=[{"type": "function", "function": {"name": "f"}}]), False),
        ({"model": "m", "input": "Hi", "system": "x"}, False),
    ],
)
def test_the_shape_tells_the_api(request_: dict[str, Any], expected: bool) -> None:
    assert looks_like(request_) == expected


def test_what_is_joined_and_dumped_keeps_its_origins() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "f", "input": {"city": "Paris"}}
    request = body(assistant([use]), user("go"), system=[text("A."), text("B.")])
    system, calling, _ = to_chat(trace_value(request, ""))["messages"]
    assert [origin.source.where for origin in origins(system["content"])] == ["system[0].text", "system[1].text"]
    dumped = origins(calling["tool_calls"][0]["function"]["arguments"])
    assert {origin.source.where for origin in dumped} == {
        "messages[0].content[0].input",
        "messages[0].content[0].input.city",
    }
