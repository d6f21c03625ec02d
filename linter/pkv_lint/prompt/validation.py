"""Judge a chat-completions body as vLLM does before it renders anything.

`validated` answers for the usual shapes by looking at them and asks `schema.py`, which builds pydantic models, for the
rest; both give the same (a property test holds them together). Order and texts of the checks follow the validators of
`entrypoints/openai/chat_completion/protocol.py:ChatCompletionRequest`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pkv_lint.prompt.errors import RenderError

SCALARS: Mapping[str, tuple[type, ...]] = {
    "model": (str,),
    "frequency_penalty": (float, int),
    "logprobs": (bool,),
    "top_logprobs": (int,),
    "max_tokens": (int,),
    "max_completion_tokens": (int,),
    "n": (int,),
    "presence_penalty": (float, int),
    "seed": (int,),
    "stream": (bool,),
    "temperature": (float, int),
    "top_p": (float, int),
    "parallel_tool_calls": (bool,),
    "user": (str,),
    "chat_template": (str,),
    "session_id": (str,),
    "cache_salt": (str,),
    "truncate_prompt_tokens": (),
    "prompt_logprobs": (int,),
    "return_token_ids": (bool,),
    "return_tokens_as_token_ids": (bool,),
    "return_token_offsets": (bool,),
    "return_prompt_text": (bool,),
    "watermarking": (bool,),
    "top_k": (int,),
    "min_p": (float, int),
    "repetition_penalty": (float, int),
}
"""Optional fields whose value may also be null; a value of another type is left to pydantic, which may coerce it."""

FLAGS = (
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "echo",
    "ignore_eos",
    "include_reasoning",
)
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
NULLABLE = (
    "logit_bias",
    "stop_token_ids",
    "truncation_side",
    "logprob_token_ids",
    "allowed_token_ids",
    "media_io_kwargs",
    "mm_processor_kwargs",
    "kv_transfer_params",
    "ec_transfer_params",
    "vllm_xargs",
    "repetition_detection",
    "stream_interval",
    "thinking_token_budget",
)
"""Optional fields that are seldom sent; what is not null is left to pydantic."""
SELDOM = (
    "use_beam_search",
    "length_penalty",
    "include_stop_str_in_output",
    "min_tokens",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "bad_words",
    "priority",
    "request_id",
    "routed_experts_prompt_start",
    "mm_payload",
)
"""Fields that are seldom sent and may not be null."""
CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
"""Members of `structured_outputs` that constrain the answer."""
SALT_LENGTH = 128


def validated(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body as vLLM's validation leaves it: `reasoning_content` renamed, `tool_choice` set where tools are given.

    Raises RenderError where the server answers 400.
    """
    body = dict(body)
    check_system_content(body)
    if body.get("continue_final_message") and body.get("add_generation_prompt"):
        raise refused("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
    check_tool_use(body)
    check_structured_outputs(body)
    check_logprobs(body)
    if body.get("stream_options") and not body.get("stream"):
        raise refused("Stream options can only be defined when `stream=True`.", "stream_options")
    wanted = body.get("response_format")
    if isinstance(wanted, dict) and wanted.get("type") == "json_schema" and wanted.get("json_schema") is None:
        raise refused(
            "When response_format type is 'json_schema', the 'json_schema' field must be provided.", "response_format"
        )
    if isinstance(body.get("messages"), list):
        body["messages"] = [rename_reasoning(message) for message in body["messages"]]
    check_cache_salt(body.get("cache_salt"))
    if is_usual(body):
        body["messages"] = [with_typed_calls(message) for message in body["messages"]]
        return body
    from pkv_lint.prompt import schema

    return schema.check(body)


def refused(message: str, parameter: str | None = None, value: object = None) -> RenderError:
    """A refusal in the words of vLLM's VLLMValidationError."""
    extras = [f"parameter={parameter}"] if parameter is not None else []
    if value is not None:
        extras.append(f"value={value}")
    path = parameter if parameter is not None and "." not in parameter else None
    return RenderError(f"{message} ({', '.join(extras)})" if extras else message, path=path)


def check_system_content(body: Mapping[str, Any]) -> None:
    # vLLM walks the messages before they are validated, so an object without iteration fails here already.
    if isinstance(body.get("messages", []), (int, float, type(None))):
        raise RenderError("`messages` must be a list", path="messages")


def check_tool_use(body: dict[str, Any]) -> None:
    """`check_tool_usage`: also sets the default `tool_choice` of a request with tools."""
    tools = body.get("tools")
    if tools == []:
        raise refused(
            "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.", "tools"
        )
    if "tool_choice" not in body and tools:
        body["tool_choice"] = "auto"
    choice = body.get("tool_choice")
    if choice is None or choice == "none":
        return
    if tools is None:
        raise refused("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if choice in ("auto", "required"):
        return
    if not isinstance(choice, dict):
        raise refused(
            f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or "required" are supported.',
            "tool_choice",
        )
    usage = 'Correct usage: `{"type": "function", "function": {"name": "my_function"}}`'
    function = choice.get("function")
    if not isinstance(function, dict):
        raise refused(f"Invalid value for `function`: `{function}` in `tool_choice`! {usage}", "tool_choice.function")
    if "name" not in function:
        raise refused(f"Expected field `name` in `function` in `tool_choice`! {usage}", "tool_choice.function.name")
    name = function["name"]
    if not isinstance(name, str) or not name:
        raise refused(f"Invalid `name` in `function`: `{name}` in `tool_choice`! {usage}", "tool_choice.function.name")
    try:
        known = any(tool["function"]["name"] == name for tool in tools)
    except (TypeError, KeyError) as error:
        # vLLM forgets that a member may be missing: a KeyError there is a failure of the server.
        status = 500 if isinstance(error, KeyError) else 400
        raise RenderError("a tool without `function.name`", path="tools", status=status) from None
    if not known:
        raise refused("The tool specified in `tool_choice` does not match any of the specified `tools`", "tool_choice")


def check_structured_outputs(body: Mapping[str, Any]) -> None:
    outputs = body.get("structured_outputs")
    if outputs is None:
        return
    if not isinstance(outputs, dict):
        raise RenderError("`structured_outputs` must be an object", path="structured_outputs", status=500)
    count = sum(outputs.get(kind) is not None for kind in ("json", "regex", "choice"))
    if count > 1:
        raise refused("You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').")
    if count and body.get("tool_choice", "none") not in ("none", "auto", "required"):
        raise refused("You can only either use constraints for structured outputs or tools, not both.")
    if sum(outputs.get(kind) is not None for kind in CONSTRAINTS) != 1:
        raise RenderError("`structured_outputs` needs exactly one constraint", path="structured_outputs")


def check_logprobs(body: Mapping[str, Any]) -> None:
    if body.get("logprob_token_ids"):
        if body.get("use_beam_search"):
            raise refused("`logprob_token_ids` is not supported with beam search.", "logprob_token_ids")
        if not body.get("logprobs"):
            raise refused("when using `logprob_token_ids`, `logprobs` must be set to true.", "logprob_token_ids")
    for name in ("prompt_logprobs", "top_logprobs"):
        value = body.get(name)
        if value is not None and not isinstance(value, (int, float)):
            raise refused(f"`{name}` must be an integer.", name, value)
        if value is not None and value < 0 and value != -1:
            raise refused(f"`{name}` must be a positive value or -1.", name, value)
    if body.get("stream") and (body.get("prompt_logprobs") or 0) != 0:
        raise refused("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs")
    if (body.get("top_logprobs") or 0) != 0 and not body.get("logprobs"):
        raise refused("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")


def check_cache_salt(salt: object) -> None:
    if salt is None:
        return
    if not isinstance(salt, str) or not salt:
        raise refused("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")
    if len(salt) > SALT_LENGTH or any(character in salt for character in "@/\\\0"):
        raise refused(
            "Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\\\', or NUL.",
            "cache_salt",
        )


def rename_reasoning(message: Any) -> Any:
    """`reasoning_content`, the older name, becomes `reasoning` unless that is there too; tool_calls become a list."""
    if not isinstance(message, dict):
        return message
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, (list, str, dict)):
        raise RenderError("`tool_calls` must be a list", path="messages")
    if "reasoning_content" not in message and (calls is None or isinstance(calls, list)):
        return message
    message = dict(message)
    if calls is not None:
        message["tool_calls"] = list(calls)
    older = message.pop("reasoning_content", None)
    if older is not None and message.get("reasoning") is None:
        message["reasoning"] = older
    return message


def with_typed_calls(message: dict[str, Any]) -> dict[str, Any]:
    """The message with the members of its calls in the order of OpenAI's TypedDict, as pydantic leaves them."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    typed = [
        {**ordered(call, ("id", "function", "type")), "function": ordered(call["function"], ("arguments", "name"))}
        for call in calls
    ]
    return {**message, "tool_calls": typed}


def ordered(members: Mapping[str, Any], first: Sequence[str]) -> dict[str, Any]:
    given = dict(members)
    return {**{name: given.pop(name) for name in first if name in given}, **given}


def is_usual(body: Mapping[str, Any]) -> bool:
    """Whether the body is one of the shapes that pydantic accepts without changing anything."""
    messages = body.get("messages")
    if type(messages) is not list or not all(map(is_usual_message, messages)):
        return False
    for name, value in body.items():
        types = SCALARS.get(name)
        if types is not None:
            if value is not None and type(value) not in types:
                return False
        elif name in FLAGS:
            if type(value) is not bool:
                return False
        elif name in USUAL and not USUAL[name](value):
            return False
    seed = body.get("seed")
    return seed is None or -(2**63) <= seed < 2**63


def is_usual_tool(tool: Any) -> bool:
    if type(tool) is not dict or tool.get("type", "function") != "function" or tool.get("defer_loading") is not None:
        return False
    function = tool.get("function")
    return (
        type(function) is dict
        and type(function.get("name")) is str
        and type(function.get("description")) in (str, type(None))
        and type(function.get("parameters")) in (dict, type(None))
        and type(function.get("strict")) in (bool, type(None))
        and function.get("defer_loading") is None
    )


def is_usual_stop(value: Any) -> bool:
    return type(value) is str or (type(value) is list and all(type(item) is str for item in value))


def is_usual_stream(value: Any) -> bool:
    return type(value) is dict and all(
        value.get(name) is None or type(value[name]) is bool for name in ("include_usage", "continuous_usage_stats")
    )


def is_usual_format(value: Any) -> bool:
    return type(value) is dict and type(value.get("type")) is str and value["type"] in ("text", "json_object")


def is_usual_documents(value: Any) -> bool:
    return type(value) is list and all(
        type(document) is dict and all(type(text) is str for text in document.values()) for document in value
    )


def optional(usual: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or usual(value)


USUAL: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(NULLABLE, lambda value: value is None),
    **dict.fromkeys(SELDOM, lambda value: False),
    "response_format": optional(is_usual_format),
    "stop": optional(is_usual_stop),
    "stream_options": optional(is_usual_stream),
    "tools": optional(lambda value: type(value) is list and all(map(is_usual_tool, value))),
    "tool_choice": optional(lambda value: type(value) is str and value in ("none", "auto", "required")),
    "reasoning_effort": optional(lambda value: type(value) is str and value in EFFORTS),
    "documents": optional(is_usual_documents),
    "chat_template_kwargs": optional(lambda value: type(value) is dict),
}

# Per role the members that decide something, with the types at which both OpenAI's type and vLLM's lax one agree.
TEXT = (str,)
OPTIONAL_TEXT = (str, type(None))
USUAL_MEMBERS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "system": {"name": TEXT},
    "user": {"name": TEXT},
    "developer": {"name": TEXT},
    "assistant": {"name": TEXT, "reasoning": OPTIONAL_TEXT, "refusal": OPTIONAL_TEXT},
    "tool": {"name": TEXT, "tool_call_id": TEXT},
}
DECISIVE = frozenset(
    {"name", "tool_call_id", "tool_calls", "reasoning", "refusal", "tools", "task", "audio", "function_call"}
)


def is_usual_message(message: Any) -> bool:
    if type(message) is not dict:
        return False
    role = message.get("role")
    members = USUAL_MEMBERS.get(role) if type(role) is str else None
    if members is None or (role == "tool" and "tool_call_id" not in message):
        return False
    for name, value in message.items():
        if name not in DECISIVE:
            continue
        if name == "tool_calls":
            if role != "assistant" or type(value) is not list or not all(map(is_usual_call, value)):
                return False
        elif name in members:
            if type(value) not in members[name]:
                return False
        elif not (role == "assistant" and value is None and name in ("audio", "function_call")):
            return False
    content = message.get("content")
    if type(content) is str:
        return True
    if content is None:
        return role == "assistant"
    return type(content) is list and all(map(is_usual_part, content))


def is_usual_part(part: Any) -> bool:
    return (
        type(part) is dict
        and part.get("type") == "text"
        and type(part.get("text")) is str
        and part.keys() <= {"type", "text", "cache_control"}
    )


def is_usual_call(call: Any) -> bool:
    if type(call) is not dict or type(call.get("id")) is not str or call.get("type") != "function" or "custom" in call:
        return False
    function = call.get("function")
    return type(function) is dict and type(function.get("name")) is str and type(function.get("arguments")) is str
