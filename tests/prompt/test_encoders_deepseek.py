"""The prompt formats of DeepSeek V3.2 and V4."""
# ruff: noqa: RUF001  (the special tokens are spelled with FULLWIDTH VERTICAL LINE)

from __future__ import annotations

from typing import Any

import pytest

from pkv_lint.prompt.encoders import deepseek_v4, deepseek_v32
from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.messages import conversation
from pkv_lint.prompt.traced import origins, trace_value

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
TOOLS = [{"type": "function", "function": {"name": "f", "description": None, "parameters": {"b": 1, "a": "ü"}}}]
SCHEMA = '{"name": "f", "description": null, "parameters": {"b": 1, "a": "ü"}}'


def user(content: str = "Hi") -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str = "", **members: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **members}


def call(identifier: str, arguments: str = "{}") -> dict[str, Any]:
    return {"id": identifier, "type": "function", "function": {"name": "f", "arguments": arguments}}


def result(identifier: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identifier, "content": content}


def v32(*messages: dict[str, Any], tools: Any = None, **options: Any) -> str:
    shaped = conversation(messages, deepseek_v32.CONTENT_FORMAT, text_model="m")
    return deepseek_v32.encode_text(shaped, tools, options)


def v4(*messages: dict[str, Any], tools: Any = None, **options: Any) -> str:
    shaped = conversation(messages, deepseek_v4.CONTENT_FORMAT, text_model="m")
    return deepseek_v4.encode_text(shaped, tools, options)


def chat_v4(*messages: dict[str, Any], **options: Any) -> str:
    return v4(*messages, thinking=False, **options)


class TestV32:
    def test_thinks_only_when_told_to(self) -> None:
        assert v32(user()) == f"{BOS}<｜User｜>Hi<｜Assistant｜></think>"
        for name in ("thinking", "enable_thinking"):
            assert v32(user(), **{name: True}) == f"{BOS}<｜User｜>Hi<｜Assistant｜><think>"

    def test_tools_are_a_system_message_of_their_own_in_front(self) -> None:
        text = v32({"role": "system", "content": "Be brief."}, user(), tools=TOOLS)
        assert text.startswith(f"{BOS}\n\n## Tools\n")
        assert f"<functions>\n{SCHEMA}\n</functions>\nBe brief.<｜User｜>Hi" in text

    def test_generation_prompt_and_continuation_are_ignored(self) -> None:
        assert v32(user(), assistant("Hel"), add_generation_prompt=False, continue_final_message=True).endswith(
            f"</think>Hel{EOS}"
        )

    def test_parts_are_joined_as_in_the_string_format(self) -> None:
        parts = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
        assert "<｜User｜>a\nb<｜Assistant｜>" in v32(parts)

    def test_calls_and_results(self) -> None:
        arguments = '{"s": "x\\"", "n": 1.50, "o": {"k": null}}'
        text = v32(user(), assistant(tool_calls=[call("1", arguments), call("2")]), result("1", "A"), result("2", "B"))
        assert text.endswith(
            '\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n'
            '<｜DSML｜parameter name="s" string="true">x"</｜DSML｜parameter>\n'
            '<｜DSML｜parameter name="n" string="false">1.5</｜DSML｜parameter>\n'
            '<｜DSML｜parameter name="o" string="false">{"k": null}</｜DSML｜parameter>\n'
            '</｜DSML｜invoke>\n<｜DSML｜invoke name="f">\n\n</｜DSML｜invoke>\n</｜DSML｜function_calls>'
            f"{EOS}\n\n<function_results>\n<result>A</result>\n<result>B</result>\n</function_results>\n\n</think>"
        )

    def test_reasoning_is_shown_until_the_next_user_message(self) -> None:
        thinking = assistant(reasoning="why", tool_calls=[call("1")])
        assert "<think>why</think>\n\n<｜DSML｜function_calls>" in v32(
            user(), thinking, result("1", "A"), thinking=True
        )
        assert "why" not in v32(user(), thinking, result("1", "A"), user(), thinking=True)
        assert "why" not in v32(user(), thinking, result("1", "A"))

    def test_developer_speaks_as_user(self) -> None:
        text = v32({"role": "developer", "content": "Go.", "tools": TOOLS})
        assert text.startswith(f"{BOS}<｜User｜>\n\n## Tools\n")
        assert text.endswith("</functions>\n\n\n# The user's message is: Go.<｜Assistant｜></think>")

    @pytest.mark.parametrize(
        ("messages", "options", "message", "status"),
        [
            ([], {}, "list index out of range", 500),
            ([{"role": "critic", "content": "x"}], {}, "Invalid role: critic", 400),
            ([user(), result("1", "A")], {}, "Invalid messages at 1", 400),
            ([user(), assistant("x"), result("1", "A")], {}, "No tool calls but found tool output", 400),
            ([result("1", "A"), user()], {}, "No tool calls but found tool output", 400),
            ([user(), assistant(tool_calls=[call("1")]), result("1", ""), result("2", "")], {}, "No tool calls", 400),
            ([{"role": "developer", "content": ""}], {}, "Invalid message for role `developer`", 400),
            ([user(), assistant("x")], {"thinking": True}, "without reasoning/tool_calls", 400),
            ([{"role": "developer", "content": "x"}, user()], {"thinking": True}, "Index 1 out of range", 400),
            ([user()], {"messages": []}, "multiple values for keyword argument 'messages'", 400),
            ([user()], {"conversation": []}, "multiple values for keyword argument 'conversation'", 400),
            ([user()], {"tools": [{}]}, "'function'", 500),
            ([user()], {"tools": ["f"]}, "string indices", 400),
        ],
    )
    def test_refused(self, messages: list[Any], options: dict[str, Any], message: str, status: int) -> None:
        with pytest.raises(RenderError) as caught:
            v32(*messages, **options)
        assert message in caught.value.message
        assert caught.value.status == status


