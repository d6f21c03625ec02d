"""Prompts of Mistral models."""

from __future__ import annotations

import importlib.util
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.encoders.mistral import MistralEncoder
from pkv_lint.prompt.errors import InputError, RenderError

NOW = datetime(2026, 3, 9)
CALL = {"id": "chatcmpl-tool-0123456789", "type": "function", "function": {"name": "f", "arguments": '{"b": 1.50}'}}


@pytest.fixture(scope="module")
def vocabularies() -> Path:
    """The vocabularies that come with the library."""
    found = importlib.util.find_spec("mistral_common")
    if found is None or found.origin is None:
        pytest.skip("mistral-common is not installed")
    return Path(found.origin).parent / "data"


@pytest.fixture(scope="module")
def encoder(vocabularies: Path) -> MistralEncoder:
    return MistralEncoder(vocabularies / "tekken_240911.json", Deployment(), text_model="m")


def user(content: Any = "Hi") -> dict[str, Any]:
    return {"role": "user", "content": content}


def text(encoder: MistralEncoder, *messages: dict[str, Any], **members: Any) -> str:
    return encoder.encode({"messages": list(messages), **members}, NOW).text


def test_conversation(encoder: MistralEncoder) -> None:
    history = [user("a"), {"role": "assistant", "content": "b"}, user("c")]
    assert text(encoder, *history) == "<s>[INST]a[/INST]b</s>[INST]c[/INST]"


def test_ids_of_calls_are_cut_to_their_last_nine_characters(encoder: MistralEncoder) -> None:
    result = {"role": "tool", "tool_call_id": CALL["id"], "content": "18"}
    history = [user(), {"role": "assistant", "content": None, "tool_calls": [CALL]}, result]
    prompt = text(encoder, *history)
    assert '"id": "123456789"' in prompt
    assert '"call_id": "123456789"' in prompt
    assert "0123456789" not in prompt


def test_arguments_are_parsed_first(encoder: MistralEncoder) -> None:
    bad = {**CALL, "function": {"name": "f", "arguments": "{'a': 1}"}}
    result = {"role": "tool", "tool_call_id": CALL["id"], "content": "18"}
    assert '"arguments": {"b": 1.5}' in text(encoder, user(), {"role": "assistant", "tool_calls": [CALL]}, result)
    assert '"arguments": {}' in text(encoder, user(), {"role": "assistant", "tool_calls": [bad]}, result)


def test_tools_stand_in_front_of_the_last_user_message(encoder: MistralEncoder) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    prompt = text(encoder, user("a"), {"role": "assistant", "content": "b"}, user("c"), tools=tools)
    assert "</s>[AVAILABLE_TOOLS][" in prompt and prompt.endswith("[INST]c[/INST]")


def test_excluded_tools(encoder: MistralEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "_deployment", Deployment(exclude_tools_when_tool_choice_none=True))
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert "AVAILABLE_TOOLS" not in text(encoder, user(), tools=tools, tool_choice="none")


def test_documents_and_names_are_ignored(encoder: MistralEncoder) -> None:
    assert text(encoder, {**user(), "name": "ann"}, documents=[{"text": "x"}]) == text(encoder, user())


def test_the_last_assistant_message_is_continued(encoder: MistralEncoder) -> None:
    flags = {"continue_final_message": True, "add_generation_prompt": False}
    assert text(encoder, user(), {"role": "assistant", "content": "Hel"}, **flags).endswith("[/INST]Hel")


def test_parts_without_a_type_are_dropped(encoder: MistralEncoder) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": None, "input_audio": None, "text": "b"}]
    with pytest.raises(RenderError):
        text(encoder, user(parts))
    assert text(encoder, user(parts[:1])) == "<s>[INST]a[/INST]"


@pytest.mark.parametrize(
    ("messages", "members", "message"),
    [
        ([user()], {"chat_template": "x"}, "chat_template is not supported for Mistral tokenizers"),
        ([user()], {"chat_template_kwargs": {}}, "chat_template is not supported for Mistral tokenizers"),
        ([user()], {"reasoning_effort": "ultra"}, "reasoning_effort=ultra is not supported by Mistral"),
        ([], {}, "list index out of range"),
        ([user(), {"role": "assistant", "content": "x"}], {}, "Cannot set `add_generation_prompt` to True when"),
        ([user()], {"continue_final_message": True}, "Cannot set both"),
        ([user()], {"continue_final_message": True, "add_generation_prompt": False}, "the last message is not from"),
        (
            [user(), {"role": "tool", "tool_call_id": "1", "content": "x"}],
            {},
            "Unexpected role 'tool' after role 'user'",
        ),
        ([user(), {"role": "assistant", "content": "x", "tool_calls": [CALL]}, user()], {}, "but not both"),
        ([{"role": "critic", "content": "x"}], {}, "Unknown message role: critic"),
        ([user([{"type": "image_url", "image_url": {"url": "x"}}])], {}, "not a multimodal model"),
    ],
)
def test_refused(encoder: MistralEncoder, messages: list[Any], members: dict[str, Any], message: str) -> None:
    with pytest.raises(RenderError, match=message) as caught:
        text(encoder, *messages, **members)
    assert caught.value.status == 400


def test_effort_map_comes_first(encoder: MistralEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "_deployment", Deployment(reasoning_effort_map={"low": "ultra"}))
    assert text(encoder, user(), reasoning_effort="high") == "<s>[INST]Hi[/INST]"
    with pytest.raises(RenderError, match="reasoning_effort=ultra"):
        text(encoder, user(), reasoning_effort="low")


def test_media_is_refused_for_what_it_is(encoder: MistralEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "_text_model", None)
    with pytest.raises(RenderError, match="cannot be counted here") as caught:
        text(encoder, user([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}]))
    assert caught.value.path == "messages[0].content[1]"


def test_a_directory_is_searched_for_a_vocabulary(vocabularies: Path, tmp_path: Path) -> None:
    (tmp_path / "tekken.json").symlink_to(vocabularies / "tekken_240911.json")
    (tmp_path / "config.json").write_text("{}")
    encoder = MistralEncoder(tmp_path, Deployment(), text_model="m")
    assert list(encoder.encode_completion("Hi")) == [37133]


def test_no_vocabulary(vocabularies: Path, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.json"):
        with pytest.raises(InputError, match="not a tokenizer of mistral-common"):
            MistralEncoder(path, Deployment(), text_model="m")


def test_the_library_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "mistral_common.tokens.tokenizers.mistral", None)
    with pytest.raises(InputError, match=r"install pkv-lint\[encoders\]"):
        MistralEncoder(tmp_path, Deployment(), text_model="m")
