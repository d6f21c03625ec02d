"""The conversation as a chat template sees it, made from validated messages.

Follows `renderers/chat_utils.py` (`_parse_chat_message_content`, `_postprocess_messages`) and, for the developer role,
`renderers/hf.py`. Works on plain strings and on traced ones (`provenance.py`) alike: a traced conversation remembers
which character of which message each of its characters is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pkv_lint.prompt.errors import RenderError

ContentFormat = Literal["string", "openai"]
Message = dict[str, Any]

BILLING_HEADER = "x-anthropic-billing-header"
TEXT_PARTS: Mapping[str, str] = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""Part types that are text, and the member that holds it."""
MEDIA_PARTS: Mapping[str, str] = {
    "image_url": "image",
    "input_image": "image",
    "image_pil": "image",
    "image_embeds": "image",
    "audio_url": "audio",
    "input_audio": "audio",
    "audio_embeds": "audio",
    "video_url": "video",
    "video_embeds": "video",
}
"""Part types that are media, and what a template sees of them."""
KNOWN_PART_MEMBERS = frozenset(
    [
        "audio_embeds",
        "audio_url",
        "closed",
        "data",
        "file",
        "image_embeds",
        "image_pil",
        "image_url",
        "input_audio",
        "name",
        "prompt_cache_breakpoint",
        "refusal",
        "text",
        "thinking",
        "type",
        "uuid",
        "video_embeds",
        "video_url",
    ]
)
SUPPORTED_PARTS = sorted([*TEXT_PARTS, *MEDIA_PARTS, "prompt_embeds", "tool_reference"])


def conversation(
    messages: Sequence[Mapping[str, Any]],
    content_format: ContentFormat,
    *,
    text_model: str | None,
    interleave: bool = False,
) -> list[Message]:
    """The messages in the members and order that vLLM hands to a template.

    `text_model` is the name of a model that takes text alone (None: it takes images, audio or video too); where strings
    are wanted, `interleave` leaves the placeholder of an image between the texts instead of in front
    (`--interleave-mm-strings`). Raises RenderError for media sent to such a model and for everything else that vLLM
    refuses at this point.
    """
    shape = Shape(content_format, text_model, interleave)
    return [template_message(message, shape, f"messages[{i}]") for i, message in enumerate(messages)]


@dataclass(frozen=True, slots=True)
class Shape:
    """What content is made to look like, see `conversation`."""

    content_format: ContentFormat
    text_model: str | None
    interleave: bool


def template_message(message: Mapping[str, Any], shape: Shape, path: str) -> Message:
    role = message["role"]
    content = message.get("content")
    parts: Sequence[Any] = [] if content is None else [text_part(content)] if isinstance(content, str) else content
    if role == "system":
        parts = without_billing_header(parts)
    shaped: Message = {"role": role, "content": shape_content(parts, role, shape, path)}
    if role == "assistant":
        calls = message.get("tool_calls")
        if calls:
            shaped["tool_calls"] = [tool_call(call, f"{path}.tool_calls[{i}]") for i, call in enumerate(calls)]
        reasoning = message.get("reasoning")
        if reasoning is not None:
            shaped["reasoning"] = shaped["reasoning_content"] = reasoning
    elif role == "tool" and "tool_call_id" in message:
        shaped["tool_call_id"] = message["tool_call_id"]
    for name in ("name", "task"):
        if isinstance(message.get(name), str):
            shaped[name] = message[name]
    if role == "developer":
        shaped["tools"] = message.get("tools")
    return shaped


def text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def without_billing_header(parts: Iterable[Any]) -> list[Any]:
    """System text without the line that Claude Code puts first (vLLM's `_strip_claude_code_billing_header`)."""
    kept = []
    for part in parts:
        if isinstance(part, str):
            text: Any = part
        else:
            text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not (isinstance(text, str) and text.startswith(BILLING_HEADER)):
            kept.append(part)
            continue
        rest = text.partition("\n")[2]
        if rest:
            kept.append(rest if isinstance(part, str) else {**part, "text": rest})
    return kept


def shape_content(parts: Iterable[Any], role: str, shape: Shape, path: str) -> Any:
    wrapped = shape.content_format == "openai"
    shaped: list[Any] = []
    placeholders: list[Any] = []
    for index, part in enumerate(parts):
        kind, value = shape_part(part, wrapped, shape.text_model, f"{path}.content[{index}]")
        if kind == "media" and not wrapped and not shape.interleave:
            placeholders.append(value)
        elif value:  # an empty text is dropped here, an object never is
            shaped.append(value)
    if not wrapped:
        return join("\n", [*placeholders, *shaped], f"{path}.content")
    if role == "tool" and all(item["type"] == "text" for item in shaped):
        return join("\n", [item["text"] for item in shaped], f"{path}.content")
    return shaped


