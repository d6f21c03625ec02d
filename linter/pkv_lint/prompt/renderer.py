"""From a request body to the prompt a server will see."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

from pkv_lint.prompt import anthropic, completions, encoders, responses
from pkv_lint.prompt.chat_template import ChatTemplate
from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import InputError, RenderError
from pkv_lint.prompt.messages import ContentFormat, conversation
from pkv_lint.prompt.origin import COMPUTED, Origin, Source
from pkv_lint.prompt.prompt import Prompt
from pkv_lint.prompt.request import ChatRequest, Limits, check_model, forwarded_ids, has_media, limits
from pkv_lint.prompt.sampling import check_sampling
from pkv_lint.prompt.template import ChatTemplates
from pkv_lint.prompt.tokenizer import Tokenizer
from pkv_lint.prompt.validation import refused, validated


class Renderer:
    """Renders requests for one deployment. Made by `Renderer.load`, cheap to keep.

    `layout` is `builtin` when no model was named. `approximate` says that ids do not come from the model's own
    vocabulary. `multimodal` says that the model takes images, audio or video, `hybrid` that some of its layers keep a
    state or a window instead of the whole context.
    """

    def __init__(
        self,
        templates: ChatTemplates,
        tokenizer: Tokenizer | None,
        deployment: Deployment | None = None,
        *,
        mode: encoders.Mode = "hf",
        encoder: encoders.Encoder | None = None,
        layout: str = "model",
        approximate: bool = False,
        multimodal: bool = False,
        special_tokens: Mapping[str, str] | None = None,
        hybrid: bool = False,
    ) -> None:
        self.templates = templates
        self._tokenizer = tokenizer
        self.deployment = deployment or Deployment()
        self.mode = mode
        self.layout = layout
        self.approximate = approximate
        self.multimodal = multimodal
        self.hybrid = hybrid
        if special_tokens is None:
            special_tokens = tokenizer.special_tokens if tokenizer is not None else {}
        self.special_tokens = special_tokens
        self._encoder = encoder
        self._compiled = lru_cache(maxsize=8)(ChatTemplate)

    @classmethod
    def load(
        cls,
        model: str | None = None,
        chat_template: str | None = None,
        tokenizer: str | None = None,
        vllm_args: str | Sequence[str] | None = None,
        *,
        offline: bool = False,
    ) -> Renderer:
        """From a model directory or hub id, a template file (or text), a tokenizer.json or its directory, and a pasted
        `vllm serve` line; what is named explicitly wins over the line. With nothing named, the built-in layout is used
        and the result is approximate. Raises InputError for what cannot be loaded.
        """
        from pkv_lint.prompt.loading import load_renderer

        return load_renderer(model, chat_template, tokenizer, vllm_args, offline=offline)

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary. Encoders that bring one of their own (Mistral) have none here."""
        assert self._tokenizer is not None, "this model's encoder tokenises itself"
        return self._tokenizer

    @property
    def text_model(self) -> str | None:
        """The name of the model when it is not known to take images, audio or video."""
        if self.multimodal:
            return None
        return self.deployment.name

    def encode_completion(self, text: str) -> array[int]:
        """The ids of generated text, tokenised on its own."""
        return self._encoder.encode_completion(text) if self._encoder else self.tokenizer.encode(text)

    def decode(self, ids: Sequence[int]) -> str | None:
        """What ids stand for, for reading; None where the vocabulary is not the server's, or does not know them."""
        if self.approximate:
            return None
        try:
            return self._encoder.decode(ids) if self._encoder else self.tokenizer.decode(ids)
        except Exception:  # of other libraries; traffic may hold any ids
            return None

    def template_variables(self, chat: Mapping[str, object]) -> frozenset[str]:
        """Names that the chat template of a request takes from outside, its clock and functions included."""
        return self._template(ChatRequest.of(validated(chat), self.deployment)).variables

    def chat_body(self, request: Mapping[str, object], api: str | None = None) -> Mapping[str, object]:
        """The body in chat-completions form, whichever API it was written for."""
        api = api or api_of(request)
        if api == "messages":
            effort = self.deployment.anthropic_disabled_thinking_effort
            return anthropic.to_chat(
                dict(request),
                merge_inline_system=anthropic.has_inline_system(request) and self._refuses_inline_system,
                disabled_thinking_effort="none" if effort == "auto" else effort,
            )
        if api == "responses":
            return responses.to_chat(dict(request))
        return completions.to_chat(request) if api == "completions" else request

    @cached_property
    def _refuses_inline_system(self) -> bool:
        """Whether system messages inside a conversation are joined into the first for this server's template."""
        sources = self.templates.sources if self.mode == "hf" else []
        return not sources or any(anthropic.refuses_inline_system(source) for source in sources)

    def render(self, request: Mapping[str, object], now: datetime | None = None, *, api: str | None = None) -> Prompt:
        """The prompt for a request body as it was sent.

        `now` is the naive local time that the template's clock shows (default: the real one); `api` names the endpoint
        (`chat`, `completions`, `messages`, `responses`), by default one but `completions` by the body's shape. Raises
        RenderError where the server would refuse the request, with the place in the body, and InputError where the file
        of its template does not parse.
        """
        now = now or datetime.now()
        if not isinstance(request, Mapping):
            raise RenderError("a request is a JSON object")
        api = api or api_of(request)
        if api == "responses" and isinstance(self._encoder, encoders.ResponsesEncoder):
            check_model(request, self.deployment)
            encoded = self._encoder.encode_responses(request, now)
            ids, _ = within(encoded.token_ids, limits(responses.limits_of(request), self.deployment))
            return Prompt(None, ids, approximate=self.approximate)
        if api == "completions":
            return self._completion(request)
        chat = self.chat_body(request, api)
        try:
            # What vLLM makes of a Responses body it does not validate as a chat request again.
            body = chat if api == "responses" else validated(chat)
            check_model(body, self.deployment)
            if self._encoder is not None:
                return self._encoded(body, now)
            prepared = ChatRequest.of(body, self.deployment)
            forwarded = forwarded_ids(body)
            if forwarded is not None:
                return Prompt(None, forwarded, approximate=self.approximate)
            text = self._text(prepared, now)
            if self.deployment.stated and api != "responses":
                check_sampling(body)
        except RenderError as error:
            if chat is request or error.path is None:
                raise
            raise self._as_sent(error, request, api) from None
        prompt = self._tokenised(text, prepared.limits, lambda: self._trace(request, api, body, text, now))
        if any(map(has_media, prepared.messages)):
            prompt.approximate = True  # a processor of the model makes more tokens of each image
        return prompt

    def _encoded(self, body: Mapping[str, Any], now: datetime) -> Prompt:
        assert self._encoder is not None
        ids = forwarded_ids(body)
        if ids is None:
            ids, _ = within(
                self._encoder.encode(body, now).token_ids, limits(body, self.deployment, strict=self.mode != "harmony")
            )
        return Prompt(None, ids, approximate=self.approximate)

    def _completion(self, request: Mapping[str, object]) -> Prompt:
        body = completions.to_chat(request)
        check_model(body, self.deployment)
        prompt, asked = completions.prompt_of(request), limits(body, self.deployment)
        if isinstance(prompt, array):
            return Prompt(None, within(prompt, asked)[0], approximate=self.approximate)
        text, path = prompt
        if self._tokenizer is None:
            raise RenderError("text for Completions cannot be tokenised here for this model; send ids", path=path)
        return self._tokenised(text, asked, lambda: (Origin(0, len(text), Source("value", path)),) if text else ())

    def _tokenised(self, text: str, asked: Limits, trace: Callable[[], Sequence[Origin]]) -> Prompt:
        special = asked.add_special_tokens
        try:
            ids = self.tokenizer.encode(text, special)
        except RenderError as error:
            half = next(at for at, character in enumerate(text) if "\ud800" <= character <= "\udfff")
            path = next((origin.path for origin in trace() if origin.start <= half < origin.end), None)
            raise RenderError(error.message, path=path) from None
        ids, gone = within(ids, asked, self.tokenizer.added if special else (0, 0))

        def offsets() -> list[tuple[int, int]]:
            spans = self.tokenizer.offsets(text, special)
            del spans[gone]
            return spans

        return Prompt(text, ids, approximate=self.approximate, trace=trace, offsets=offsets)

    def _as_sent(self, error: RenderError, request: Mapping[str, object], api: str) -> RenderError:
        """A refusal of the chat form, at the place of the body as it was sent."""
        from pkv_lint.prompt.sent_paths import sent_path
        from pkv_lint.prompt.traced import trace_value

        found = sent_path(self.chat_body(trace_value(request, ""), api), error.path or "")
        path = found[0] if found else None
        return RenderError(error.message, path=path, status=error.status, from_template=error.from_template)

    def _text(self, prepared: ChatRequest, now: datetime, *, traced: bool = False) -> str:
        if self.mode == "hf":
            return self._template(prepared).text(
                prepared,
                self.special_tokens,
                now,
                content_format=self._content_format(prepared),
                text_model=self.text_model,
                interleave=self.deployment.interleave_mm_strings,
                traced=traced,
            )
        encoder = encoders.text_encoder(self.mode)
        messages = conversation(prepared.messages, encoder.CONTENT_FORMAT, text_model=self.text_model)
        return encoder.encode_text(messages, prepared.template_kwargs.get("tools"), prepared.template_kwargs)

    def _template(self, prepared: ChatRequest) -> ChatTemplate:
        return self._chosen(prepared, prepared.template_kwargs.get("chat_template"))

    def _content_format(self, prepared: ChatRequest) -> ContentFormat:
        """vLLM does not look into `chat_template_kwargs` when it asks what the template wants."""
        given = self.deployment.chat_template_content_format
        if given != "auto":
            return "openai" if given == "openai" else "string"
        try:
            return self._chosen(prepared, None).content_format
        except RenderError:
            return "string"

    def _chosen(self, prepared: ChatRequest, otherwise: object) -> ChatTemplate:
        """The request's template, or the server's, or `otherwise` where it was started without, or the tokenizer's."""
        asked = prepared.chat_template or self.templates.stated
        if asked is None and otherwise is not None:
            if not isinstance(otherwise, str):
                raise RenderError("Can't compile non template nodes", path="chat_template_kwargs.chat_template")
            asked = otherwise
        source = self.templates.choose(asked, tools=prepared.template_kwargs.get("tools") is not None)
        try:
            return self._compiled(source)
        except RenderError as error:
            file = self.templates.files.get(source)
            if file is None or error.template_line is None:
                raise
            # Not a matter of this request.
            message = f"the chat template does not parse: {error.message}"
            raise InputError(message, file=file, line=error.template_line) from None

    def _trace(
        self, request: Mapping[str, object], api: str, body: Mapping[str, object], text: str, now: datetime
    ) -> Sequence[Origin]:
        """Render once more with every character followed, and check that nothing but the origins is new."""
        from pkv_lint.prompt.traced import origins, retrace, trace_value

        chat = self.chat_body(trace_value(request, ""), api)
        traced = self._text(ChatRequest.of(retrace(body, chat), self.deployment), now, traced=True)
        if traced != text:
            return (Origin(0, len(text), COMPUTED, linear=False),)
        return origins(traced)


