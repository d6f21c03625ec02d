"""Prompts of DeepSeek V4, which come from code published with the model rather than from a chat template.

Follows vLLM's `tokenizers/deepseek_v4.py` and `deepseek_v4_encoding.py`; the fixed texts are part of the format.
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

CONTENT_FORMAT: ContentFormat = "openai"

_LATEST_REMINDER = "<｜latest_reminder｜>"
_IMAGE = "<｜deepseek_image｜>"
_TASKS = ("action", "query", "authority", "domain", "title", "read_url")
_KEPT_ROLES = ("user", "system", "tool", "latest_reminder", "direct_search_results")

_EFFORT_TEXTS = {
    "low": "",
    "high": (
        "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
        "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root "
        "cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial "
        "scenarios.\n"
        "Explicitly write out your entire deliberation process, documenting every intermediate step, considered "
        "alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n"
    ),
    "max": (
        "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
        "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose "
        "the problem into its most fundamental components, trace every causal chain to its root, and resolve the "
        "underlying cause rather than any surface symptom.\n"
        "Do not stop reasoning until you have independently verified the solution from multiple angles and are certain "
        "that no assumption remains unchecked and no error remains undiscovered.\n\n"
    ),
}
_TOOLS_HEAD = (
    "## Tools\n"
    "\n"
    "You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "
    '"<｜DSML｜tool_calls>" block like the following:\n'
    "\n"
    "<｜DSML｜tool_calls>\n"
    '<｜DSML｜invoke name="$TOOL_NAME">\n'
    '<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>\n'
    "...\n"
    "</｜DSML｜invoke>\n"
    '<｜DSML｜invoke name="$TOOL_NAME2">\n'
    "...\n"
    "</｜DSML｜invoke>\n"
    "</｜DSML｜tool_calls>\n"
    "\n"
    'String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, '
    'arrays, objects), pass the value in JSON format and set `string="false"`.\n'
    "\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside "
    "<think>...</think> BEFORE any tool calls or final response.\n"
    "\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n"
    "\n"
    "### Available Tool Schemas\n"
    "\n"
)
_TOOLS_TAIL = "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"


def encode_text(messages: Sequence[Message], tools: Sequence[Any] | None, options: Mapping[str, Any]) -> str:
    """The prompt text.

    `messages` are shaped in CONTENT_FORMAT, `tools` are normalised, `options` are the merged template arguments, of
    which `thinking`, `enable_thinking`, `reasoning_effort` and `drop_thinking` matter. Raises RenderError where the
    server would refuse the conversation.
    """
    refuse_overridden_conversation(options)
    thinking, effort = _thinking(options)
    turns = _with_results_in_call_order(_with_results_in_user_turns(_with_tools(messages, tools)))
    drops = bool(options.get("drop_thinking", True)) and not any(turn.get("tools") for turn in turns)
    if thinking and drops:
        turns = _with_reasoning_of_last_turn(turns)
    conversation = _Conversation(turns, thinking, drops)
    head = _EFFORT_TEXTS[effort] if thinking and turns else ""
    return join("", [BOS, head, *(conversation.text(index) for index in range(len(turns)))])


def _thinking(options: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether the model is to think, which it does unless told otherwise, and how hard."""
    thinking = bool(options.get("thinking") or options.get("enable_thinking"))
    if "thinking" not in options and "enable_thinking" not in options:
        thinking = True
    effort = options.get("reasoning_effort")
    if effort == "none":
        return False, "low"
    if effort in ("low", "minimal", "medium"):
        return thinking, "low"
    return thinking, "max" if effort == "max" else "high"


def _with_tools(messages: Sequence[Message], tools: Sequence[Any] | None) -> list[Message]:
    """The tools stand in the first system message, in an empty one of their own where there is none."""
    if not tools:
        return list(messages)
    place = next((i for i, message in enumerate(messages) if message["role"] == "system"), None)
    if place is None:
        return [{"role": "system", "tools": tools}, *messages]
    return [*messages[:place], {**messages[place], "tools": tools}, *messages[place + 1 :]]


def _with_results_in_user_turns(messages: Sequence[Message]) -> list[Message]:
    """User messages and tool results that follow each other become one user turn of several `blocks`."""
    turns: list[Message] = []
    for message in messages:
        previous = turns[-1] if turns and "blocks" in turns[-1] else None
        if message["role"] == "tool":
            block = {"call_id": message.get("tool_call_id", ""), "text": _result_text(message["content"])}
            if previous is None:
                turns.append({"role": "user", "blocks": [block]})
            else:
                previous["blocks"].append(block)
        elif message["role"] == "user":
            block = {"text": _flat_text(message["content"])}
            if previous is None or previous.get("task") is not None:
                task = {"task": message["task"]} if "task" in message else {}
                turns.append({"role": "user", "blocks": [block], **task})
            else:
                previous["blocks"].append(block)
        else:
            turns.append(message)
    return turns


