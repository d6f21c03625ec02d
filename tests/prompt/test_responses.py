"""Responses bodies become chat bodies with the prompt that vLLM makes of them."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.responses import looks_like, to_chat
from pkv_lint.prompt.template import ChatTemplates
from pkv_lint.prompt.tokenizer import Tokenizer
from pkv_lint.prompt.traced import origins, trace_value

SERVER = "--served-model-name m --max-model-len 131072 --enable-auto-tool-choice --tool-call-parser hermes"
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "18 C"}
CHAT_CALL = {"id": "c1", "function": {"name": "f", "arguments": '{"a":1}'}, "type": "function"}


def body(*items: Any, **members: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(items), **members}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def said(text: str, **members: Any) -> dict[str, Any]:
    """A message as the API gave it out."""
    part = {"type": "output_text", "text": text}
    return {"type": "message", "role": "assistant", "content": [part], **members}


def reasoning(text: str, **members: Any) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}], **members}


def function(name: str = "f", **members: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object"}, **members}


def messages(*items: Any, **members: Any) -> list[dict[str, Any]]:
    return to_chat(body(*items, **members))["messages"]  # type: ignore[no-any-return]


def functions(*tools: Any) -> list[dict[str, Any]]:
    return [tool["function"] for tool in to_chat(body(user("go"), tools=list(tools)))["tools"]]


def test_golden(shared: Path) -> None:
    tokenizer = Tokenizer.load(shared / "data/tokenizers/qwen3")
    for file in sorted((shared / "data/chat_golden").glob("api.*.jsonl.gz")):
        name = file.name.removeprefix("api.").removesuffix(".jsonl.gz")
        source = (shared / f"data/templates/{name}.jinja").read_text(encoding="utf-8")
        renderer = Renderer(ChatTemplates(stated=source), tokenizer, Deployment.from_vllm_args(SERVER))
        for line in map(json.loads, gzip.decompress(file.read_bytes()).splitlines()):
            if line["path"].startswith("/v1/responses"):
                prompt = renderer.render(line["request"], api="responses")
                assert prompt.text == line["text"], line["case"]
                assert list(prompt.token_ids) == line["prompt_token_ids"], line["case"]


def test_a_string_is_one_user_message() -> None:
    request = {"model": "m", "input": "Hi"}
    chat = to_chat(request)
    assert chat == {"model": "m", "messages": [user("Hi")], "add_special_tokens": True}
    assert chat["messages"][0]["content"] is request["input"]


def test_instructions_are_a_system_message_in_front() -> None:
    assert messages(user("Hi"), instructions="Be brief.")[0] == {"role": "system", "content": "Be brief."}
    assert messages(user("Hi"), instructions="") == [user("Hi")]


def test_special_tokens_are_added() -> None:
    assert to_chat(body(user("Hi")))["add_special_tokens"] is True


def test_text_parts_take_their_chat_names() -> None:
    parts = [{"type": "input_text", "text": "a", "x": 1}, {"type": "input_image", "image_url": "u"}]
    expected = [{"type": "text", "text": "a", "x": 1}, {"type": "image_url", "image_url": {"url": "u"}}]
    assert messages(user(parts)) == [user(expected)]


def test_items_are_not_changed() -> None:
    request = body(user("Hi"), said("Hello"), CALL, reasoning("why"), instructions="x", tools=[function()])
    before = copy.deepcopy(request)
    to_chat(request)
    assert request == before


def test_an_assistant_message_is_its_first_text() -> None:
    two = {"type": "message", "role": "assistant", "content": [*said("a")["content"], *said("b")["content"]]}
    assert messages(two) == [{"role": "assistant", "content": "a"}]
    assert messages({"role": "assistant", "content": "a"}) == [{"role": "assistant", "content": "a"}]


def test_calls_join_the_assistant_message_before_them() -> None:
    assert messages(user("go"), said("Let me see."), CALL, CALL, OUTPUT) == [
        user("go"),
        {"role": "assistant", "content": "Let me see.", "tool_calls": [CHAT_CALL, CHAT_CALL]},
        {"role": "tool", "content": "18 C", "tool_call_id": "c1"},
    ]
    assert messages(CALL) == [{"role": "assistant", "tool_calls": [CHAT_CALL]}]


def test_reasoning_joins_the_turn_whose_place_for_it_is_free() -> None:
    assert messages(reasoning("sum"), said("4")) == [{"role": "assistant", "reasoning": "sum", "content": "4"}]
    assert messages(said("4"), reasoning("sum")) == [{"role": "assistant", "content": "4", "reasoning": "sum"}]
    assert messages(reasoning("a"), reasoning("b"), CALL) == [
        {"role": "assistant", "reasoning": "a"},
        {"role": "assistant", "reasoning": "b", "tool_calls": [CHAT_CALL]},
    ]


def test_reasoning_falls_back_to_its_summary() -> None:
    summary = [{"type": "summary_text", "text": "short"}, {"type": "summary_text", "text": "unused"}]
    assert messages({"type": "reasoning", "summary": summary}) == [{"role": "assistant", "reasoning": "short"}]
    assert messages({"type": "reasoning", "summary": []}) == [{"role": "assistant", "reasoning": ""}]


def test_two_texts_in_a_row_stay_two_messages() -> None:
    assert messages(said("a"), said("b")) == [
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "b"},
    ]


def test_custom_tools_are_functions_of_one_string() -> None:
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "sh", "input": "ls ü"}
    output = {"type": "custom_tool_call_output", "call_id": "c1", "output": "x"}
    (calling, result) = messages(call, output)
    assert calling["tool_calls"][0]["function"] == {"name": "sh", "arguments": '{"input": "ls ü"}'}
    assert result == {"role": "tool", "content": "x", "tool_call_id": "c1"}
    (shown,) = functions({"type": "custom", "name": "sh", "description": "shell"})
    assert shown["description"] == "shell"
    assert list(shown["parameters"]["properties"]) == ["input"]


def test_only_functions_are_shown_and_namespaces_are_flattened() -> None:
    namespace = {
        "type": "namespace",
        "name": "db",
        "description": "d",
        "tools": [function("get"), {"type": "custom", "name": "no"}],
    }
    shown = functions(function("f", strict=False, x=1), {"type": "web_search"}, namespace)
    assert [tool["name"] for tool in shown] == ["f", "db__get"]
    assert shown[0]["strict"] is False
    assert "x" not in shown[0]
    assert messages({**CALL, "namespace": "db"})[0]["tool_calls"][0]["function"]["name"] == "db__f"


def test_tools_that_are_all_hidden_leave_an_empty_list() -> None:
    chat = to_chat(body(user("go"), tools=[{"type": "web_search"}]))
    assert chat["chat_template_kwargs"] == {"tools": []}
    assert "tools" not in chat
    assert "chat_template_kwargs" not in to_chat(body(user("go"), tools=[]))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("auto", None), ("required", None), ("none", "none"), ({"type": "function", "name": "f"}, None)],
)
def test_no_tool_choice_needs_a_parser(choice: Any, expected: Any) -> None:
    assert to_chat(body(user("go"), tools=[function()], tool_choice=choice))["tool_choice"] == expected


@pytest.mark.parametrize("status", ["in_progress", "incomplete"])
@pytest.mark.parametrize("item", [said("Hel"), reasoning("hmm"), {**user("Hi"), "type": "message"}, user("Hi")])
def test_an_unfinished_last_message_is_continued(item: dict[str, Any], status: str) -> None:
    chat = to_chat(body(user("Hi"), {**item, "status": status}))
    assert (chat["continue_final_message"], chat["add_generation_prompt"]) == (True, False)


@pytest.mark.parametrize("item", [said("Hel"), said("Hel", status="completed"), {**CALL, "status": "incomplete"}])
def test_other_last_items_are_not_continued(item: dict[str, Any]) -> None:
    assert "continue_final_message" not in to_chat(body(user("Hi"), item))


def test_effort_length_and_truncation() -> None:
    chat = to_chat(body(user("Hi"), reasoning={"effort": "low"}, max_output_tokens=7, truncation="auto"))
    assert chat["reasoning_effort"] == "low"
    assert chat["max_completion_tokens"] == 7
    assert chat["truncate_prompt_tokens"] == -1
    assert "truncate_prompt_tokens" not in to_chat(body(user("Hi"), truncation="disabled"))
    assert to_chat(body(user("Hi"), truncation=None))["truncate_prompt_tokens"] == -1


def test_fields_of_chat_requests_are_unknown_here() -> None:
    chat = to_chat(body(user("Hi"), chat_template="x", documents=[], add_generation_prompt=False))
    assert not {"chat_template", "documents", "add_generation_prompt"} & chat.keys()


def test_an_item_with_an_id_and_no_type_is_not_looked_at() -> None:
    assert messages({"id": "x", "role": "critic", "content": "z"}) == [{"id": "x", "role": "critic", "content": "z"}]


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        ({"model": "m"}, "input"),
        (body("Hi"), "input[0]"),
        (body({"role": "tool", "content": "x"}), "input[0].role"),
        (body(user(None)), "input[0].content"),
        (body(user([{"type": "text", "text": "x"}])), "input[0].content[0].type"),
        (body(user([{"type": "input_text"}])), "input[0].content[0].text"),
        (body(user([{"type": "input_file", "file_id": "x"}])), "input[0].content[0]"),
        (body({**user("x"), "type": None}), "input[0].type"),
        (body({"role": "assistant", "content": said("x")["content"]}), "input[0].content[0].type"),
        (body({**said("x"), "content": "x", "id": "m1", "status": "completed"}), "input[0].content"),
        (body({**CALL, "arguments": {}}), "input[0].arguments"),
        (body({"type": "function_call", "name": "f", "arguments": ""}), "input[0].call_id"),
        (body({**OUTPUT, "output": None}), "input[0].output"),
        (body({"type": "reasoning"}), "input[0].summary"),
        (body(reasoning("x", encrypted_content="zz")), "input[0].encrypted_content"),
        (body({"type": "item_reference", "id": "x"}), "input[0].type"),
        (body({"id": "x"}), "input[0]"),
        (body(user("x"), prompt={"id": "x"}), "prompt"),
        (body(user("x"), previous_response_id="resp_1"), "previous_response_id"),
        (body(user("x"), background=True, store=False), "background"),
        (body(user("x"), reasoning={"effort": "ultra"}), "reasoning.effort"),
        (body(user("x"), truncation="middle"), "truncation"),
        (body(user("x"), tools=None), "tools"),
        (body(user("x"), tools=[{"type": "function", "function": {"name": "f"}}]), "tools[0].name"),
        (body(user("x"), tools=[{"type": "bogus"}]), "tools[0].type"),
        (body(user("x"), tools=[{"type": "custom", "name": "c", "format": {"type": "grammar"}}]), "tools[0].format"),
        (body(user("x"), tool_choice="required"), "tool_choice"),
        (body(user("x"), tool_choice="any"), "tool_choice"),
        (body(user("x"), tools=[function()], tool_choice={"type": "function", "name": "g"}), "tool_choice"),
        (body(user("x"), tool_choice={"type": "mcp"}), "tool_choice.server_label"),
    ],
)
def test_refused(request_: dict[str, Any], path: str) -> None:
    with pytest.raises(RenderError) as caught:
        to_chat(request_)
    assert caught.value.path == path
    assert caught.value.status == 400


def test_a_name_in_two_namespaces_is_ambiguous() -> None:
    spaces = [{"type": "namespace", "name": n, "description": "d", "tools": [function("get")]} for n in ("a", "b")]
    with pytest.raises(RenderError, match="ambiguous"):
        to_chat(body(user("x"), tools=spaces, tool_choice={"type": "function", "name": "get"}))
    to_chat(body(user("x"), tools=spaces[:1], tool_choice={"type": "function", "name": "get"}))
    to_chat(body(user("x"), tools=spaces, tool_choice={"type": "function", "name": "b__get"}))


def test_a_refusal_in_place_of_the_text_breaks_the_server() -> None:
    refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    with pytest.raises(RenderError) as caught:
        to_chat(body(refusal))
    assert caught.value.status == 500


def test_the_shape_tells_the_api() -> None:
    assert looks_like({"input": "Hi"})
    assert not looks_like({"messages": []})
    assert not looks_like({"messages": [], "input": "Hi"})


def test_what_is_written_anew_keeps_its_origins() -> None:
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "sh", "input": "ls"}
    (message,) = to_chat(trace_value(body(call), ""))["messages"]
    written = origins(message["tool_calls"][0]["function"]["arguments"])
    assert "input[0].input" in {origin.source.where for origin in written}
