"""Prompts of Mistral models in their own format, made by the mistral-common library as vLLM uses it.

Follows `renderers/mistral.py`, `tokenizers/mistral.py` and transformers' `MistralCommonBackend.apply_chat_template`.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.encoders import Encoded
from pkv_lint.prompt.errors import InputError, RenderError
from pkv_lint.prompt.messages import MEDIA_PARTS, conversation
from pkv_lint.prompt.request import template_kwargs

if TYPE_CHECKING:
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

_CALL_ID_LENGTH = 9


class MistralEncoder:
    """Encodes chat requests for `--tokenizer-mode mistral`. There is no chat template; roles follow a strict order."""

    def __init__(self, tokenizer: Path, deployment: Deployment, *, text_model: str | None) -> None:
        """`tokenizer` is tekken.json or a tokenizer.model.v*, or the directory with one; `text_model` is the name of a
        model that takes text alone (None: it takes images or audio too). Raises InputError where the library is not
        installed or finds no tokenizer."""
        self._tokenizer: MistralTokenizer[Any, Any, Any, Any, Any] = _load(tokenizer)
        self._deployment = deployment
        self._text_model = text_model

    def encode_completion(self, text: str) -> array[int]:
        """The ids of generated text."""
        return array("i", self._tokenizer.instruct_tokenizer.tokenizer.encode(text, bos=False, eos=False))

    def decode(self, ids: Sequence[int]) -> str:
        from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy

        return self._tokenizer.decode(list(ids), special_token_policy=SpecialTokenPolicy.KEEP)

    def encode(self, body: Mapping[str, Any], now: datetime) -> Encoded:
        """The prompt of a validated chat body, not yet truncated; it shows no clock.

        Raises RenderError where the server would refuse the request, and for images and audio, whose tokens depend on
        the media itself.
        """
        from mistral_common.protocol.instruct.request import ChatCompletionRequest

        self._check_parameters(body)
        messages = [_with_short_ids(message) for message in body["messages"]]
        if self._text_model is None:
            _refuse_media(messages)
        kwargs = template_kwargs(body, self._deployment)
        continued = kwargs["continue_final_message"]
        # vLLM shapes the conversation as for a chat template first and keeps the arguments it parsed on the way.
        shaped = conversation(messages, "string", text_model=self._text_model)
        messages = [_adapted(message, seen) for message, seen in zip(messages, shaped, strict=True)]
        _check_last_message(messages, continued, kwargs["add_generation_prompt"])
        version = {"reasoning_effort": kwargs.get("reasoning_effort")} if self._version >= 15 else {}
        try:
            request: Any = ChatCompletionRequest.from_openai(
                messages, tools=kwargs.get("tools"), continue_final_message=continued, **version
            )
            ids = self._tokenizer.encode_chat_completion(request).tokens
            text = self.decode(ids)
        except Exception as error:  # vLLM turns all of the library's into a refusal, its failed assertions as well
            raise RenderError(str(error)) from error
        return Encoded(array("i", ids), text)

    @property
    def _version(self) -> int:
        return int(self._tokenizer.version.value.removeprefix("v").partition("m")[0])

    def _check_parameters(self, body: Mapping[str, Any]) -> None:
        from mistral_common.protocol.instruct.request import ReasoningEffort

        for name in ("chat_template", "chat_template_kwargs"):
            if body.get(name) is not None:
                raise RenderError(
                    "chat_template is not supported for Mistral tokenizers. (parameter=chat_template)", path=name
                )
        efforts = [effort.value for effort in ReasoningEffort]
        effort = body.get("reasoning_effort")
        effort = self._deployment.reasoning_effort_map.get(effort, effort) if effort else None
        if effort and effort not in efforts:
            raise RenderError(
                f"reasoning_effort={effort} is not supported by Mistral models. Supported values are: {efforts}. "
                "(parameter=reasoning_effort)",
                path="reasoning_effort",
            )


def _with_short_ids(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with the ids of its calls cut to their last 9 characters; an assistant always has a list of calls."""
    short = dict(message)
    if message["role"] == "assistant":
        calls = message.get("tool_calls") or ()
        short["tool_calls"] = [{**call, "id": call["id"][-_CALL_ID_LENGTH:]} for call in calls]
    elif message["role"] in ("tool", "tool_results") and "tool_call_id" in message:
        short["tool_call_id"] = message["tool_call_id"][-_CALL_ID_LENGTH:]
    return short


def _adapted(message: dict[str, Any], shaped: Mapping[str, Any]) -> dict[str, Any]:
    """The message as mistral-common gets it: parts without a type are dropped, arguments are objects."""
    if message["role"] == "assistant":
        message = {**message, "tool_calls": shaped.get("tool_calls", [])}
    content = message.get("content")
    if content and not isinstance(content, str):
        for part in content:
            if not isinstance(part, Mapping):
                raise RenderError("'str' object has no attribute 'get'")
        message = {**message, "content": [part for part in content if part.get("type")]}
    return message


def _refuse_media(messages: Sequence[Mapping[str, Any]]) -> None:
    for index, message in enumerate(messages):
        content = message.get("content")
        for place, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, Mapping) and not MEDIA_PARTS.keys().isdisjoint((part.get("type"), *part)):
                path = f"messages[{index}].content[{place}]"
                raise RenderError("images and audio in the prompt of a Mistral model cannot be counted here", path=path)


def _check_last_message(messages: Sequence[Mapping[str, Any]], continued: bool, generation_prompt: bool) -> None:
    if generation_prompt and continued:
        raise RenderError(
            "Cannot set both `add_generation_prompt` and `continue_final_message` to True.",
            path="continue_final_message",
        )
    if not messages:
        raise RenderError("list index out of range", path="messages")
    path = f"messages[{len(messages) - 1}].role"
    from_assistant = messages[-1]["role"] == "assistant"
    if generation_prompt and from_assistant:
        raise RenderError(
            "Cannot set `add_generation_prompt` to True when the last message is from the assistant. Consider using "
            "`continue_final_message` instead.",
            path=path,
        )
    if continued and not from_assistant:
        raise RenderError(
            "Cannot set `continue_final_message` to True when the last message is not from the assistant.", path=path
        )


def _load(path: Path) -> MistralTokenizer[Any, Any, Any, Any, Any]:
    try:
        from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
        from mistral_common.tokens.tokenizers.utils import get_one_valid_tokenizer_file
    except ImportError:
        raise InputError("prompts of Mistral models need mistral-common: install pkv-lint[encoders]") from None
    try:
        file = get_one_valid_tokenizer_file([str(entry) for entry in path.iterdir()]) if path.is_dir() else str(path)
        return MistralTokenizer.from_file(file)
    except Exception as error:  # the library raises a bare Exception here and there
        raise InputError(f"not a tokenizer of mistral-common: {' '.join(str(error).split())}", file=str(path)) from None
