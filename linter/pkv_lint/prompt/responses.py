"""Bodies of the OpenAI Responses API (`/v1/responses`) as chat bodies that render to the same prompt.

The rules are those of vLLM's `entrypoints/openai/responses`: `protocol.py` for what is refused, `utils.py` for the
conversion, and of the openai package's types for the shape of items.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.fields import Fields
from pkv_lint.prompt.messages import join
from pkv_lint.prompt.serialise import json_text

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_STATUSES = ("in_progress", "completed", "incomplete")
_UNFINISHED = ("in_progress", "incomplete")
_PASSED_ON = ("model", "temperature", "top_p", "top_k", "stream", "cache_salt", "kv_transfer_params", "user", "seed")
# Tools that the server accepts but never shows to the model (openai's `Tool`).
_HIDDEN_TOOLS = (
    "apply_patch",
    "code_interpreter",
    "computer",
    "computer_use_preview",
    "file_search",
    "image_generation",
    "local_shell",
    "mcp",
    "programmatic_tool_calling",
    "shell",
    "tool_search",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
)

# Tools that a choice can name by their type alone (openai's `ToolChoice`).
_CHOOSABLE_TYPES = (
    "allowed_tools",
    "apply_patch",
    "code_interpreter",
    "computer",
    "computer_use",
    "computer_use_preview",
    "file_search",
    "image_generation",
    "mcp",
    "programmatic_tool_calling",
    "shell",
    "web_search_preview",
    "web_search_preview_2025_03_11",
)


def looks_like(body: Mapping[str, Any]) -> bool:
    """Whether the body is one for the Responses API: it has `input` in place of `messages`."""
    return "input" in body and "messages" not in body


def to_chat(body: dict[str, Any]) -> dict[str, Any]:
    """The chat-completions body for a Responses body. Strings are passed on as the same objects.

    Raises RenderError, with a path in the Responses body, where the server would answer 400. A `previous_response_id`
    is refused as well: what stands before is known to the server alone.
    """
    request = checked(body)
    chat: dict[str, Any] = {name: body[name] for name in _PASSED_ON if name in body}
    items = input_items(request)
    chat["messages"] = [*_instructions(request), *_messages(items)]
    # Left at its default by this API, so that a template with a BOS of its own gets two.
    chat["add_special_tokens"] = True
    if _continues(items):
        chat["add_generation_prompt"] = False
        chat["continue_final_message"] = True
    chat |= limits(request)
    if (effort := reasoning_effort(request)) is not None:
        chat["reasoning_effort"] = effort
    kwargs = request.optional_object("chat_template_kwargs")
    declared = declared_tools(request)
    tools = list(_chat_tools(declared))
    tool_choice = checked_tool_choice(request, declared)
    if tools:
        chat["tools"] = tools
        # Unlike a chat request this one needs no tool parser on the server; a null choice does not ask for one either.
        chat["tool_choice"] = "none" if tool_choice == "none" else None
    elif declared:
        # An empty list reaches the template as such here, where a chat request with one is refused.
        kwargs = {"tools": [], **(kwargs or {})}
    if kwargs is not None:
        chat["chat_template_kwargs"] = kwargs
    return chat


def checked(body: Mapping[str, Any]) -> Fields:
    """The body as fields, after the checks of all but its items and tools."""
    request = Fields.of(body, "")
    if request.values.get("prompt") is not None:
        raise RenderError("prompt template is not supported", path="prompt")
    if request.optional_string("previous_response_id") is not None:
        raise RenderError(
            "refers to a conversation stored on the server; send all of it as input", path="previous_response_id"
        )
    background = request.optional_boolean("background")
    if background and not request.values.get("store", True):
        raise RenderError("background can only be used when `store` is true", path="background")
    request.optional_string("model")
    limits(request)
    return request


def limits_of(body: Mapping[str, Any]) -> dict[str, int]:
    """The members of a chat body that limit the length of a Responses body."""
    return limits(checked(body))


def limits(request: Fields) -> dict[str, int]:
    """The members of a chat body that limit its length."""
    members = {}
    if (limit := request.optional_integer("max_output_tokens")) is not None:
        members["max_completion_tokens"] = limit
    if "truncation" in request.values and request.optional_choice("truncation", ("auto", "disabled")) != "disabled":
        members["truncate_prompt_tokens"] = -1
    return members


def reasoning_effort(request: Fields) -> str | None:
    reasoning = request.optional_object("reasoning")
    return None if reasoning is None else Fields(reasoning, "reasoning").optional_choice("effort", _EFFORTS)


def _instructions(request: Fields) -> Iterator[dict[str, Any]]:
    instructions = request.optional_string("instructions")
    if instructions:
        yield {"role": "system", "content": instructions}


def input_items(request: Fields) -> list[Fields]:
    """The items after validation; a plain string is one user message."""
    value = request.values.get("input")
    if isinstance(value, str):
        return [Fields({"role": "user", "content": value}, "input")]
    if isinstance(value, Mapping):
        value = list(value)  # as the server does with all it can iterate over
    if not isinstance(value, list):
        raise RenderError("must be a string or a list of items", path="input")
    items = []
    for index, item in enumerate(value):
        fields = Fields.of(item, f"input[{index}]")
        _check_item(fields)
        items.append(fields)
    return items


def _check_item(item: Fields) -> None:
    kind = item.optional_string("type")
    if kind is None and isinstance(item.values.get("id"), str):
        return  # It passes as an item reference, whose type is optional, with unknown further members.
    match kind:
        case None if "type" in item.values:
            raise RenderError("must be a string", path=item.at("type"))
        case None | "message":
            _check_message(item)
        case "function_call":
            for name in ("call_id", "name", "arguments"):
                item.string(name)
            item.optional_string("namespace")
            item.optional_choice("status", _STATUSES)
        case "custom_tool_call":
            for name in ("call_id", "name", "input"):
                item.string(name)
        case "function_call_output" | "custom_tool_call_output":
            if kind == "custom_tool_call_output":
                item.string("call_id")
            else:
                item.optional_string("call_id")
                item.optional_choice("status", _STATUSES)
            if not isinstance(item.values.get("output"), str):
                _check_parts(item, "output")
        case "reasoning":
            if "id" in item.values:
                item.string("id")
            _check_texts(item, "summary", "summary_text")
            if item.values.get("content") is not None:
                _check_texts(item, "content", "reasoning_text")
            item.optional_string("encrypted_content")
            item.optional_choice("status", _STATUSES)
        case _:
            raise RenderError(f"Unsupported input item type: {kind}", path=item.at("type"))


def _check_message(item: Fields) -> None:
    item.choice("role", ("user", "assistant", "system", "developer"))
    if _is_output_message(item):
        return
    content = item.values.get("content")
    if not isinstance(content, str):
        _check_parts(item, "content")
    elif content and _has_members_of_output_message(item):
        # Of the types that would do pydantic takes the one with most members here, whose content is a list of outputs.
        raise RenderError("must be a list of output_text and refusal parts", path=item.at("content"))


def _has_members_of_output_message(item: Fields) -> bool:
    values = item.values
    return (
        values["role"] == "assistant"
        and values.get("type") == "message"
        and isinstance(values.get("id"), str)
        and values.get("status") in _STATUSES
    )


def _is_output_message(item: Fields) -> bool:
    """Whether an assistant message reads as openai's `ResponseOutputMessage`, after the defaults that vLLM fills in."""
    content = item.values.get("content")
    return (
        item.values.get("type") == "message"
        and item.values["role"] == "assistant"
        and isinstance(content, list)
        and isinstance(item.values.get("id", ""), str)
        and item.values.get("status", "completed") in _STATUSES
        and all(_is_output_part(part) for part in content)
    )


