"""The built-in layout prints everything, in order, and a growing conversation keeps its prompt as a prefix."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkv_lint.prompt import builtin
from pkv_lint.prompt.renderer import Renderer

TOOL = {"type": "function", "function": {"name": "look_up", "description": "Look <it> up.", "parameters": {}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"b": 1, "a": "é"}'}}


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer.load()


def text(renderer: Renderer, messages: list[dict[str, Any]], **fields: Any) -> str:
    prompt = renderer.render({"messages": messages, **fields})
    assert prompt.text is not None
    assert prompt.approximate
    assert renderer.tokenizer.decode(prompt.token_ids) == prompt.text
    return prompt.text


def test_a_whole_conversation(renderer: Renderer) -> None:
    messages = [
        {"role": "system", "content": " Be brief. "},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": "Let me see.", "reasoning": "hm", "tool_calls": [CALL, CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "found\n"},
        {"role": "developer", "content": "Be kind."},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
    ]
    call = '<tool_call>\n{"name": "look_up", "arguments": {"b": 1, "a": "é"}}\n</tool_call>'
    assert text(renderer, messages, tools=[TOOL], documents=[{"title": "t", "text": "d"}]) == (
        "<|im_start|>system\n Be brief. \n\n"
        "# Tools\n\nCall a tool by writing, one block per call:\n"
        '<tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call>\n\n'
        "The tools, one per line:\n"
        '{"type": "function", "function": {"name": "look_up", "description": "Look <it> up.", "parameters": {}}}\n\n'
        '# Documents\n\n{"title": "t", "text": "d"}<|im_end|>\n'
        "<|im_start|>user\none\ntwo<|im_end|>\n"
        f"<|im_start|>assistant\n<think>\nhm\n</think>\n\nLet me see.\n{call}\n{call}<|im_end|>\n"
        "<|im_start|>tool\nfound\n<|im_end|>\n"
        "<|im_start|>developer\nBe kind.<|im_end|>\n"
        f"<|im_start|>assistant\n{call}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_no_system_block_without_need(renderer: Renderer) -> None:
    messages = [{"role": "user", "content": "hi"}]
    assert text(renderer, messages) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert text(renderer, messages, tools=[TOOL]).startswith("<|im_start|>system\n# Tools\n")
    assert text(renderer, messages, add_generation_prompt=False) == "<|im_start|>user\nhi<|im_end|>\n"


def test_the_last_message_can_be_continued(renderer: Renderer) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well, "}]
    continued = text(renderer, messages, add_generation_prompt=False, continue_final_message=True)
    assert continued.endswith("<|im_start|>assistant\nWell, ")


@pytest.mark.parametrize("content_format", ["string", "openai"])
def test_both_content_formats_give_one_text(renderer: Renderer, content_format: str) -> None:
    other = Renderer.load(vllm_args=f"--chat-template-content-format {content_format}")
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "plain"},
        {"role": "assistant", "tool_calls": [CALL]},
    ]
    assert text(other, messages) == text(renderer, messages)


contents = st.text(st.characters(exclude_categories=["Cs"]), max_size=30).filter(lambda made: "<" not in made)
messages = st.one_of(
    st.builds(lambda made: {"role": "user", "content": made}, contents),
    st.builds(lambda made: {"role": "system", "content": made}, contents),
    st.builds(lambda made: {"role": "tool", "content": made, "tool_call_id": "call_1"}, contents),
    st.builds(lambda made, thought: {"role": "assistant", "content": made, "reasoning": thought}, contents, contents),
    st.builds(lambda made: {"role": "assistant", "content": made, "tool_calls": [CALL]}, contents),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(messages, min_size=1, max_size=6), messages, st.sampled_from([None, [TOOL]]))
def test_a_growing_conversation_keeps_its_prompt(
    renderer: Renderer, history: list[dict[str, Any]], further: dict[str, Any], tools: list[dict[str, Any]] | None
) -> None:
    shorter = renderer.render({"messages": history, "tools": tools, "add_generation_prompt": False})
    longer = renderer.render({"messages": [*history, further], "tools": tools, "add_generation_prompt": False})
    assert longer.token_ids[: len(shorter.token_ids)] == shorter.token_ids
    for message in history:
        assert message["content"] in (shorter.text or "")
        assert message.get("reasoning", "") in (shorter.text or "")


def test_the_vocabulary_is_small_and_has_a_token_for_every_byte() -> None:
    _, tokenizer = builtin.load()
    everything = bytes(range(256)).decode("latin-1") + "日本語 👍🏽"
    assert tokenizer.decode(tokenizer.encode(everything)) == everything
    assert len(tokenizer.encode("Thank you, the reservation was cancelled.")) <= 10
    assert dict(tokenizer.special_tokens) == {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}


def test_loading_is_fast() -> None:
    """Measured: 21 ms in a fresh process, the library imported. The bound leaves room for a busy machine."""
    code = (
        "import time\nfrom pkv_lint.prompt import builtin\nstart = time.perf_counter()\nbuiltin.load()\n"
        "print(time.perf_counter() - start)"
    )
    runs = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) for _ in range(3)
    ]
    assert min(runs) < 0.15
