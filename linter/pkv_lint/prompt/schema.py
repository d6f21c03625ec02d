"""The types a chat-completions body is validated against, as vLLM 0.33 declares them.

vLLM validates messages with pydantic against a union of the OpenAI client's TypedDicts and a lax type of its own
(`renderers/chat_utils.py:ChatCompletionMessageParam`). Which member of the union wins, and that lists typed `Iterable`
are checked only when they are read, decides what is refused, so odd shapes are judged by pydantic itself. This module
costs about 0.2 s to import and is loaded only for bodies that `validation.py` does not recognise at sight.

Field sets follow the openai client 3.57 and `entrypoints/openai/chat_completion/protocol.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Required

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import TypedDict

from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.source import format_path


class CacheBreakpoint(TypedDict, total=False):
    mode: Required[Literal["explicit"]]
    ttl: Literal["30m", "12h"]


class TextPart(TypedDict, total=False):
    text: Required[str]
    type: Required[Literal["text"]]
    prompt_cache_breakpoint: CacheBreakpoint


class ImageURL(TypedDict, total=False):
    url: Required[str]
    detail: Literal["auto", "low", "high", "original"]


class ImagePart(TypedDict, total=False):
    image_url: Required[ImageURL]
    type: Required[Literal["image_url"]]
    prompt_cache_breakpoint: CacheBreakpoint


class InputAudio(TypedDict, total=False):
    data: Required[str]
    format: Required[Literal["wav", "mp3"]]


class InputAudioPart(TypedDict, total=False):
    input_audio: Required[InputAudio]
    type: Required[Literal["input_audio"]]
    prompt_cache_breakpoint: CacheBreakpoint


class FileFile(TypedDict, total=False):
    file_data: str
    file_id: str
    filename: str


class FilePart(TypedDict, total=False):
    file: Required[FileFile]
    type: Required[Literal["file"]]
    prompt_cache_breakpoint: CacheBreakpoint


class RefusalPart(TypedDict, total=False):
    refusal: Required[str]
    type: Required[Literal["refusal"]]


class URL(TypedDict, total=False):
    url: Required[str]


class AudioPart(TypedDict, total=False):
    audio_url: Required[URL]
    type: Required[Literal["audio_url"]]


class VideoPart(TypedDict, total=False):
    video_url: Required[URL]
    type: Required[Literal["video_url"]]


Embeds = str | dict[str, str | list[int | float]]


class ImageEmbedsPart(TypedDict, total=False):
    image_embeds: Embeds | None
    type: Required[Literal["image_embeds"]]
    uuid: str | None


class AudioEmbedsPart(TypedDict, total=False):
    audio_embeds: Embeds | None
    type: Required[Literal["audio_embeds"]]
    uuid: str | None


class VideoEmbedsPart(TypedDict, total=False):
    video_embeds: Embeds | None
    type: Required[Literal["video_embeds"]]
    uuid: str | None


class PromptEmbedsPart(TypedDict, total=False):
    data: Required[str]
    type: Required[Literal["prompt_embeds"]]


class PILImagePart(TypedDict, total=False):
    image_pil: None
    uuid: str | None


class SimpleImagePart(TypedDict, total=False):
    image_url: str | None
    uuid: str | None


class SimpleAudioPart(TypedDict, total=False):
    audio_url: str | None


class SimpleVideoPart(TypedDict, total=False):
    video_url: str | None
    uuid: str | None


class ThinkingPart(TypedDict, total=False):
    thinking: Required[str]
    closed: bool
    type: Required[Literal["thinking"]]


class ToolReferencePart(TypedDict, total=False):
    name: str
    type: Literal["tool_reference"]


OpenAIPart = TextPart | ImagePart | InputAudioPart | FilePart

# The order matters to pydantic's smart union among members that fit equally well.
Part = (
    OpenAIPart
    | AudioPart
    | VideoPart
    | RefusalPart
    | PILImagePart
    | SimpleImagePart
    | ImageEmbedsPart
    | AudioEmbedsPart
    | VideoEmbedsPart
    | PromptEmbedsPart
    | SimpleAudioPart
    | SimpleVideoPart
    | ToolReferencePart
    | str
    | ThinkingPart
)


class Function(TypedDict, total=False):
    arguments: Required[str]
    name: Required[str]


class FunctionToolCall(TypedDict, total=False):
    id: Required[str]
    function: Required[Function]
    type: Required[Literal["function"]]


class Custom(TypedDict, total=False):
    input: Required[str]
    name: Required[str]


class CustomToolCall(TypedDict, total=False):
    id: Required[str]
    custom: Required[Custom]
    type: Required[Literal["custom"]]


class FunctionDefinition(TypedDict, total=False):
    name: Required[str]
    description: str
    parameters: dict[str, object]
    strict: bool | None


class FunctionTool(TypedDict, total=False):
    function: Required[FunctionDefinition]
    type: Required[Literal["function"]]


class DeveloperMessage(TypedDict, total=False):
    content: Required[str | Iterable[TextPart]]
    role: Required[Literal["developer"]]
    name: str


class SystemMessage(TypedDict, total=False):
    content: Required[str | Iterable[TextPart]]
    role: Required[Literal["system"]]
    name: str


class UserMessage(TypedDict, total=False):
    content: Required[str | Iterable[OpenAIPart]]
    role: Required[Literal["user"]]
    name: str


class Audio(TypedDict, total=False):
    id: Required[str]


class FunctionCall(TypedDict, total=False):
    arguments: Required[str]
    name: Required[str]


class AssistantMessage(TypedDict, total=False):
    role: Required[Literal["assistant"]]
    audio: Audio | None
    content: str | Iterable[TextPart | RefusalPart] | None
    function_call: FunctionCall | None
    name: str
    refusal: str | None
    tool_calls: Iterable[FunctionToolCall | CustomToolCall]


class ToolMessage(TypedDict, total=False):
    content: Required[str | Iterable[TextPart]]
    role: Required[Literal["tool"]]
    tool_call_id: Required[str]


class FunctionMessage(TypedDict, total=False):
    content: Required[str | None]
    name: Required[str]
    role: Required[Literal["function"]]


class CustomMessage(TypedDict, total=False):
    """vLLM's own lax type: any role, any content part."""

    role: Required[str]
    content: str | list[Part]
    name: str
    tool_call_id: str | None
    tool_calls: list[FunctionToolCall] | None
    reasoning: str | None
    tools: list[FunctionTool] | None
    task: str | None


