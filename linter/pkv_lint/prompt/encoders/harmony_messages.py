"""Messages of the harmony format as vLLM makes them (`entrypoints/openai/parser/harmony_utils.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pkv_lint.prompt.errors import RenderError

if TYPE_CHECKING:
    from openai_harmony import Message  # type: ignore[import-untyped]


def leading_instructions(messages: Sequence[Any]) -> tuple[str | None, Sequence[Any]]:
    if messages and messages[0]["role"] in ("system", "developer"):
        return flat_text(messages[0].get("content")), messages[1:]
    return None, messages


def system_message(instructions: str | None, effort: str | None, date: str) -> Message:
    from openai_harmony import Message, ReasoningEffort, Role, SystemContent

    content = SystemContent.new().with_conversation_start_date(date)
    if instructions is not None:
        content = content.with_model_identity(f"{content.model_identity}\n{instructions}")
    if effort is not None:
        content = content.with_reasoning_effort(ReasoningEffort[effort.upper()])
    return Message.from_role_and_content(Role.SYSTEM, content)


def developer_message(instructions: str | None, tools: Sequence[Mapping[str, Any]] | None = None) -> Message:
    from openai_harmony import DeveloperContent, Message, Role, ToolDescription

    content = DeveloperContent.new()
    if instructions is not None:
        content = content.with_instructions(instructions)
    if tools:
        functions = [tool["function"] for tool in tools]
        content = content.with_function_tools(
            [
                ToolDescription.new(
                    name=function["name"],
                    description=function.get("description") or "",
                    parameters=function.get("parameters"),
                )
                for function in functions
            ]
        )
    return Message.from_role_and_content(Role.DEVELOPER, content)


def assistant_messages(message: Mapping[str, Any], path: str) -> Iterator[Message]:
    """What an assistant said, by channel: with calls the text is commentary before them, else it is final."""
    from openai_harmony import Message, Role

    reasoning = message.get("reasoning")
    calls = message.get("tool_calls")
    analysis = Message.from_role_and_content(Role.ASSISTANT, reasoning).with_channel("analysis") if reasoning else None
    if not calls:
        if analysis:
            yield analysis
        texts = texts_of(message, path)
        if texts and texts[0]:
            yield spoken_message("assistant", texts).with_channel("final")
        return
    if text := flat_text(message.get("content")):
        yield Message.from_role_and_content(Role.ASSISTANT, text).with_channel("commentary")
    if analysis:
        yield analysis
    for call in calls:
        function = call.get("function") or {}
        spoken = Message.from_role_and_content(Role.ASSISTANT, function.get("arguments") or "")
        recipient = f"functions.{function.get('name', '')}"
        yield spoken.with_channel("commentary").with_recipient(recipient).with_content_type("json")


def tool_result(message: Mapping[str, Any], name: Any) -> Message:
    from openai_harmony import Author, Message, Role

    author = Author.new(Role.TOOL, f"functions.{name}")
    result = Message.from_author_and_content(author, flat_text(message.get("content")) or "")
    return result.with_channel("commentary").with_recipient("assistant")


def spoken_message(role: str, texts: Sequence[Any]) -> Message:
    from openai_harmony import Author, Message, TextContent

    # The library's own check refuses other roles, as it does on the server.
    return Message(author=Author.model_validate({"role": role}), content=[TextContent(text=text) for text in texts])


def texts_of(message: Mapping[str, Any], path: str) -> list[Any]:
    """The texts of the parts, "" for a part that is none (an image, a refusal)."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return [content]
    for index, part in enumerate(content):
        if not isinstance(part, Mapping):
            raise RenderError("a part must be an object here", path=f"{path}[{index}]", status=500)
    return [part.get("text", "") for part in content]


def flat_text(content: Any) -> str | None:
    if content is None or isinstance(content, str):
        return content
    texts = [part if isinstance(part, str) else part.get("text") for part in content]
    texts = [text for text in texts if text is not None]
    return "".join(texts) if texts else None


def without_finished_analysis(messages: Sequence[Message]) -> list[Message]:
    """Reasoning that led to an answer already given is dropped (`auto_drop_analysis_messages`)."""
    answers = [i for i, message in enumerate(messages) if message.channel == "final"]
    last = answers[-1] if answers else -1
    return [message for i, message in enumerate(messages) if i >= last or message.channel != "analysis"]
