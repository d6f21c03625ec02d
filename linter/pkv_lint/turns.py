"""One request of a traffic with its exact prompt."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import InputError, RenderError
from pkv_lint.prompt.prompt import Prompt
from pkv_lint.prompt.renderer import Renderer, api_of
from pkv_lint.prompt.traffic import TrafficLine


@dataclass(frozen=True, slots=True)
class Turn:
    """`chat` is the body in chat-completions form, `generated` the ids that the reply left in the cache behind the
    prompt (all but its last token, which has no KV), `namespace` what keeps equal tokens apart: model and salt.
    `unread_for` is the field that makes the engine skip the lookup of the cache (None: it reads it)."""

    index: int
    line: TrafficLine
    chat: Mapping[str, Any]
    prompt: Prompt
    now: datetime
    generated: array[int]
    namespace: tuple[str, str]
    unread_for: str | None = None

    @property
    def model(self) -> str:
        return self.namespace[0]

    @property
    def ids(self) -> array[int]:
        return self.prompt.token_ids

    @property
    def cached_after(self) -> array[int]:
        """The tokens whose KV the cache holds once this request is done."""
        return self.ids + self.generated


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that cannot be rendered, and why."""

    line: TrafficLine
    error: RenderError


def read_turns(
    lines: Iterable[TrafficLine | InputError], renderer: Renderer, now: datetime
) -> Iterator[Turn | Refused | InputError]:
    """Render every line. `now` stands in for the time of lines that carry none."""
    for line in lines:
        if isinstance(line, InputError):
            yield line
            continue
        try:
            yield turn_of(line, renderer, line.moment.now or now)
        except RenderError as error:
            yield Refused(line, error)


def turn_of(line: TrafficLine, renderer: Renderer, now: datetime) -> Turn:
    if line.request is None:
        ids = line.token_ids if line.token_ids is not None else array("i")
        chat: Mapping[str, Any] = {"messages": [], "model": line.model, "cache_salt": line.cache_salt}
        prompt = Prompt(None, ids)
    else:
        chat = renderer.chat_body(line.request, line.api)
        prompt = renderer.render(line.request, now, api=line.api)
    space = namespace(chat, renderer.deployment)
    return Turn(line.index, line, chat, prompt, now, generated_ids(line, renderer), space, unread_for(line, chat))


def generated_ids(line: TrafficLine, renderer: Renderer) -> array[int]:
    if line.output_token_ids is not None:
        return line.output_token_ids[:-1]
    if line.completion:
        return renderer.encode_completion(line.completion)[:-1]
    return array("i")


def namespace(chat: Mapping[str, Any], deployment: Deployment) -> tuple[str, str]:
    return deployment.adapter(str(chat.get("model") or "")), str(chat.get("cache_salt") or "")


def unread_for(line: TrafficLine, chat: Mapping[str, Any]) -> str | None:
    """The field that makes vLLM skip the lookup (`SamplingParams.skip_reading_prefix_cache`): log probabilities of the
    prompt. `echo` asks for them too, for as many as `top_logprobs` says (0 by default) or, in Completions, `logprobs`
    (`to_sampling_params`). Other endpoints have none."""
    api = (line.api or api_of(line.request)) if line.request is not None else ""
    if api not in ("chat", "completions"):
        return None
    if chat.get("prompt_logprobs") is not None:
        return "prompt_logprobs"
    asked = api == "chat" or chat.get("logprobs") is not None
    return "echo" if asked and chat.get("echo") in (True, "true") else None
