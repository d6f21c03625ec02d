"""Items of the Responses API as messages of the harmony format (vLLM's `entrypoints/openai/responses/harmony.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pkv_lint.prompt.encoders.harmony_messages import flat_text, spoken_message, texts_of
from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.fields import Fields

if TYPE_CHECKING:
    from openai_harmony import Message  # type: ignore[import-untyped]

# Tools that the server runs itself, if it has them; they are described in the system message and not shown here.
_OWN_TOOLS = frozenset({"code_interpreter", "web_search_preview", "container"})


def peeled_instructions(items: list[Fields]) -> tuple[str | None, list[Fields]]:
    """A system or developer message in front stands for the instructions."""
    if items and items[0].values.get("role") in ("system", "developer"):
        return flat_text(items[0].values.get("content")), items[1:]
    return None, items


def shown_tools(declared: Sequence[Fields]) -> list[dict[str, Any]] | None:
    """The functions, as chat tools. Beside them only the server's own tools are allowed."""
    types = {tool.values["type"] for tool in declared} - {"mcp"}
    if types <= _OWN_TOOLS:
        return None
    for tool in declared:
        if tool.values["type"] not in ("function", *_OWN_TOOLS):
            kind = tool.values["type"]
            raise RenderError(f"tool type {kind!r} is not supported. (parameter=tools)", path=tool.at("type"))
    return [{"function": tool.values} for tool in declared if tool.values["type"] == "function"]


def item_messages(items: Sequence[Fields], instructions: Callable[[str, str], Message]) -> Iterator[Message]:
    """One message for each item, none for empty reasoning and empty instructions."""
    from openai_harmony import Author, Message, Role

    callers: dict[str, str] = {}
    for item in items:
        values = item.values
        match values.get("type", "message"):
            case "message":
                yield from _message(item, instructions)
            case "function_call":
                callers[values["call_id"]] = values["name"]
                call = Message.from_role_and_content(Role.ASSISTANT, values["arguments"])
                recipient = f"functions.{values['name']}"
                yield call.with_channel("commentary").with_recipient(recipient).with_content_type("json")
            case "function_call_output":
                caller = callers.get(values.get("call_id", ""))
                if caller is None:
                    raise RenderError(f"No call message found for {values.get('call_id')}", path=item.at("call_id"))
                author = Author.new(Role.TOOL, f"functions.{caller}")
                result = Message.from_author_and_content(author, values["output"])
                yield result.with_channel("commentary").with_recipient("assistant")
            case "reasoning":
                if content := values.get("content"):
                    thought = "\n".join(part["text"] for part in content)
                    yield Message.from_role_and_content(Role.ASSISTANT, thought).with_channel("analysis")
            case kind:
                raise RenderError(f"Unknown input type: {kind}", path=item.at("type"))


def _message(item: Fields, instructions: Callable[[str, str], Message]) -> Iterator[Message]:
    for name in ("role", "content"):
        if name not in item.values:
            raise RenderError(f"'{name}'", path=item.path, status=500)
    role, content = item.values["role"], item.values["content"]
    if role in ("system", "developer"):
        text = flat_text(content)
        if text:
            yield instructions(role, text)
        return
    if not isinstance(content, (str, list)):
        raise RenderError("must be a string or a list of parts", path=item.at("content"))
    texts = [content] if isinstance(content, str) else texts_of(item.values, item.at("content"))
    message = spoken_message(str(role), texts)
    yield message.with_channel("final") if role == "assistant" else message