def _is_output_part(part: Any) -> bool:
    if not isinstance(part, Mapping):
        return False
    if part.get("type") == "output_text":
        return isinstance(part.get("text"), str) and isinstance(part.get("annotations", []), list)
    return part.get("type") == "refusal" and isinstance(part.get("refusal"), str)


def _check_parts(item: Fields, key: str) -> None:
    parts = item.optional_list(key)
    if parts is None:
        raise RenderError("must be a string or a list of parts", path=item.at(key))
    for index, value in enumerate(parts):
        part = Fields.of(value, f"{item.at(key)}[{index}]")
        if part.choice("type", ("input_text", "input_image", "input_file")) == "input_text":
            part.string("text")


def _check_texts(item: Fields, key: str, kind: str) -> None:
    texts = item.optional_list(key)
    if texts is None:
        raise RenderError("a list is required", path=item.at(key))
    for index, value in enumerate(texts):
        text = Fields.of(value, f"{item.at(key)}[{index}]")
        text.choice("type", (kind,))
        text.string("text")


def _continues(items: list[Fields]) -> bool:
    """Whether the last item is an unfinished message (`should_continue_final_message`)."""
    if not items:
        return False
    last = items[-1].values
    return last.get("type", "message") in ("message", "reasoning") and last.get("status") in _UNFINISHED