def within(ids: array[int], limits: Limits, added: tuple[int, int] = (0, 0)) -> tuple[array[int], slice]:
    """The ids that truncation keeps, and the place of those that it took out.

    `added` counts the tokens before and behind the text that were added to it. Raises RenderError for a prompt that is
    too long, or empty.
    """
    gone = truncation(len(ids), limits, added)
    ids = ids[: gone.start] + ids[gone.stop :]
    most = limits.max_model_len
    if most is not None and len(ids) > most:
        raise refused(
            f"This model's maximum context length is {most} tokens. However, your prompt contains at least {most + 1} "
            "input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the "
            "input prompt.",
            "input_tokens",
            most + 1,
        )
    if not ids:
        raise RenderError("No token_ids rendered")
    if len(ids) == most:
        raise refused("max_tokens must be at least 1, got 0.", "max_tokens", 0)
    return ids, gone


def truncation(length: int, limits: Limits, added: tuple[int, int]) -> slice:
    keep = limits.keep
    if keep is None or keep >= length:
        return slice(length, length)
    if limits.truncation_side == "right":
        return slice(keep, length)
    before, after = added
    if limits.truncation_side is None and keep >= before + after:
        # The tokenizer cuts the text before it adds its own tokens (vLLM's `TokenizeParams.get_encode_kwargs`).
        return slice(before, before + length - keep)
    return slice(0, length - keep)


def api_of(request: Mapping[str, object]) -> str:
    if responses.looks_like(request):
        return "responses"
    return "messages" if anthropic.looks_like(request) else "chat"