def shape_part(part: Any, wrapped: bool, text_model: str | None, path: str) -> tuple[Literal["text", "media"], Any]:
    """One content part: an object when `wrapped`, else a string; None when it vanishes."""
    if isinstance(part, str):
        return "text", text_part(part) if wrapped else part
    kind = part_type(part, path)
    if kind in TEXT_PARTS:
        text = part.get(TEXT_PARTS[kind])
        if text is None and kind in ("text", "refusal"):
            return "text", None
        return "text", {**text_part(text), **extras(part)} if wrapped else text
    if kind == "tool_reference":
        return "text", {"type": "tool_reference", "name": part.get("name")} if wrapped else part.get("name")
    if kind == "prompt_embeds":
        raise RenderError(
            "You must set `--enable-prompt-embeds` to input `prompt_embeds` (parameter=prompt_embeds)", path=path
        )
    if text_model is not None:
        embeddings = kind.endswith("_embeds")
        raise RenderError(
            "The model is not multimodal." if embeddings else f"{text_model} is not a multimodal model", path=path
        )
    modality = MEDIA_PARTS[kind]
    if not has_media(part, kind):
        raise RenderError(f"the {kind} part has no {modality}, and no uuid of one that was sent before", path=path)
    return "media", {"type": modality, **extras(part)} if wrapped else f"<{modality}>"


def has_media(part: Mapping[str, Any], kind: str) -> bool:
    """Whether a part brings its data, or names them; the engine has nothing to compute otherwise."""
    value = part.get("image_url" if kind == "input_image" else kind)
    if kind.endswith("_url") and isinstance(value, dict):
        value = value.get("url")
    return bool(value) or part.get("uuid") is not None


def part_type(part: Mapping[str, Any], path: str) -> str:
    kind = part.get("type")
    if isinstance(kind, str) and part.get("uuid") is None:
        if kind in TEXT_PARTS or kind in MEDIA_PARTS or kind in ("tool_reference", "prompt_embeds"):
            return kind
    elif kind is None or part.get("uuid") is not None:
        for member in (*MEDIA_PARTS, "tool_reference", "prompt_embeds"):
            if member in part:
                return member
        raise RenderError("Missing 'type' field in multimodal part. (parameter=type)", path=path)
    else:
        raise RenderError("Invalid 'type' field in multimodal part. (parameter=type)", path=path)
    raise RenderError(
        f"Unsupported chat content part type: {kind!r}. Supported types: {', '.join(SUPPORTED_PARTS)}. "
        f"(parameter=type, value={kind})",
        path=path,
    )


def extras(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in KNOWN_PART_MEMBERS}


def tool_call(call: Mapping[str, Any], path: str) -> dict[str, Any]:
    """A call with its arguments as an object; its members stay in their order."""
    function = call.get("function")
    if call.get("type", "function") != "function" or not isinstance(function, dict):
        raise RenderError(
            "chat completions only support assistant tool_calls of type 'function'. (parameter=tool_calls)", path=path
        )
    parsed = arguments(function.get("arguments"), f"{path}.function.arguments")
    return {**call, "function": {**function, "arguments": parsed}}


def arguments(text: Any, path: str) -> dict[str, Any]:
    """The arguments of a call as an object; what is not a JSON object becomes an empty one, as vLLM does."""
    if not text:
        return {}
    if isinstance(text, dict):
        return text
    try:
        value = parse(text)
    except json.JSONDecodeError:
        return {}
    except (ValueError, RecursionError) as error:
        raise RenderError(str(error), path=path) from None
    return value if isinstance(value, dict) else {}


def parse(text: str) -> Any:
    if type(text) is str:
        return json.loads(text)
    from pkv_lint.prompt.traced import parse_traced_json

    return parse_traced_json(text)


def join(separator: str, parts: Sequence[str], path: str | None = None) -> str:
    """`separator.join(parts)`; raises RenderError blaming `path` for what is no string, which validation lets through
    beside parts of a type that it knows."""
    if all(type(part) is str for part in parts):
        return separator.join(parts)
    for index, part in enumerate(parts):
        if not isinstance(part, str):
            raise RenderError(f"sequence item {index}: expected str instance, {type(part).__name__} found", path=path)
    from pkv_lint.prompt.traced import join as join_traced

    return join_traced(separator, parts)


def without_developer(messages: Sequence[Message]) -> list[Message]:
    """What a template that knows no developer role gets: system messages instead, and all of those as one in front.

    `_convert_developer_to_system` and `_consolidate_system_messages` of vLLM; called only when there is a developer
    message.
    """
    systems = []
    others = []
    scattered = False
    for index, message in enumerate(messages):
        if message["role"] not in ("developer", "system"):
            others.append(message)
            continue
        scattered = scattered or index > 0
        content = message.get("content", "")
        if isinstance(content, list):
            content = join("\n", [part["text"] for part in content if "text" in part])
        if content:
            systems.append(content)
    if scattered:
        return [{"role": "system", "content": join("\n\n", systems)}, *others]
    return [
        {**{name: value for name, value in message.items() if name != "tools"}, "role": "system"}
        if message["role"] == "developer"
        else message
        for message in messages
    ]
