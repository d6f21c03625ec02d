"""Prompts of gpt-oss in the harmony format, made by the openai-harmony library as vLLM uses it.

Follows `entrypoints/openai/parser/harmony_utils.py` and `renderers/online_renderer.py:_make_request_with_harmony`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.encoders import Encoded
from pkv_lint.prompt.encoders.harmony_messages import (
    assistant_messages,
    developer_message,
    flat_text,
    leading_instructions,
    spoken_message,
    system_message,
    texts_of,
    tool_result,
    without_finished_analysis,
)
from pkv_lint.prompt.encoders.harmony_responses import item_messages, peeled_instructions, shown_tools
from pkv_lint.prompt.encoders.harmony_vocabulary import load_encoding
from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.responses import checked, checked_tool_choice, declared_tools, input_items, reasoning_effort

if TYPE_CHECKING:
    from openai_harmony import Message  # type: ignore[import-untyped]

_EFFORTS = ("high", "medium", "low")


class HarmonyEncoder:
    """Encodes requests for gpt-oss. The chat template, its arguments, documents, truncation and `name` play no
    part; every prompt starts with a system message that shows the date."""

    def __init__(self, tokenizer: Path, deployment: Deployment) -> None:
        """`tokenizer` is the directory with gpt-oss' tokenizer.json, or that file. Raises InputError where the library
        is not installed or the file is not gpt-oss' vocabulary."""
        file = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
        self._encoding = load_encoding(file)
        self._deployment = deployment

    def encode_completion(self, text: str) -> array[int]:
        """The ids of generated text."""
        return array("i", self._encoding.encode(text, allowed_special="all"))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._encoding.decode(list(ids)))

    def encode(self, body: Mapping[str, Any], now: datetime) -> Encoded:
        """The prompt of a validated chat body. `now` is the local time whose date the system message shows, unless the
        deployment pins one. Raises RenderError where the server would refuse the request."""
        instructions, messages = leading_instructions(body["messages"])
        tools = body.get("tools")
        if self._deployment.exclude_tools_when_tool_choice_none and body.get("tool_choice") == "none":
            tools = None
        effort = self._effort(body.get("reasoning_effort"), "reasoning_effort")
        date = self._date(now)
        return self._encoded(
            lambda: [*self._preamble(instructions, tools, effort, date), *self._conversation(messages, date)]
        )

    def encode_responses(self, body: Mapping[str, Any], now: datetime) -> Encoded:
        """The prompt of a Responses body as it was sent. See `encode`.

        vLLM makes one message of each item here (`_render_responses_with_harmony`), where for other models it makes a
        chat body.
        """
        request = checked(body)
        if body.get("previous_input_messages"):
            raise RenderError("harmony messages as history are not read here", path="previous_input_messages")
        items = input_items(request)
        declared = declared_tools(request)
        checked_tool_choice(request, declared)
        effort = self._effort(reasoning_effort(request), "reasoning.effort")
        instructions = request.optional_string("instructions")
        if instructions is None and not isinstance(body["input"], str):
            instructions, items = peeled_instructions(items)
        tools = shown_tools(declared)
        date = self._date(now)

        def messages() -> list[Message]:
            later = partial(self._later_instructions, date=date)
            return [*self._preamble(instructions, tools, effort, date), *item_messages(items, later)]

        return self._encoded(messages)

    def _date(self, now: datetime) -> str:
        return self._deployment.system_start_date or now.strftime("%Y-%m-%d")

    def _encoded(self, messages: Callable[[], list[Message]]) -> Encoded:
        try:
            ids = self._render(without_finished_analysis(messages()))
        except RenderError:
            raise
        except Exception as error:  # pydantic's and the library's own, which is no subclass of anything narrower
            raise RenderError(str(error)) from error
        return Encoded(array("i", ids), self.decode(ids))

    def _effort(self, effort: str | None, path: str) -> str | None:
        if effort is None:
            return None
        effort = self._deployment.reasoning_effort_map.get(effort, effort)
        if effort == "none":
            raise RenderError(
                "Harmony does not support reasoning_effort='none' (parameter=reasoning_effort)", path=path
            )
        if effort not in _EFFORTS:
            raise RenderError(
                f"reasoning_effort={effort!r} is not supported by Harmony. "
                f"Supported values are: {', '.join(_EFFORTS)}. (parameter=reasoning_effort)",
                path=path,
            )
        return effort

    def _preamble(
        self, instructions: str | None, tools: Sequence[Mapping[str, Any]] | None, effort: str | None, date: str
    ) -> Iterator[Message]:
        in_system = self._deployment.harmony_system_instructions
        yield system_message(instructions if in_system else None, effort, date)
        if (instructions and not in_system) or tools:
            yield developer_message(None if in_system else instructions, tools)

    def _conversation(self, messages: Sequence[Mapping[str, Any]], date: str) -> Iterator[Message]:
        names: dict[Any, Any] = {}
        for message in messages:
            for call in message.get("tool_calls") or ():
                names[call.get("id")] = (call.get("function") or {}).get("name")
        for index, message in enumerate(messages):
            role = message["role"]
            if role == "assistant":
                yield from assistant_messages(message, f"messages[{index}].content")
            elif role == "tool":
                yield tool_result(message, names.get(message.get("tool_call_id", ""), ""))
            elif role in ("system", "developer"):
                text = flat_text(message.get("content"))
                if text is not None:
                    yield self._later_instructions(role, text, date)
            else:
                yield spoken_message(role, texts_of(message, f"messages[{index}].content"))

    def _later_instructions(self, role: str, text: str, date: str) -> Message:
        if not self._deployment.harmony_system_instructions:
            return developer_message(text)
        # The whole system message once more; a developer's text is lost.
        return system_message(text, None, date) if role == "system" else developer_message(None)

    def _render(self, messages: Sequence[Message]) -> list[int]:
        from openai_harmony import Conversation, RenderConversationConfig, Role

        ids = self._encoding.render_conversation_for_completion(
            Conversation.from_messages(messages),
            Role.ASSISTANT,
            config=RenderConversationConfig(auto_drop_analysis=False),
        )
        return self._with_vllm_headers(list(ids))

    def _with_vllm_headers(self, ids: list[int]) -> list[int]:
        """The headers that name a recipient as vLLM sends them, whichever version of the library wrote them."""
        start, channel, message = (
            self._encoding.encode(f"<|{name}|>", allowed_special="all")[0] for name in ("start", "channel", "message")
        )
        result: list[int] = []
        header: list[int] | None = None
        for token in ids:
            if header is None or token == message:
                result += self._header(header, channel) if header is not None else ()
                result.append(token)
                header = [] if token == start else None
            else:
                header.append(token)
        return result + (header or [])

    def _header(self, header: list[int], channel: int) -> list[int]:
        """One header, between the marks for start and message.

        A past call has its recipient in front, `assistant to=X<|channel|>commentary json`, as gpt-oss learnt it (vLLM's
        `_use_legacy_tool_call_headers`), where oss-harmony writes
        `assistant<|channel|>commentary to=X <|constrain|>json`. A tool's
        result has it behind, `functions.X<|channel|>commentary to=assistant`, where openai-harmony writes
        `functions.X to=assistant<|channel|>commentary`.
        """
        if channel not in header:
            return header
        encode, decode = self._encoding.encode, self._encoding.decode
        place = header.index(channel)
        name, behind = decode(header[:place]), decode(header[place + 1 :])
        call, mark, kind = behind.partition(" <|constrain|>")
        said_in, separator, recipient = call.partition(" to=")
        if name == "assistant" and mark and separator:
            return [*encode(f"assistant to={recipient}"), channel, *encode(f"{said_in} {kind}")]
        if name != "assistant" and name.endswith(" to=assistant") and not separator:
            return [*encode(name.removesuffix(" to=assistant")), channel, *encode(f"{behind} to=assistant")]
        return header