Message = (
    DeveloperMessage | SystemMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage | CustomMessage
)


class Model(BaseModel):
    model_config = ConfigDict(extra="allow")


class ToolFunction(Model):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class Tool(Model):
    type: Literal["function"] = "function"
    function: ToolFunction
    defer_loading: bool | None = None


class NamedFunction(Model):
    name: str


class NamedToolChoice(Model):
    function: NamedFunction
    type: Literal["function"] = "function"


class StreamOptions(Model):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class JsonSchema(Model):
    name: str
    description: str | None = None
    # vLLM calls the member `schema`, which pydantic keeps for itself.
    definition: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Model):
    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchema | None = None


class RepetitionDetection(Model):
    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0


Number = str | int | float
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


class ChatBody(Model):
    """The fields of a chat-completions body that vLLM types; others are accepted as they are."""

    messages: list[Message]
    model: str | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = False
    top_logprobs: int | None = 0
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = 1
    presence_penalty: float | None = None
    response_format: ResponseFormat | None = None
    seed: Int64 | None = None
    stop: str | list[str] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedToolChoice | None = "none"
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    thinking_token_budget: Annotated[int, Field(ge=-1, strict=True)] | None = None
    include_reasoning: bool = True
    parallel_tool_calls: bool | None = True
    user: str | None = None
    use_beam_search: bool = False
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    watermarking: bool | None = None
    length_penalty: float = 1.0
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=2**63 - 1)] | None = None
    truncation_side: Literal["left", "right"] | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = Field(default_factory=list)
    echo: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    documents: list[dict[str, str]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    media_io_kwargs: dict[str, dict[str, Any]] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    priority: Int64 = 0
    request_id: str = ""
    session_id: str | None = None
    cache_salt: str | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    routed_experts_prompt_start: Annotated[int, Field(ge=0)] = 0
    return_token_offsets: bool | None = False
    return_prompt_text: bool | None = None
    mm_payload: Literal["tensors", "none"] = "tensors"
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    vllm_xargs: dict[str, Number | list[Number]] | None = None
    repetition_detection: RepetitionDetection | None = None
    stream_interval: Annotated[int, Field(ge=1)] | None = None


def check(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body as pydantic leaves it: scalars coerced, messages in the key order of the type that won, lists read.

    Raises RenderError with the first thing that is wrong and its JSON path.
    """
    try:
        model = ChatBody.model_validate(dict(body))
    except ValidationError as error:
        raise refusal(error, body, ()) from None
    data = {name: getattr(model, name) for name in model.model_fields_set if name in ChatBody.model_fields}
    data = {name: value for name, value in data.items() if not isinstance(value, Model)}
    data["messages"] = [
        read_lazy_lists(message, body, ("messages", index)) for index, message in enumerate(model.messages)
    ]
    if model.tools is not None:
        data["tools"] = [tool.model_dump() for tool in model.tools]
    if isinstance(model.tool_choice, NamedToolChoice):
        data["tool_choice"] = model.tool_choice.model_dump()
    return {**body, **data}


def read_lazy_lists(
    message: Mapping[str, Any], body: Mapping[str, Any], place: tuple[str | int, ...]
) -> dict[str, Any]:
    """Read what pydantic left as iterators (fields typed Iterable), which is when it checks their items."""
    read = dict(message)
    for name in ("tool_calls", "content"):
        value = read.get(name)
        if value is None or isinstance(value, (str, list)):
            continue
        try:
            read[name] = list(value)
        except ValidationError as error:
            raise refusal(error, body, (*place, name)) from None
    return read


def refusal(error: ValidationError, body: Mapping[str, Any], place: tuple[str | int, ...]) -> RenderError:
    """One line for what is wrong. A union complains once per member: what counts is the deepest complaint of a member
    that has the right `type` or `role`; where none has, these are what is wrong."""
    items = error.errors(include_url=False)
    other = {item["loc"][:-1] for item in items if is_wrong_tag(item)}
    meant = [item for item in items if not any(item["loc"][: len(member)] == member for member in other)]
    first = max(meant or items, key=lambda item: (len(item["loc"]), is_wrong_tag(item)))
    message = first["msg"]
    if is_wrong_tag(first):
        tags = [
            item["ctx"]["expected"] for item in items if is_wrong_tag(item) and len(item["loc"]) == len(first["loc"])
        ]
        message = f"Input should be one of {', '.join(dict.fromkeys(tags))}"
    steps: list[str | int] = []
    value: Any = body
    location = (*place, *first["loc"])
    for step in location:
        members = dict(enumerate(value)) if isinstance(value, list) else value if isinstance(value, dict) else {}
        if step not in members and not (first["type"] == "missing" and step is location[-1]):
            continue  # the name of a union member
        value = members.get(step)
        steps.append(step)
    return RenderError(f"the server refuses this request: {message}", path=format_path(steps) or None)


def is_wrong_tag(item: ErrorDetails) -> bool:
    """Whether a member of a union complains that another one is meant."""
    return item["type"] == "literal_error" and item["loc"][-1] in ("type", "role")
