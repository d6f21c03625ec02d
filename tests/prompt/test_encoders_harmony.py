"""Prompts of gpt-oss."""

from __future__ import annotations

import base64
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.encoders.harmony import HarmonyEncoder
from pkv_lint.prompt.encoders.harmony_vocabulary import tiktoken_vocabulary
from pkv_lint.prompt.errors import InputError, RenderError

NOW = datetime(2026, 3, 9, 14, 5)
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{ "a":1.50 }'}}
RESULT = {
    "role": "tool",
    "tool_call_id": "c1",
    "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "8"}],
}
TOOLS = [{"type": "function", "function": {"name": "f", "description": "Does f.", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def vocabulary(shared: Path) -> Path:
    pytest.importorskip("openai_harmony")
    return shared / "data/tokenizers/gptoss"


@pytest.fixture(scope="module")
def encoder(vocabulary: Path) -> HarmonyEncoder:
    return HarmonyEncoder(vocabulary, Deployment())


def user(content: Any = "Hi") -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any = "", **members: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **members}


def text(encoder: HarmonyEncoder, *messages: dict[str, Any], **members: Any) -> str:
    return encoder.encode({"messages": list(messages), **members}, NOW).text


def spoken(encoder: HarmonyEncoder, *messages: dict[str, Any], **members: Any) -> str:
    """The prompt behind the system message."""
    return text(encoder, *messages, **members).split("<|end|>", 1)[1]


def test_a_system_message_with_the_date_and_the_effort(encoder: HarmonyEncoder) -> None:
    prompt = text(encoder, user())
    assert "Current date: 2026-03-09\n\nReasoning: medium\n" in prompt
    assert "Reasoning: high\n" in text(encoder, user(), reasoning_effort="high")


def test_the_date_can_be_pinned(vocabulary: Path) -> None:
    pinned = HarmonyEncoder(vocabulary, Deployment(system_start_date="2025-01-01"))
    assert "Current date: 2025-01-01\n" in text(pinned, user())


@pytest.mark.parametrize("role", ["system", "developer"])
def test_the_first_instructions_and_the_tools_are_one_developer_message(encoder: HarmonyEncoder, role: str) -> None:
    prompt = spoken(encoder, {"role": role, "content": "Be brief."}, user(), tools=TOOLS)
    assert prompt.startswith("<|start|>developer<|message|># Instructions\n\nBe brief.\n\n# Tools\n\n## functions\n")
    assert "// Does f.\ntype f = (_: {\n}) => any;" in prompt
    assert "Calls to these tools must go to the commentary channel" in text(encoder, user(), tools=TOOLS)


def test_later_instructions_are_developer_messages(encoder: HarmonyEncoder) -> None:
    later = "<|start|>developer<|message|># Instructions\n\nBe brief.<|end|>"
    for role in ("system", "developer"):
        assert spoken(encoder, user(), {"role": role, "content": "Be brief."}).endswith(f"{later}<|start|>assistant")


def test_instructions_in_the_system_message(vocabulary: Path) -> None:
    encoder = HarmonyEncoder(vocabulary, Deployment(harmony_system_instructions=True))
    system = {"role": "system", "content": "Be brief."}
    prompt = text(encoder, system, user(), system)
    assert prompt.count("trained by OpenAI.\nBe brief.\n") == 2
    assert "developer" not in prompt
    assert "<|start|>developer<|message|><|end|>" in text(encoder, user(), {"role": "developer", "content": "lost"})


def test_arguments_stay_as_they_were_sent(encoder: HarmonyEncoder) -> None:
    prompt = spoken(encoder, user(), assistant(tool_calls=[CALL]), RESULT)
    assert '<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{ "a":1.50 }<|call|>' in prompt


def test_results_name_the_function_and_join_their_parts_with_nothing_between(encoder: HarmonyEncoder) -> None:
    prompt = spoken(encoder, user(), assistant(tool_calls=[CALL]), RESULT)
    assert "<|start|>functions.f<|channel|>commentary to=assistant<|message|>18<|end|>" in prompt
    assert "<|start|>functions.<|channel|>commentary to=assistant" in spoken(encoder, user(), RESULT)


def test_text_before_a_call_is_commentary_and_text_alone_is_final(encoder: HarmonyEncoder) -> None:
    assert "<|start|>assistant<|channel|>commentary<|message|>Look.<|end|><|start|>assistant to=" in spoken(
        encoder, user(), assistant("Look.", tool_calls=[CALL]), RESULT
    )
    assert "<|start|>assistant<|channel|>final<|message|>Done.<|end|>" in spoken(encoder, user(), assistant("Done."))


def test_reasoning_is_dropped_before_the_last_answer(encoder: HarmonyEncoder) -> None:
    calling = assistant(reasoning="why", tool_calls=[CALL])
    assert "<|channel|>analysis<|message|>why<|end|>" in spoken(encoder, user(), calling, RESULT)
    assert "why" not in spoken(encoder, user(), calling, RESULT, assistant("Done."))
    assert "why" not in spoken(encoder, user(), assistant("Done.", reasoning="why"), user())


def test_what_is_ignored(encoder: HarmonyEncoder) -> None:
    ignored = {
        "chat_template": "x",
        "chat_template_kwargs": {"reasoning_effort": "high"},
        "documents": [{"text": "x"}],
        "add_generation_prompt": False,
        "continue_final_message": True,
        "truncate_prompt_tokens": 3,
    }
    assert text(encoder, {**user(), "name": "ann"}, **ignored) == text(encoder, user())


def test_what_is_accepted(encoder: HarmonyEncoder) -> None:
    assert spoken(encoder) == "<|start|>assistant"
    assert spoken(encoder, user([{"type": "image_url", "image_url": {"url": "x"}}])) == (
        "<|start|>user<|message|><|end|><|start|>assistant"
    )
    refusal = assistant([{"type": "refusal", "refusal": "no"}])
    assert spoken(encoder, user(), refusal) == spoken(encoder, user())
    custom = {"id": "c1", "type": "custom", "custom": {"name": "x", "input": "y"}}
    assert "assistant to=functions.<|channel|>commentary json<|message|><|call|>" in spoken(
        encoder, user(), assistant(tool_calls=[custom])
    )


def test_excluded_tools(vocabulary: Path) -> None:
    encoder = HarmonyEncoder(vocabulary, Deployment(exclude_tools_when_tool_choice_none=True))
    assert "functions" not in text(encoder, user(), tools=TOOLS, tool_choice="none")
    assert "functions" in text(encoder, user(), tools=TOOLS)


def test_text_that_spells_special_tokens_stays_text(encoder: HarmonyEncoder) -> None:
    encoded = encoder.encode({"messages": [user("<|end|>")]}, NOW)
    plain = encoder.encode({"messages": [user("")]}, NOW)
    assert len(encoded.token_ids) > len(plain.token_ids) + 1


@pytest.mark.parametrize(
    ("messages", "members", "message", "status"),
    [
        ([user()], {"reasoning_effort": "none"}, "Harmony does not support", 400),
        ([user()], {"reasoning_effort": "minimal"}, "is not supported by Harmony", 400),
        ([{"role": "critic", "content": "x"}], {}, "Input should be 'user', 'assistant'", 400),
        ([user([{"type": "text", "text": None}])], {}, "valid string", 400),
        ([user(["x"])], {}, "must be an object", 500),
    ],
)
def test_refused(
    encoder: HarmonyEncoder, messages: list[Any], members: dict[str, Any], message: str, status: int
) -> None:
    with pytest.raises(RenderError, match=message) as caught:
        text(encoder, *messages, **members)
    assert caught.value.status == status


def test_effort_map_comes_first(vocabulary: Path) -> None:
    mapped = HarmonyEncoder(vocabulary, Deployment(reasoning_effort_map={"max": "high"}))
    assert "Reasoning: high" in text(mapped, user(), reasoning_effort="max")


def test_the_library_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "openai_harmony", None)
    with pytest.raises(InputError, match=r"install pkv-lint\[encoders\]"):
        HarmonyEncoder(tmp_path, Deployment())


def test_the_vocabulary_is_rebuilt_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = tmp_path / "tokenizer.json"
    source.write_text(json.dumps({"model": {"vocab": {"Ġa": 1, "!": 0, "special": 199_998}}}), encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    directory = tiktoken_vocabulary(source)
    (built,) = directory.iterdir()
    assert built.read_bytes() == b"".join(
        base64.b64encode(piece) + f" {rank}\n".encode() for rank, piece in enumerate((b"!", b" a"))
    )
    written = built.stat().st_mtime_ns
    assert tiktoken_vocabulary(source) == directory
    assert built.stat().st_mtime_ns == written


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = tmp_path / "tokenizer.json"
    source.write_text('{"model": {"vocab": {"!": 0}}}', encoding="utf-8")
    (tmp_path / "cache").write_text("a file, not a directory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert [file.name for file in tiktoken_vocabulary(source).iterdir()] == ["o200k_base.tiktoken"]


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"model": {"vocab": {"\\u4e00": 0}}}', '{"model": {"vocab": {"a": "b"}}}']
)
def test_no_such_vocabulary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "tokenizer.json"
    with pytest.raises(InputError, match="cannot be read"):
        tiktoken_vocabulary(source)
    source.write_text(content)
    with pytest.raises(InputError, match="byte-level vocabulary"):
        tiktoken_vocabulary(source)


def responses(encoder: HarmonyEncoder, *items: Any, **members: Any) -> str:
    """The prompt of a Responses body behind the system message."""
    return encoder.encode_responses({"input": list(items), **members}, NOW).text.split("<|end|>", 1)[1]


FUNCTION_CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{ "a":1 }'}
FUNCTION_OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "18"}


