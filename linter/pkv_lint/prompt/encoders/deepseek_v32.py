"""Prompts of DeepSeek V3.2, which come from code published with the model rather than from a chat template.

Follows vLLM's `tokenizers/deepseek_v32.py` and `deepseek_v32_encoding.py`; the fixed texts are part of the format.
"""

# ruff: noqa: RUF001  (the special tokens are spelled with FULLWIDTH VERTICAL LINE)
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pkv_lint.prompt.encoders.dsml import (
    ASSISTANT,
    BOS,
    END_OF_THINKING,
    EOS,
    THINK,
    USER,
    calls_block,
    last_user,
    refuse_overridden_conversation,
    schemas,
    without_reasoning,
)
from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.messages import ContentFormat, Message, join

CONTENT_FORMAT: ContentFormat = "string"

_TOOLS_HEAD = (
    "## Tools\n"
    "You have access to a set of tools you can use to answer the user's question.\n"
    'You can invoke functions by writing a "<｜DSML｜function_calls>" block like the following as part of your reply '
    "to the user:\n"
    "<｜DSML｜function_calls>\n"
    '<｜DSML｜invoke name="$FUNCTION_NAME">\n'
    '<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>\n'
    "...\n"
    "</｜DSML｜invoke>\n"
    '<｜DSML｜invoke name="$FUNCTION_NAME2">\n'
    "...\n"
    "</｜DSML｜invoke>\n"
    "</｜DSML｜function_calls>\n"
    "String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects "
    'should use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for '
    "other types (numbers, booleans, arrays, objects).\n"
    "If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking "
    "block. Here is an example:\n"
    "<｜DSML｜function_calls>\n"
    "...\n"
    "</｜DSML｜function_calls>\n"
    "<function_results>\n"
    "...\n"
    "</function_results>\n"
    "<think>...thinking about results</think>\n"
    "Here are the functions available in JSONSchema format:\n"
    "<functions>\n"
)
_TOOLS_TAIL = "\n</functions>\n"


def encode_text(messages: Sequence[Message], tools: Sequence[Any] | None, options: Mapping[str, Any]) -> str:
    """The prompt text.

    `messages` are shaped in CONTENT_FORMAT, `tools` are normalised, `options` are the merged template arguments, of
    which `thinking` and `enable_thinking` matter. Raises RenderError where the server would refuse the conversation.
    """
    refuse_overridden_conversation(options)
    turns = [{"role": "system", "tools": tools}, *messages] if tools else list(messages)
    if not turns:
        raise RenderError("list index out of range", path="messages", status=500)
    thinking = bool(options.get("thinking") or options.get("enable_thinking"))
    kept = _with_reasoning_of_last_turn(turns) if thinking and turns[-1]["role"] == "user" else turns
    conversation = _Conversation(kept, thinking)
    text = join("", [BOS, *(conversation.text(index) for index in range(len(kept)))])
    if len(kept) < len(turns):
        # The server goes on counting as if nothing had been dropped.
        raise RenderError(f"Index {len(kept)} out of range for messages list of length {len(kept)}", path="messages")
    return text


def _with_reasoning_of_last_turn(turns: Sequence[Message]) -> list[Message]:
    """Drops what was thought before the last user message, and earlier messages of other roles as well."""
    last = last_user(turns)
    kept = []
    for index, turn in enumerate(turns):
        if index >= last or turn["role"] in ("user", "system", "tool"):
            kept.append(turn)
        elif turn["role"] == "assistant":
            kept.append(without_reasoning(turn))
    return kept


class _Conversation:
    def __init__(self, turns: Sequence[Message], thinking: bool) -> None:
        self._turns = turns
        self._thinking = thinking
        self._last_user = last_user(turns)

    def text(self, index: int) -> str:
        turn = self._turns[index]
        match turn["role"]:
            case "system":
                return join("", [turn.get("content") or "", *self._tools(turn)])
            case "developer":
                return self._developer(index)
            case "user":
                return join("", [USER, turn["content"], ASSISTANT, self._opening(index == self._last_user)])
            case "tool":
                return self._tool_result(index)
            case "assistant":
                return self._assistant(index)
        raise RenderError(f"Invalid role: {turn['role']}", path="messages")

    def _tools(self, turn: Message) -> list[str]:
        return ["\n\n", _TOOLS_HEAD, schemas(turn["tools"]), _TOOLS_TAIL] if turn.get("tools") else []

    def _opening(self, thinks: bool) -> str:
        return THINK if thinks and self._thinking else END_OF_THINKING

    def _developer(self, index: int) -> str:
        turn = self._turns[index]
        if not turn["content"]:
            raise RenderError(f"Invalid message for role `developer`: {turn}", path="messages")
        said = ["\n\n# The user's message is: ", turn["content"]]
        return join("", [USER, *self._tools(turn), *said, ASSISTANT, self._opening(index == self._last_user)])

    def _tool_result(self, index: int) -> str:
        """Results are counted off against the calls of the assistant message before them."""
        caller = index - 1
        while caller >= 0 and self._turns[caller]["role"] == "tool":
            caller -= 1
        # At the very start Python's index -1 makes the server look at the last message.
        calling = self._turns[caller]
        if index > 0 and (caller < 0 or calling["role"] != "assistant"):
            raise RenderError(f"Invalid messages at {index}:\n{calling}", path="messages")
        calls = calling.get("tool_calls") or ()
        order = index - caller
        if len(calls) < order:
            raise RenderError("No tool calls but found tool output", path="messages")
        head = "\n\n<function_results>" if order == 1 else ""
        pieces = [head, "\n<result>", self._turns[index]["content"], "</result>"]
        if order == len(calls):
            pieces += ["\n</function_results>\n\n", self._opening(index >= self._last_user)]
        return join("", pieces)

    def _assistant(self, index: int) -> str:
        turn = self._turns[index]
        reasoning, calls = turn.get("reasoning"), turn.get("tool_calls")
        pieces = []
        if self._thinking and index > self._last_user:
            if not (reasoning or calls):
                raise RenderError(
                    f"ThinkingMode: thinking, invalid message without reasoning/tool_calls `{turn}` after last user "
                    "message",
                    path="messages",
                )
            pieces += [reasoning or "", END_OF_THINKING]
        pieces.append(turn["content"] or "")
        if calls:
            pieces += ["\n\n", calls_block(calls, "function_calls")]
        return join("", [*pieces, EOS])
