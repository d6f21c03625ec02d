"""Prompts of gpt-oss in the harmony format, made by the openai-harmony library as vLLM uses it.

Follows `entrypoints/openai/parser/harmony_utils.py` and `renderers/online_renderer.py:_make_request_with_harmony`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.encoders import Encoded
from pkv_lint.prompt.errors import InputError, RenderError

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding, Message  # type: ignore[import-untyped]

_VOCABULARY = "o200k_base.tiktoken"
_ORDINARY_TOKENS = 199_998
_EFFORTS = ("high", "medium", "low")


class HarmonyEncoder:
    """Encodes chat requests for gpt-oss. The chat template, its arguments, documents, truncation and `name` play no
    part; every prompt starts with a system message that shows the date."""

    def __init__(self, tokenizer: Path, deployment: Deployment) -> None:
        """`tokenizer` is the directory with gpt-oss' tokenizer.json, or that file. Raises InputError where the library
        is not installed or the file is not gpt-oss' vocabulary."""
        file = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
        self._encoding = _load_encoding(file)
        self._deployment = deployment

    def encode_completion(self, text: str) -> array[int]:
        """The ids of generated text."""
        return array("i", self._encoding.encode(text, allowed_special="all"))

    def encode(self, body: Mapping[str, Any], now: datetime) -> Encoded:
        """The prompt of a validated chat body. `now` is the local time whose date the system message shows, unless the
        deployment pins one. Raises RenderError where the server would refuse the request."""
        instructions, messages = _leading_instructions(body["messages"])
        date = self._deployment.system_start_date or now.strftime("%Y-%m-%d")
        tools = body.get("tools")
        if self._deployment.exclude_tools_when_tool_choice_none and body.get("tool_choice") == "none":
            tools = None
        try:
            spoken = [
                *self._preamble(instructions, tools, self._effort(body), date),
                *self._conversation(messages, date),
            ]
            ids = self._render(_without_finished_analysis(spoken))
        except RenderError:
            raise
        except Exception as error:  # pydantic's and the library's own, which is no subclass of anything narrower
            raise RenderError(str(error)) from error
        return Encoded(array("i", ids), self._encoding.decode(ids))

    def _effort(self, body: Mapping[str, Any]) -> str | None:
        effort: str | None = body.get("reasoning_effort")
        if effort is None:
            return None
        effort = self._deployment.reasoning_effort_map.get(effort, effort)
        if effort == "none":
            raise RenderError(
                "Harmony does not support reasoning_effort='none' (parameter=reasoning_effort)", path="reasoning_effort"
            )
        if effort not in _EFFORTS:
            raise RenderError(
                f"reasoning_effort={effort!r} is not supported by Harmony. "
                f"Supported values are: {', '.join(_EFFORTS)}. (parameter=reasoning_effort)",
                path="reasoning_effort",
            )
        return effort

    def _preamble(
        self, instructions: str | None, tools: Sequence[Mapping[str, Any]] | None, effort: str | None, date: str
    ) -> Iterator[Message]:
        in_system = self._deployment.harmony_system_instructions
        yield _system(instructions if in_system else None, effort, date)
        if (instructions and not in_system) or tools:
            yield _developer(None if in_system else instructions, tools)

    def _conversation(self, messages: Sequence[Mapping[str, Any]], date: str) -> Iterator[Message]:
        names: dict[Any, Any] = {}
        for message in messages:
            for call in message.get("tool_calls") or ():
                names[call.get("id")] = (call.get("function") or {}).get("name")
        for index, message in enumerate(messages):
            role = message["role"]
            if role == "assistant":
                yield from _assistant(message, f"messages[{index}].content")
            elif role == "tool":
                yield _tool_result(message, names.get(message.get("tool_call_id", ""), ""))
            elif role in ("system", "developer"):
                text = _flat_text(message.get("content"))
                if text is not None:
                    yield self._later_instructions(role, text, date)
            else:
                yield _spoken(role, _texts(message, f"messages[{index}].content"))

    def _later_instructions(self, role: str, text: str, date: str) -> Message:
        if not self._deployment.harmony_system_instructions:
            return _developer(text)
        # The whole system message once more; a developer's text is lost.
        return _system(text, None, date) if role == "system" else _developer(None)

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


def _leading_instructions(messages: Sequence[Any]) -> tuple[str | None, Sequence[Any]]:
    if messages and messages[0]["role"] in ("system", "developer"):
        return _flat_text(messages[0].get("content")), messages[1:]
    return None, messages


def _system(instructions: str | None, effort: str | None, date: str) -> Message:
    from openai_harmony import Message, ReasoningEffort, Role, SystemContent

    content = SystemContent.new().with_conversation_start_date(date)
    if instructions is not None:
        content = content.with_model_identity(f"{content.model_identity}\n{instructions}")
    if effort is not None:
        content = content.with_reasoning_effort(ReasoningEffort[effort.upper()])
    return Message.from_role_and_content(Role.SYSTEM, content)


def _developer(instructions: str | None, tools: Sequence[Mapping[str, Any]] | None = None) -> Message:
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