class TestV4:
    def test_thinks_unless_told_not_to(self) -> None:
        assert v4(user()).endswith("<｜User｜>Hi<｜Assistant｜><think>")
        for name in ("thinking", "enable_thinking"):
            assert v4(user(), **{name: False}) == f"{BOS}<｜User｜>Hi<｜Assistant｜></think>"
        assert v4(user(), thinking=False, enable_thinking=True).endswith("<think>")

    @pytest.mark.parametrize(
        ("effort", "beginning"),
        [
            (None, "Reasoning Effort: Absolute maximum"),
            ("high", "Reasoning Effort: Absolute maximum"),
            ("xhigh", "Reasoning Effort: Absolute maximum"),
            ("max", "Reasoning Effort: Beyond maximum"),
            ("low", "<｜User｜>"),
            ("medium", "<｜User｜>"),
            ("minimal", "<｜User｜>"),
        ],
    )
    def test_effort(self, effort: str | None, beginning: str) -> None:
        options = {} if effort is None else {"reasoning_effort": effort}
        assert v4(user(), **options).startswith(BOS + beginning)
        assert chat_v4(user(), **options) == f"{BOS}<｜User｜>Hi<｜Assistant｜></think>"

    def test_effort_none_is_chat(self) -> None:
        assert v4(user(), thinking=True, reasoning_effort="none") == f"{BOS}<｜User｜>Hi<｜Assistant｜></think>"

    def test_tools_join_the_first_system_message(self) -> None:
        system = {"role": "system", "content": "Be brief."}
        text = chat_v4(user("a"), assistant("b"), system, user(), tools=TOOLS)
        assert "Be brief.\n\n## Tools\n" in text
        assert f"\n\n{SCHEMA}\n\nYou MUST strictly follow" in text
        assert chat_v4(user(), tools=TOOLS).startswith(f"{BOS}\n\n## Tools\n")

    def test_parts_are_joined_by_empty_lines(self) -> None:
        parts = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
        assert chat_v4(parts) == f"{BOS}<｜User｜>a\n\nb<｜Assistant｜></think>"

    def test_results_join_the_user_turn_in_the_order_of_the_calls(self) -> None:
        calling = assistant(tool_calls=[call("1"), call("2")])
        text = chat_v4(user(), calling, result("2", "B"), result("1", "A"), user("and?"))
        assert text.endswith(
            f"</｜DSML｜tool_calls>{EOS}<｜User｜><tool_result>A</tool_result>\n\n<tool_result>B</tool_result>\n\nand?"
            "<｜Assistant｜></think>"
        )

    def test_parts_of_a_result_that_are_no_text(self) -> None:
        content = [{"type": "text", "text": "a"}, {"type": "tool_reference", "name": "f"}]
        tool = {"role": "tool", "tool_call_id": "1", "content": content}
        text = chat_v4(user(), assistant(tool_calls=[call("1")]), tool)
        assert "<tool_result>a\n\n[Unsupported tool_reference]</tool_result>" in text

    def test_reasoning_is_shown_from_the_last_user_turn_on_and_everywhere_with_tools(self) -> None:
        history = [user(), assistant("4", reasoning="why"), user("3+3?")]
        assert "why" not in v4(*history)
        assert "<think>why</think>4" in v4(*history, tools=TOOLS)
        assert "<think>why</think>4" in v4(*history, drop_thinking=False)
        assert "why" not in chat_v4(*history, tools=TOOLS)
        assert "<think>why</think>4" in v4(*history[:2])

    def test_earlier_developer_messages_are_dropped_while_reasoning_is(self) -> None:
        history = [{"role": "developer", "content": "Go."}, assistant("x"), user()]
        assert "Go." not in v4(*history)
        assert chat_v4(*history).startswith(f"{BOS}<｜User｜>Go.<｜Assistant｜></think>x")

    def test_a_trailing_system_message_opens_the_turn(self) -> None:
        assert chat_v4(user(), assistant("x"), {"role": "system", "content": "S"}).endswith("S<｜Assistant｜></think>")

    def test_latest_reminder_and_tasks(self) -> None:
        reminder = {"role": "latest_reminder", "content": "R"}
        assert chat_v4(user(), reminder) == f"{BOS}<｜User｜>Hi<｜Assistant｜></think><｜latest_reminder｜>R"
        assert chat_v4({**user(), "task": "title"}) == f"{BOS}<｜User｜>Hi<｜title｜>"
        assert chat_v4({**user(), "task": "action"}) == f"{BOS}<｜User｜>Hi<｜Assistant｜></think><｜action｜>"
        # What answers a task has no thinking in front.
        assert v4({**user(), "task": "title"}, assistant("T")).endswith(f"<｜User｜>Hi<｜title｜>T{EOS}")

    @pytest.mark.parametrize(
        ("messages", "options", "message"),
        [
            ([{"role": "critic", "content": "x"}], {}, "Invalid role: critic"),
            ([{"role": "developer", "content": ""}], {}, "Invalid message for role `developer`"),
            ([{**user(), "task": "paint"}], {}, "Invalid task: 'paint'"),
            ([user()], {"conversation": []}, "multiple values for keyword argument 'conversation'"),
            ([{"role": "user", "content": [{"type": "tool_reference", "name": "f"}]}], {}, "Unsupported content block"),
        ],
    )
    def test_refused(self, messages: list[Any], options: dict[str, Any], message: str) -> None:
        with pytest.raises(RenderError, match=message):
            v4(*messages, **options)


@pytest.mark.parametrize("encode", [v32, v4])
def test_traced_text_is_the_plain_text_and_knows_where_values_stand(encode: Any) -> None:
    history = [
        {"role": "system", "content": "Be brief."},
        user(),
        assistant(tool_calls=[call("1", '{"city": "Paris", "n": [1, 2]}')]),
        result("1", "18 C"),
    ]
    traced = trace_value({"messages": history, "tools": TOOLS}, "")
    text = encode(*traced["messages"], tools=traced["tools"])
    assert text == encode(*history, tools=TOOLS)
    where = {text[origin.start : origin.end]: origin.source.where for origin in origins(text)}
    assert where["Be brief."] == "messages[0].content"
    assert where["Hi"] == "messages[1].content"
    assert where["Paris"] == "messages[2].tool_calls[0].function.arguments"
    assert where["18 C"] == "messages[3].content"
    assert where["ü"] == "tools[0].function.parameters.a"