def _messages(items: list[Fields]) -> list[dict[str, Any]]:
    """One message per item, except that calls, reasoning and text of one assistant turn go into one message as long as
    the place for them is free."""
    messages: list[dict[str, Any]] = []
    for item in items:
        values = item.values
        turn = messages[-1] if messages and messages[-1]["role"] == "assistant" else None
        match values.get("type"):
            case "function_call" | "custom_tool_call":
                call = _tool_call(values)
                if turn is None:
                    messages.append({"role": "assistant", "tool_calls": [call]})
                else:
                    turn["tool_calls"] = [*(turn.get("tool_calls") or ()), call]
            case "reasoning":
                _add(messages, turn, "reasoning", _reasoning(item))
            case "function_call_output" | "custom_tool_call_output":
                output = _content(item, "output")
                messages.append({"role": "tool", "content": output, "tool_call_id": values.get("call_id")})
            case _ if "role" not in values:
                raise RenderError(f"Unsupported input item type: {values.get('type')}", path=item.path)
            case _ if values["role"] == "assistant" and (text := _assistant_text(item)) is not None:
                _add(messages, turn, "content", text)
            case _:
                messages.append({**values, **({"content": _content(item, "content")} if "content" in values else {})})
    return messages


def _add(messages: list[dict[str, Any]], turn: dict[str, Any] | None, key: str, text: str) -> None:
    if turn is not None and turn.get(key) is None:
        turn[key] = text
    else:
        messages.append({"role": "assistant", key: text})


def _tool_call(item: Mapping[str, Any]) -> dict[str, Any]:
    if item["type"] == "custom_tool_call":
        name, arguments = item["name"], json_text({"input": item["input"]})
    else:
        namespace, name, arguments = item.get("namespace"), item["name"], item["arguments"]
        name = _flat_name(namespace, name) if namespace else name
    return {"id": item["call_id"], "function": {"name": name, "arguments": arguments}, "type": "function"}


def _flat_name(namespace: str, name: str) -> str:
    return join("", [namespace, "__", name])


def _reasoning(item: Fields) -> str:
    if item.values.get("encrypted_content"):
        raise RenderError("Encrypted content is not supported.", path=item.at("encrypted_content"))
    texts = item.values.get("content") or item.values["summary"]
    return texts[0]["text"] if texts else ""


def _assistant_text(item: Fields) -> str | None:
    """The text of an assistant's message: of its first part alone."""
    content = item.values.get("content")
    if isinstance(content, str):
        # The server takes the empty text of a finished message for an empty list of parts.
        return None if _has_members_of_output_message(item) else content
    if _is_output_message(item) and not (content and content[0]["type"] == "output_text"):
        raise RenderError("the first part of an assistant message must be a text", path=item.at("content"), status=500)
    if isinstance(content, list) and content:
        return Fields.of(content[0], f"{item.at('content')}[0]").optional_string("text")
    return None


def _content(item: Fields, key: str) -> Any:
    """Text and image parts under the names that chat requests have for them."""
    value = item.values.get(key)
    if value == "" and key == "content" and _has_members_of_output_message(item):
        return []
    if not isinstance(value, list):
        return value
    return [_chat_part(part, f"{item.at(key)}[{index}]") for index, part in enumerate(value)]


def _chat_part(part: Any, path: str) -> Any:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "input_text":
        return {**part, "type": "text"}
    if kind == "input_image":
        return {"type": "image_url", "image_url": {"url": part.get("image_url")}}
    if kind == "input_file":
        raise RenderError("Unsupported chat content part type: 'input_file'", path=path)
    return part


def declared_tools(request: Fields) -> list[Fields]:
    """The tools of all types after validation."""
    value = request.values.get("tools", [])
    if not isinstance(value, list):
        raise RenderError("must be a list", path="tools")
    tools = []
    for index, item in enumerate(value):
        tool = Fields.of(item, f"tools[{index}]")
        _check_tool(tool)
        tools.append(tool)
    return tools