def _assistant(message: Mapping[str, Any], path: str) -> Iterator[Message]:
    """What an assistant said, by channel: with calls the text is commentary before them, else it is final."""
    from openai_harmony import Message, Role

    reasoning = message.get("reasoning")
    calls = message.get("tool_calls")
    analysis = Message.from_role_and_content(Role.ASSISTANT, reasoning).with_channel("analysis") if reasoning else None
    if not calls:
        if analysis:
            yield analysis
        texts = _texts(message, path)
        if texts and texts[0]:
            yield _spoken("assistant", texts).with_channel("final")
        return
    if text := _flat_text(message.get("content")):
        yield Message.from_role_and_content(Role.ASSISTANT, text).with_channel("commentary")
    if analysis:
        yield analysis
    for call in calls:
        function = call.get("function") or {}
        spoken = Message.from_role_and_content(Role.ASSISTANT, function.get("arguments") or "")
        recipient = f"functions.{function.get('name', '')}"
        yield spoken.with_channel("commentary").with_recipient(recipient).with_content_type("json")


def _tool_result(message: Mapping[str, Any], name: Any) -> Message:
    from openai_harmony import Author, Message, Role

    author = Author.new(Role.TOOL, f"functions.{name}")
    result = Message.from_author_and_content(author, _flat_text(message.get("content")) or "")
    return result.with_channel("commentary").with_recipient("assistant")


def _spoken(role: str, texts: Sequence[Any]) -> Message:
    from openai_harmony import Author, Message, TextContent

    # The library's own check refuses other roles, as it does on the server.
    return Message(author=Author.model_validate({"role": role}), content=[TextContent(text=text) for text in texts])


def _texts(message: Mapping[str, Any], path: str) -> list[Any]:
    """The texts of the parts, "" for a part that is none (an image, a refusal)."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return [content]
    for index, part in enumerate(content):
        if not isinstance(part, Mapping):
            raise RenderError("a part must be an object here", path=f"{path}[{index}]", status=500)
    return [part.get("text", "") for part in content]


def _flat_text(content: Any) -> str | None:
    if content is None or isinstance(content, str):
        return content
    texts = [part if isinstance(part, str) else part.get("text") for part in content]
    texts = [text for text in texts if text is not None]
    return "".join(texts) if texts else None


def _without_finished_analysis(messages: Sequence[Message]) -> list[Message]:
    """Reasoning that led to an answer already given is dropped (`auto_drop_analysis_messages`)."""
    answers = [i for i, message in enumerate(messages) if message.channel == "final"]
    last = answers[-1] if answers else -1
    return [message for i, message in enumerate(messages) if i >= last or message.channel != "analysis"]


def _load_encoding(file: Path) -> HarmonyEncoding:
    try:
        from openai_harmony import HarmonyEncodingName, HarmonyError, load_harmony_encoding
    except ImportError:
        raise InputError("prompts of gpt-oss need the library openai-harmony: install pkv-lint[encoders]") from None
    directory = tiktoken_vocabulary(file)
    before = os.environ.get("TIKTOKEN_ENCODINGS_BASE")
    # The library fetches its vocabulary from the net unless this variable names a directory with the file.
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(directory)
    try:
        return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    except HarmonyError as error:
        raise InputError(f"not the vocabulary of gpt-oss: {error}", file=str(file)) from None
    finally:
        if before is None:
            del os.environ["TIKTOKEN_ENCODINGS_BASE"]
        else:
            os.environ["TIKTOKEN_ENCODINGS_BASE"] = before


def tiktoken_vocabulary(file: Path) -> Path:
    """A directory with the vocabulary in tiktoken's format, made from tokenizer.json once and kept in the cache."""
    try:
        source = file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(file)) from None
    key = hashlib.sha256(source).hexdigest()
    home = os.environ.get("XDG_CACHE_HOME")
    directory = (Path(home) if home else Path.home() / ".cache") / "pkv-lint" / key
    try:
        _write_vocabulary(source, directory / _VOCABULARY, file)
    except OSError:
        # A home that cannot be written to; the directory for temporary files is good for one run at least.
        directory = Path(tempfile.mkdtemp(prefix="pkv-lint-"))
        _write_vocabulary(source, directory / _VOCABULARY, file)
    return directory


def _write_vocabulary(tokenizer: bytes, target: Path, file: Path) -> None:
    if target.exists():
        return
    lines = _tiktoken_lines(tokenizer, file)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(lines)
    os.replace(name, target)


def _tiktoken_lines(tokenizer: bytes, file: Path) -> bytes:
    try:
        vocabulary = json.loads(tokenizer)["model"]["vocab"]
        ranked = sorted((index, piece) for piece, index in vocabulary.items() if index < _ORDINARY_TOKENS)
        alphabet = _byte_alphabet()
        return b"".join(
            b"%s %d\n" % (base64.b64encode(bytes(alphabet[character] for character in piece)), index)
            for index, piece in ranked
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError("not a tokenizer.json with a byte-level vocabulary", file=str(file)) from None


def _byte_alphabet() -> dict[str, int]:
    """The character that byte-level BPE (of GPT-2) writes for each byte: printable ones as they are, the others moved
    behind the 256 in their order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