def _result_text(content: Any) -> str:
    if isinstance(content, list):
        texts = [part["text"] if part["type"] == "text" else f"[Unsupported {part['type']}]" for part in content]
        content = join("\n\n", texts)
    return join("", ["<tool_result>", content, "</tool_result>"])


def _flat_text(content: Any) -> str:
    if not isinstance(content, list):
        return content or ""
    return join("\n\n", [_part_text(part) for part in content])


def _part_text(part: Mapping[str, Any]) -> str:
    if part["type"] == "text":
        text: str = part["text"]
        return text
    if part["type"] == "image":
        return _IMAGE
    raise RenderError(f"Unsupported content block type: {part['type']!r}", path="messages")


def _with_results_in_call_order(turns: Sequence[Message]) -> list[Message]:
    """Within a user turn the results change places among themselves to stand in the order of the calls."""
    order: dict[str, int] = {}
    sorted_turns = []
    for turn in turns:
        if turn["role"] == "assistant" and turn.get("tool_calls"):
            order = {call["id"]: index for index, call in enumerate(turn["tool_calls"]) if call.get("id")}
        elif "blocks" in turn:
            results = [block for block in turn["blocks"] if "call_id" in block]
            results.sort(key=lambda block: order.get(block["call_id"], 0))
            following = iter(results)
            turn = {**turn, "blocks": [next(following) if "call_id" in block else block for block in turn["blocks"]]}
        sorted_turns.append(turn)
    return sorted_turns


def _with_reasoning_of_last_turn(turns: Sequence[Message]) -> list[Message]:
    """Drops what was thought before the last user turn, and earlier developer messages as well."""
    last = last_user(turns)
    kept = []
    for index, turn in enumerate(turns):
        if index >= last or turn["role"] in _KEPT_ROLES:
            kept.append(turn)
        elif turn["role"] == "assistant":
            kept.append(without_reasoning(turn))
    return kept


class _Conversation:
    def __init__(self, turns: Sequence[Message], thinking: bool, drops: bool) -> None:
        """`drops`: reasoning before the last user turn is not shown."""
        self._turns = turns
        self._thinking = thinking
        self._drops = drops
        self._last_user = last_user(turns)

    def text(self, index: int) -> str:
        return join("", [self._said(index), *self._transition(index)])

    def _said(self, index: int) -> str:
        turn = self._turns[index]
        role = turn["role"]
        if role == "user":
            return join("", [USER, join("\n\n", [block["text"] for block in turn["blocks"]])])
        content = _flat_text(turn.get("content"))
        match role:
            case "system":
                return join("", [content, *self._tools(turn)])
            case "developer":
                if not content:
                    raise RenderError(f"Invalid message for role `developer`: {turn}", path="messages")
                return join("", [USER, content, *self._tools(turn)])
            case "latest_reminder":
                return join("", [_LATEST_REMINDER, content])
            case "assistant":
                return join("", [*self._thought(index), content, *self._calls(turn), EOS])
        raise RenderError(f"Invalid role: {role}", path="messages")

    def _tools(self, turn: Message) -> list[str]:
        return ["\n\n", _TOOLS_HEAD, schemas(turn["tools"]), _TOOLS_TAIL] if turn.get("tools") else []

    def _calls(self, turn: Message) -> list[str]:
        calls = turn.get("tool_calls")
        return ["\n\n", calls_block(calls, "tool_calls")] if calls else []

    def _thought(self, index: int) -> list[str]:
        answers_task = index > 0 and self._turns[index - 1].get("task") is not None
        if not self._thinking or answers_task or (self._drops and index <= self._last_user):
            return []
        return [self._turns[index].get("reasoning") or "", END_OF_THINKING]

    def _transition(self, index: int) -> list[str]:
        """What opens the assistant's turn, where one follows or is to be generated."""
        following = self._turns[index + 1]["role"] if index + 1 < len(self._turns) else None
        if following not in (None, "assistant", "latest_reminder"):
            return []
        turn = self._turns[index]
        task = turn.get("task")
        if task is not None:
            if task not in _TASKS:
                raise RenderError(f"Invalid task: '{task}'. Valid tasks are: {list(_TASKS)}", path="messages")
            opening = [ASSISTANT, THINK if self._thinking else END_OF_THINKING] if task == "action" else []
            return [*opening, f"<｜{task}｜>"]
        if turn["role"] in ("user", "developer") or (turn["role"] == "system" and following != "latest_reminder"):
            thinks = self._thinking and (not self._drops or index >= self._last_user)
            return [ASSISTANT, THINK if thinks else END_OF_THINKING]
        return []
