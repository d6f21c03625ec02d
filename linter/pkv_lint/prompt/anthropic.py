"""Bodies of the Anthropic Messages API (`/v1/messages`) as the chat bodies that vLLM makes of them.

The rules are those of `entrypoints/anthropic`: `protocol.py` for what is refused, `serving.py` for the conversion.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.fields import Fields
from pkv_lint.prompt.messages import join
from pkv_lint.prompt.serialise import json_text, python_text

_BLOCK_TYPES = (
    "text",
    "image",
    "tool_use",
    "tool_result",
    "tool_reference",
    "thinking",
    "redacted_thinking",
    "tool_addition",
    "tool_removal",
)
_TOOL_CHANGES = ("tool_addition", "tool_removal")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_BILLING_HEADER = "x-anthropic-billing-header"
_PASSED_ON = ("model", "temperature", "top_p", "top_k", "stream", "cache_salt", "kv_transfer_params")
# vLLM numbers a call without id by the second of its arrival, which nobody can know beforehand: as many digits.
_UNKNOWN_CALL_ID = "call_0000000000"

Block = Mapping[str, Any]


def looks_like(body: Mapping[str, Any]) -> bool:
    """Whether the body has a shape that only the Messages API knows (a plain conversation fits both)."""
    if "messages" not in body:
        return False
    if any(name in body for name in ("system", "stop_sequences", "output_config")):
        return True
    # Some chat clients send `thinking` with the types enabled and disabled, so only what they never send counts.
    thinking = body.get("thinking")
    if isinstance(thinking, Mapping) and ("budget_tokens" in thinking or thinking.get("type") == "adaptive"):
        return True
    tools = body.get("tools")
    if isinstance(tools, list) and any(isinstance(tool, Mapping) and "input_schema" in tool for tool in tools):
        return True
    messages = body["messages"]
    return isinstance(messages, list) and any(
        isinstance(block, Mapping) and _is_own_block(block)
        for message in messages
        if isinstance(message, Mapping) and isinstance(message.get("content"), list)
        for block in message["content"]
    )


def _is_own_block(block: Block) -> bool:
    """Whether a chat request never has such a part (its thinking parts have no signature, its images no source)."""
    match block.get("type"):
        case "tool_use" | "tool_result" | "redacted_thinking" | "tool_addition" | "tool_removal":
            return True
        case "thinking":
            return "signature" in block
        case "image" | "document":
            return "source" in block
    return False


def to_chat(
    body: dict[str, Any], *, merge_inline_system: bool = False, disabled_thinking_effort: str = "none"
) -> dict[str, Any]:
    """The chat-completions body for a Messages body.

    `merge_inline_system`: the chat template refuses system messages after the first place (`refuses_inline_system`), so
    the server joins them into the first one. `disabled_thinking_effort`: the reasoning effort that stands for disabled
    thinking on this server. Strings are passed on as the same objects. Raises RenderError, with a path in the Messages
    body, where the server would answer 400.
    """
    request = Fields.of(body, "")
    if not request.string("model"):
        raise RenderError("Model is required", path="model")
    max_tokens = request.integer("max_tokens")
    if max_tokens <= 0:
        raise RenderError("max_tokens must be positive", path="max_tokens")
    messages = _messages(request)
    chat: dict[str, Any] = {name: body[name] for name in _PASSED_ON if name in body}
    chat["messages"] = [
        *_system_message(request, messages if merge_inline_system else ()),
        *_converted(messages, skip_system=merge_inline_system),
    ]
    chat["max_tokens"] = chat["max_completion_tokens"] = max_tokens
    if (stop := request.optional_list("stop_sequences")) is not None:
        chat["stop"] = stop
    kwargs = request.optional_object("chat_template_kwargs")
    tools = _tools(request, messages)
    if tools:
        chat["tools"] = tools
    elif tools is not None:
        # An empty list reaches the template as such here, where a chat request with one is refused.
        kwargs = {"tools": [], **(kwargs or {})}
    if kwargs is not None:
        chat["chat_template_kwargs"] = kwargs
    tool_choice = _tool_choice(request, [tool["function"]["name"] for tool in tools or ()])
    if tools and tool_choice is not None:
        chat["tool_choice"] = tool_choice
    effort = _effort(request, max_tokens, disabled_thinking_effort)
    if effort is not None:
        chat["reasoning_effort"] = effort
    return chat


def has_inline_system(body: Mapping[str, Any]) -> bool:
    """Whether a message among the others is a system message, so that `merge_inline_system` matters."""
    messages = body.get("messages")
    return isinstance(messages, list) and any(
        isinstance(message, Mapping) and message.get("role") == "system" for message in messages
    )


def refuses_inline_system(template: str | None) -> bool:
    """Whether vLLM joins system messages from inside a conversation into the first one for this chat template.

    Like `_detect_merge_inline_system` it renders a conversation with a second system message in an environment without
    what transformers adds to Jinja: a template that calls `raise_exception` or adds to an unset token fails and so
    counts as refusing. None (a renderer without a template) counts as refusing too.
    """
    from pkv_lint.prompt.jinja.environment import LIMITS, rendered
    from pkv_lint.prompt.jinja.limits import Meter
    from pkv_lint.prompt.jinja.sandbox import GenerationTag, LimitedSandbox, Operations

    if not template:
        return True
    environment = LimitedSandbox(LIMITS)
    del environment.globals["raise_exception"], environment.globals["strftime_now"]
    del environment.extensions[GenerationTag.identifier]
    conversation = [{"role": role, "content": "t"} for role in ("system", "user", "system", "user")]
    variables = {"messages": conversation, "add_generation_prompt": False}
    try:
        rendered(environment.from_string(template), variables, Operations(Meter(LIMITS), datetime.min))
    except Exception:  # whatever a template can raise; the server does not even start on what is no TemplateError
        return True
    return False


def _messages(request: Fields) -> list[Fields]:
    """The messages after validation; the blocks of a content list stay plain objects but are known to be sound."""
    items = request.optional_list("messages")
    if items is None:
        raise RenderError("a list of messages is required", path="messages")
    messages = []
    for index, item in enumerate(items):
        message = Fields.of(item, f"messages[{index}]")
        role = message.choice("role", ("user", "assistant", "system"))
        content = message.values.get("content")
        if isinstance(content, list):
            _check_blocks(content, message.at("content"), tool_changes=role == "system")
        elif not isinstance(content, str):
            raise RenderError("must be a string or a list of content blocks", path=message.at("content"))
        messages.append(message)
    return messages


def _check_blocks(blocks: list[Any], path: str, *, tool_changes: bool) -> None:
    for index, item in enumerate(blocks):
        block = Fields.of(item, f"{path}[{index}]")
        kind = block.choice("type", _BLOCK_TYPES)
        for name in ("text", "id", "tool_use_id", "name", "tool_name", "thinking", "signature", "data"):
            block.optional_string(name)
        for name in ("source", "input"):
            block.optional_object(name)
        block.optional_boolean("is_error")
        content = block.values.get("content")
        if isinstance(content, list):
            for place, part in enumerate(content):
                Fields.of(part, f"{block.at('content')}[{place}]")
        elif content is not None and not isinstance(content, str):
            raise RenderError("must be a string or a list of objects", path=block.at("content"))
        if block.values.get("tool") is not None or kind in _TOOL_CHANGES:
            _check_tool_change(block, kind)
        if kind in _TOOL_CHANGES and not tool_changes:
            raise RenderError(f"{kind} blocks are only allowed in messages with role system", path=block.path)


def _check_tool_change(block: Fields, kind: str) -> None:
    change = Fields.of(block.object("tool"), block.at("tool"))
    if change.choice("type", ("tool_reference", "tool_definition")) == "tool_reference":
        change.string("name")
    else:
        _check_tool(Fields.of(change.object("definition"), change.at("definition")))
        if kind == "tool_removal":
            raise RenderError("tool_removal only accepts a tool_reference", path=change.path)


def _check_tool(tool: Fields) -> None:
    tool.string("name")
    tool.optional_string("description")
    tool.object("input_schema")
    tool.optional_boolean("strict")
    tool.optional_boolean("defer_loading")


def _system_message(request: Fields, inline: Sequence[Fields]) -> Iterator[dict[str, Any]]:
    parts: list[str] = []
    system = request.values.get("system")
    if isinstance(system, list):
        _check_blocks(system, "system", tool_changes=False)
        parts += _system_texts(system)
    elif system is not None and not isinstance(system, str):
        raise RenderError("must be a string or a list of text blocks", path="system")
    elif system:
        parts.append(system)
    for message in inline:
        if message.values["role"] == "system" and (text := _inline_system_text(message)):
            parts.append(text)
    if parts:
        yield {"role": "system", "content": join("", parts)}


def _system_texts(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        text = block.get("text")
        if block["type"] == "text" and text and not text.startswith(_BILLING_HEADER):
            yield text


def _inline_system_text(message: Fields) -> str | None:
    content = message.values["content"]
    if isinstance(content, str):
        return None if content.startswith(_BILLING_HEADER) else content
    return join("", list(_system_texts(content)))


def _converted(messages: Sequence[Fields], *, skip_system: bool) -> Iterator[dict[str, Any]]:
    for message in messages:
        role, content = message.values["role"], message.values["content"]
        if role == "system":
            text = None if skip_system else _inline_system_text(message)
            if text:
                yield {"role": "system", "content": text}
        elif isinstance(content, str):
            yield {"role": role, "content": content}
        elif role == "user":
            yield from _user_messages(content, message.at("content"))
        else:
            yield _message("assistant", content)


def _user_messages(blocks: Sequence[Block], path: str) -> Iterator[dict[str, Any]]:
    """Tool results come first, whatever their place among the blocks, then the rest as one user message."""
    for index, block in enumerate(blocks):
        if block["type"] == "tool_result":
            yield from _tool_result(block, f"{path}[{index}].content")
    message = _message("user", [block for block in blocks if block["type"] != "tool_result"])
    if "content" in message:
        yield message


def _message(role: str, blocks: Sequence[Block]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[str] = []
    for block in blocks:
        match block["type"]:
            case "text" if block.get("text"):
                parts.append({"type": "text", "text": block["text"]})
            case "image" if block.get("source"):
                parts.append(_image(block["source"]))
            case "thinking" if block.get("thinking") is not None:
                thoughts.append(block["thinking"])
            case "tool_use":
                calls.append(_tool_call(block))
            case "tool_result":
                content = block.get("content")
                text = join("", ["Tool result: ", python_text(content) if content else ""])
                parts.append({"type": "text", "text": text})
    message: dict[str, Any] = {"role": role}
    if thoughts:
        message["reasoning"] = join("", thoughts)
    if calls:
        message["tool_calls"] = calls
    if len(parts) == 1 and parts[0]["type"] == "text":
        message["content"] = parts[0]["text"]
    elif parts:
        message["content"] = parts
    return message


def _tool_call(block: Block) -> dict[str, Any]:
    function = {"name": block.get("name") or "", "arguments": json_text(block.get("input") or {}, ensure_ascii=True)}
    return {"id": block.get("id") or _UNKNOWN_CALL_ID, "type": "function", "function": function}


def _tool_result(block: Block, path: str) -> Iterator[dict[str, Any]]:
    """A tool message with the texts, a user message with the images, a second tool message with the tool references."""
    content = block.get("content")
    call_id = block.get("tool_use_id") or ""
    if not isinstance(content, list):
        yield {"role": "tool", "tool_call_id": call_id, "content": content or ""}
        return
    texts: list[str] = []
    images: list[dict[str, Any]] = []
    references: list[dict[str, Any]] = []
    for index, item in enumerate(content):
        match item.get("type"):
            case "text":
                text = item.get("text", "")
                if not isinstance(text, str):
                    raise RenderError("must be a string", path=f"{path}[{index}].text")
                texts.append(text)
            case "image":
                image = _image(Fields(item, f"{path}[{index}]").optional_object("source") or {})
                if image["image_url"]["url"]:
                    images.append(image)
            case "tool_reference" if name := item.get("tool_name") or item.get("name"):
                references.append({"type": "tool_reference", "name": name})
    yield {"role": "tool", "tool_call_id": call_id, "content": join("\n", texts)}
    if images:
        yield {"role": "user", "content": images}
    if references:
        yield {"role": "tool", "tool_call_id": call_id, "content": references}


def _image(source: Mapping[str, Any]) -> dict[str, Any]:
    if source.get("type") == "url":
        url = source.get("url", "")
    else:
        url = f"data:{source.get('media_type', 'image/jpeg')};base64,{source.get('data', '')}"
    return {"type": "image_url", "image_url": {"url": url}}


def _tools(request: Fields, messages: Sequence[Fields]) -> list[dict[str, Any]] | None:
    """The tools in effect at the end of the conversation as chat tools; None where the body has no list of tools and no
    block changes it."""
    declared = request.optional_list("tools")
    for index, tool in enumerate(declared or ()):
        _check_tool(Fields.of(tool, f"tools[{index}]"))
    changes = [
        Fields(block, f"{message.at('content')}[{index}]")
        for message in messages
        if isinstance(message.values["content"], list)
        for index, block in enumerate(message.values["content"])
        if block["type"] in _TOOL_CHANGES
    ]
    if not changes:
        return None if declared is None else [_chat_tool(tool) for tool in declared]
    tools: dict[str, Mapping[str, Any]] = {tool["name"]: tool for tool in declared or ()}
    removed: set[str] = set()
    for block in changes:
        change = block.values["tool"]
        if change["type"] == "tool_definition":
            name = change["definition"]["name"]
            tools[name] = change["definition"]
        else:
            name = change["name"]
            if name not in tools:
                raise RenderError(f"tool {name!r} is not declared in tools", path=f"{block.at('tool')}.name")
            if block.values["type"] == "tool_addition":
                tools[name] = {**tools[name], "defer_loading": None}
        if block.values["type"] == "tool_removal":
            removed.add(name)
        else:
            removed.discard(name)
    return [_chat_tool(tool) for name, tool in tools.items() if name not in removed]


def _chat_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = tool["input_schema"]
    fields = Fields(tool)
    function = {
        "name": tool["name"],
        "description": tool.get("description"),
        "parameters": schema if "type" in schema else {**schema, "type": "object"},
        "strict": fields.optional_boolean("strict"),
        "defer_loading": fields.optional_boolean("defer_loading"),
    }
    return {"type": "function", "function": function}


def _tool_choice(request: Fields, names: Sequence[str]) -> str | dict[str, Any] | None:
    values = request.optional_object("tool_choice")
    if values is None:
        return None
    choice = Fields(values, "tool_choice")
    kind = choice.choice("type", ("auto", "any", "tool", "none"))
    name = choice.optional_string("name")
    choice.optional_boolean("disable_parallel_tool_use")
    if kind == "any":
        return "required"
    if kind != "tool":
        return kind
    if not name:
        raise RenderError("a name is required when the type is tool", path="tool_choice.name")
    # A name that no tool has is not refused here, unlike in a chat request.
    return {"type": "function", "function": {"name": name}} if name in names else "required"


def _effort(request: Fields, max_tokens: int, disabled: str) -> str | None:
    effort: str | None = None
    config = request.optional_object("output_config")
    if config is not None:
        effort = Fields(config, "output_config").optional_choice("effort", _EFFORTS)
    values = request.optional_object("thinking")
    if values is None:
        return effort
    thinking = Fields(values, "thinking")
    kind = thinking.choice("type", ("enabled", "disabled", "adaptive"))
    if kind == "enabled":
        budget = thinking.integer("budget_tokens")
        if budget < 1024:
            raise RenderError("must be at least 1024", path="thinking.budget_tokens")
        transfer = request.optional_object("kv_transfer_params") or {}
        if budget >= max_tokens and not transfer.get("do_remote_decode"):
            raise RenderError("must be less than max_tokens", path="thinking.budget_tokens")
    return disabled if kind == "disabled" else effort