def test_responses_have_one_message_for_each_item(encoder: HarmonyEncoder) -> None:
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": t} for t in "ab"]}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Look."}]}
    assert responses(encoder, user(), said, thought, FUNCTION_CALL, FUNCTION_OUTPUT) == (
        "<|start|>user<|message|>Hi<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Look.<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>a\nb<|end|>"
        '<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{ "a":1 }<|call|>'
        "<|start|>functions.f<|channel|>commentary to=assistant<|message|>18<|end|>"
        "<|start|>assistant"
    )


def test_responses_instructions_are_the_field_or_the_first_item(encoder: HarmonyEncoder) -> None:
    developer = "<|start|>developer<|message|># Instructions\n\nBe brief.<|end|>"
    system = {"role": "system", "content": "Be brief."}
    for prompt in (responses(encoder, user(), instructions="Be brief."), responses(encoder, system, user())):
        assert prompt == f"{developer}<|start|>user<|message|>Hi<|end|><|start|>assistant"
    both = responses(encoder, system, user(), instructions="Be brief.")
    assert both.startswith(developer * 2)


def test_responses_tools(encoder: HarmonyEncoder) -> None:
    function = {"type": "function", "name": "f", "description": "Does f."}
    own = {"type": "web_search_preview"}
    assert "// Does f.\ntype f = () => any;" in responses(encoder, user(), tools=[own, function])
    assert "# Tools" not in responses(encoder, user(), tools=[own])


def test_responses_effort(encoder: HarmonyEncoder) -> None:
    body = {"input": "Hi", "reasoning": {"effort": "low"}}
    assert "Reasoning: low\n" in encoder.encode_responses(body, NOW).text


@pytest.mark.parametrize(
    ("items", "members", "path", "status"),
    [
        ([FUNCTION_OUTPUT], {}, "input[0].call_id", 400),
        ([{"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": ""}], {}, "input[0].type", 400),
        ([{"id": "x", "role": "assistant"}], {}, "input[0]", 500),
        ([{"id": "x", "role": "assistant", "content": None}], {}, "input[0].content", 400),
        ([user()], {"tools": [{"type": "custom", "name": "c"}]}, "tools[0].type", 400),
        ([user()], {"reasoning": {"effort": "max"}}, "reasoning.effort", 400),
        ([user()], {"previous_input_messages": [user()]}, "previous_input_messages", 400),
        ([user(5)], {}, "input[0].content", 400),
    ],
)
def test_responses_refused(
    encoder: HarmonyEncoder, items: list[Any], members: dict[str, Any], path: str, status: int
) -> None:
    with pytest.raises(RenderError) as caught:
        responses(encoder, *items, **members)
    assert (caught.value.path, caught.value.status) == (path, status)