def _check_tool(tool: Fields) -> None:
    match tool.choice("type", ("function", "custom", "namespace", *_HIDDEN_TOOLS)):
        case "function":
            _check_function(tool)
        case "custom":
            tool.string("name")
            tool.optional_string("description")
            grammar = tool.optional_object("format")
            if grammar is not None and grammar.get("type") == "grammar":
                raise RenderError("Custom tools with a grammar format are not supported", path=tool.at("format"))
        case "namespace":
            tool.string("name")
            tool.string("description")
            for member in _members(tool):
                if member.choice("type", ("function", "custom")) == "function":
                    _check_function(member)


def _check_function(tool: Fields) -> None:
    tool.string("name")
    tool.optional_string("description")
    tool.optional_object("parameters")
    tool.optional_boolean("strict")
    tool.optional_boolean("defer_loading")


def _members(namespace: Fields) -> list[Fields]:
    members = namespace.optional_list("tools")
    if members is None:
        raise RenderError("a list is required", path=namespace.at("tools"))
    return [Fields.of(member, f"{namespace.at('tools')}[{index}]") for index, member in enumerate(members)]


def _chat_tools(declared: list[Fields]) -> Iterator[dict[str, Any]]:
    """The functions the model is shown: those of namespaces under `namespace__name`, custom tools as functions of one
    string, nothing else (`get_function_tools`)."""
    for tool in declared:
        match tool.values["type"]:
            case "function":
                yield _chat_function(tool, tool.values["name"])
            case "custom":
                schema = {"type": "string", "description": "The freeform text payload for this tool."}
                parameters = {
                    "type": "object",
                    "properties": {"input": schema},
                    "required": ["input"],
                    "additionalProperties": False,
                }
                description = tool.values.get("description")
                function = {"name": tool.values["name"], "description": description, "parameters": parameters}
                yield {"type": "function", "function": function}
            case "namespace":
                for member in _members(tool):
                    if member.values["type"] == "function":
                        yield _chat_function(member, _flat_name(tool.values["name"], member.values["name"]))


def _chat_function(tool: Fields, name: str) -> dict[str, Any]:
    function = {
        "name": name,
        "description": tool.values.get("description"),
        "parameters": tool.values.get("parameters"),
        "strict": tool.optional_boolean("strict"),
        "defer_loading": tool.optional_boolean("defer_loading"),
    }
    return {"type": "function", "function": function}


def checked_tool_choice(request: Fields, declared: list[Fields]) -> Any:
    """The choice, after the checks of `check_tool_usage`; it never shows in the prompt."""
    choice = request.values.get("tool_choice", "auto")
    if isinstance(choice, Mapping):
        if choice.get("type") in ("function", "custom"):
            _check_named_choice(choice.get("name"), declared)
        else:
            _check_typed_choice(Fields(choice, "tool_choice"))
    elif choice not in ("none", "auto", "required"):
        raise RenderError("must be none, auto, required or an object", path="tool_choice")
    elif choice == "required" and not declared:
        raise RenderError("Tool choice 'required' must be specified with 'tools' parameter.", path="tool_choice")
    return choice


def _check_typed_choice(choice: Fields) -> None:
    kind = choice.choice("type", _CHOOSABLE_TYPES)
    if kind == "mcp":
        choice.string("server_label")
    elif kind == "allowed_tools":
        choice.choice("mode", ("auto", "required"))
        for index, tool in enumerate(choice.optional_list("tools") or ()):
            Fields.of(tool, f"tool_choice.tools[{index}]")


def _check_named_choice(name: Any, declared: list[Fields]) -> None:
    exact: set[str] = set()
    local: list[str] = []
    for tool in declared:
        if tool.values["type"] == "namespace":
            members = [member.values.get("name") for member in _members(tool)]
            exact.update(_flat_name(tool.values["name"], member) for member in members if isinstance(member, str))
            local += [member for member in members if isinstance(member, str)]
        elif isinstance(tool.values.get("name"), str):
            exact.add(tool.values["name"])
    if name in exact:
        return
    if local.count(name) > 1:
        raise RenderError(f"Tool choice {name!r} is ambiguous: more than one namespace has it.", path="tool_choice")
    if name not in local:
        raise RenderError("Tool choice 'function' not found in 'tools' parameter.", path="tool_choice")
