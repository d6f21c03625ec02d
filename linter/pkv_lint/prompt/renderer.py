"""From a request body to the prompt a server will see."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import anthropic, responses
from .content_format import content_format
from .deployment import Deployment
from .environment import Template, compile_template
from .errors import RenderError
from .messages import ContentFormat, conversation, join, without_developer
from .origin import COMPUTED, Origin
from .prompt import Prompt
from .request import ChatRequest, Limits
from .template import ChatTemplates, directory_templates, model_directory, read_object, stated_template
from .tokenizer import Tokenizer
from .validation import refused, validated

CONTINUE_MARKER = "CONTINUE_FINAL_MESSAGE_TAG "
HF_PARAMETERS = frozenset(
    [
        "self",
        "conversation",
        "tools",
        "documents",
        "add_generation_prompt",
        "continue_final_message",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
    ]
)
"""Parameters of transformers' `apply_chat_template`: a request may pass them, no template variable comes of them."""
NOT_A_TEMPLATE_VARIABLE = HF_PARAMETERS | {"chat_template", "tokenize"}


class Renderer:
    """Renders requests for one deployment. Cheap to keep, made by `Renderer.load`."""

    def __init__(
        self,
        templates: ChatTemplates,
        tokenizer: Tokenizer,
        deployment: Deployment | None = None,
        *,
        layout: str = "model",
        approximate: bool = False,
        multimodal: bool = False,
    ) -> None:
        self.templates = templates
        self.tokenizer = tokenizer
        self.deployment = deployment or Deployment()
        self.layout = layout
        self.approximate = approximate
        self.multimodal = multimodal
        self._compiled = lru_cache(maxsize=8)(ChatTemplate)

    @property
    def text_model(self) -> str | None:
        """The name of the model when it is not known to take images, audio or video."""
        if self.multimodal:
            return None
        return (self.deployment.served_model_names or (self.deployment.model or "the model",))[0]

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
        deployment = Deployment.from_vllm_args(vllm_args)
        model = model or deployment.model
        tokenizer = tokenizer or deployment.tokenizer
        chat_template = chat_template or deployment.chat_template
        directory = model_directory(model, offline=offline, revision=deployment.revision) if model else None
        templates = directory_templates(directory) if directory else ChatTemplates()
        if tokenizer is not None:
            path = Path(tokenizer).expanduser()
            vocabulary = Tokenizer.load(path if path.exists() else model_directory(tokenizer, offline=offline))
            if directory is None and chat_template is None:
                templates = directory_templates(path if path.is_dir() else path.parent)
        elif directory is not None:
            vocabulary = Tokenizer.load(directory)
        else:
            vocabulary = None
        if chat_template is not None:
            templates = ChatTemplates(stated_template(chat_template), templates.processor, templates.tokenizer)
        approximate = vocabulary is None
        layout = "model"
        if vocabulary is None:
            from . import builtin

            source, vocabulary = builtin.load()
            if templates == ChatTemplates():
                templates = ChatTemplates(tokenizer=source)
                layout = "builtin"
            else:
                vocabulary = vocabulary.without_special_tokens()
        config = read_object(directory / "config.json") if directory else {}
        return cls(
            templates,
            vocabulary,
            deployment,
            layout=layout,
            approximate=approximate,
            multimodal=any(name in config for name in ("vision_config", "audio_config", "thinker_config")),
        )

    def render(self, request: Mapping[str, Any], now: datetime | None = None, *, api: str | None = None) -> Prompt:
        """The prompt for a request body as it was sent.

        `now` is the naive local time that the template's clock shows (default: the real one); `api` names the endpoint
        (`chat`, `messages`, `responses`), by default it is told from the shape of the body. Raises RenderError where
        the server would refuse the request, with the place in the body.
        """
        now = now or datetime.now()
        if not isinstance(request, Mapping):
            raise RenderError("a request is a JSON object")
        api = api or api_of(request)
        chat = self.chat_body(request, api)
        body = validated(chat)
        prepared = ChatRequest.of(body, self.deployment)
        if prepared.prompt_token_ids is not None:
            return Prompt(None, array("i", prepared.prompt_token_ids), approximate=self.approximate)
        template = self._template(prepared)
        text = template.text(prepared, self, now)
        ids, dropped = self._tokens(text, prepared.limits)

        def trace() -> Sequence[Origin]:
            return self._trace(request, api, body, text, now)

        def offsets() -> list[tuple[int, int]]:
            spans = self.tokenizer.offsets(text, prepared.limits.add_special_tokens)
            return spans[dropped : dropped + len(ids)]

        return Prompt(text, ids, approximate=self.approximate, trace=trace, offsets=offsets)

    def chat_body(self, request: Mapping[str, Any], api: str | None = None) -> Mapping[str, Any]:
        """The body in chat-completions form, whichever API it was written for."""
        api = api or api_of(request)
        if api == "messages":
            return anthropic.to_chat(dict(request))
        if api == "responses":
            return responses.to_chat(dict(request))
        return request

    def _template(self, prepared: ChatRequest) -> ChatTemplate:
        asked = prepared.chat_template or prepared.template_kwargs.get("chat_template")
        return self._compiled(self.templates.choose(asked, tools=prepared.template_kwargs.get("tools") is not None))

    def _tokens(self, text: str, limits: Limits) -> tuple[array[int], int]:
        """The ids of the text within the limits, and how many were cut off in front."""
        ids = self.tokenizer.encode(text, limits.add_special_tokens)
        dropped = 0
        if limits.keep is not None and len(ids) > limits.keep:
            if limits.truncation_side == "right":
                ids = ids[: limits.keep]
            else:
                dropped = len(ids) - limits.keep
                ids = ids[dropped:]
        if limits.max_model_len is not None and len(ids) > limits.max_model_len:
            raise refused(
                f"This model's maximum context length is {limits.max_model_len} tokens. However, your prompt contains "
                f"at least {limits.max_model_len + 1} input tokens, which exceeds this limit even without any output "
                "tokens. Please reduce the length of the input prompt.",
                "input_tokens",
                limits.max_model_len + 1,
            )
        return ids, dropped

    def _trace(
        self, request: Mapping[str, Any], api: str, body: Mapping[str, Any], text: str, now: datetime
    ) -> Sequence[Origin]:
        """Render once more with every character followed, and check that nothing but the origins is new."""
        from .provenance import origins, retrace, trace_value

        chat = self.chat_body(trace_value(request, ""), api)
        prepared = ChatRequest.of(retrace(body, chat), self.deployment)
        traced = self._template(prepared).traced_text(prepared, self, now)
        if traced != text:
            return (Origin(0, len(text), COMPUTED, linear=False),)
        return origins(traced)


def api_of(request: Mapping[str, Any]) -> str:
    if responses.looks_like(request):
        return "responses"
    return "messages" if anthropic.looks_like(request) else "chat"


class ChatTemplate:
    """One compiled template and what vLLM learns from its text."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.template: Template = compile_template(source)
        self.content_format: ContentFormat = content_format(self.template._environment.parse(source))
        self.knows_developer = '"developer"' in source or "'developer'" in source

    def text(self, prepared: ChatRequest, renderer: Renderer, now: datetime) -> str:
        return self._rendered(prepared, renderer, lambda variables: self.template.render(variables, now))

    def traced_text(self, prepared: ChatRequest, renderer: Renderer, now: datetime) -> str:
        return self._rendered(prepared, renderer, lambda variables: self.template.render_traced(variables, now))

    def _rendered(self, prepared: ChatRequest, renderer: Renderer, render: Any) -> str:
        """`safe_apply_chat_template` and transformers' `apply_chat_template`, in their order of checks."""
        given = renderer.deployment.chat_template_content_format
        messages = conversation(
            prepared.messages, self.content_format if given == "auto" else given, text_model=renderer.text_model
        )
        kwargs = prepared.template_kwargs
        for name in ("model_config", "tokenizer", "conversation"):
            if name in kwargs:
                raise RenderError(
                    f"safe_apply_chat_template() got multiple values for argument '{name}'",
                    path=f"chat_template_kwargs.{name}",
                )
        if not self.knows_developer and any(message["role"] == "developer" for message in messages):
            messages = without_developer(messages)
        if not messages:
            raise RenderError(
                "Cannot apply chat template to an empty conversation. Provide at least one message.", path="messages"
            )
        if kwargs.get("return_assistant_tokens_mask"):
            raise RenderError(
                "`return_assistant_tokens_mask=True` requires `return_dict=True` and `tokenize=True`",
                path="chat_template_kwargs.return_assistant_tokens_mask",
            )
        if kwargs["continue_final_message"]:
            return self._continued(messages, kwargs, renderer, render)
        return render(self._variables(messages, kwargs, renderer))

    def _variables(
        self, messages: list[dict[str, Any]], kwargs: Mapping[str, Any], renderer: Renderer
    ) -> dict[str, Any]:
        accepted = {
            name: value
            for name, value in kwargs.items()
            if name not in NOT_A_TEMPLATE_VARIABLE and name in self.template.undeclared
        }
        if "messages" in accepted:
            raise RenderError(
                "jinja2.environment.Template.render() got multiple values for keyword argument 'messages'",
                path="chat_template_kwargs.messages",
            )
        tools = kwargs.get("tools")
        documents = kwargs.get("documents")
        if tools is not None:
            check_items(
                tools,
                "Tools should either be a JSON schema, or a callable function with type hints and a docstring suitable "
                "for auto-conversion to a schema.",
                "chat_template_kwargs.tools",
            )
        if documents is not None:
            check_items(documents, "Documents should be a list of dicts with 'title' and 'text' keys!", "documents")
        return {
            **renderer.tokenizer.special_tokens,
            **accepted,
            "messages": messages,
            "tools": None if tools is None else list(tools),
            "documents": documents,
            "add_generation_prompt": kwargs["add_generation_prompt"],
        }

    def _continued(
        self, messages: list[dict[str, Any]], kwargs: Mapping[str, Any], renderer: Renderer, render: Any
    ) -> str:
        """Leave the last message open: mark its end, render, cut there (transformers' `render_jinja_template`)."""
        if kwargs["add_generation_prompt"]:
            raise RenderError(
                "continue_final_message and add_generation_prompt are not compatible. Use continue_final_message when "
                "you want the model to continue the final message, and add_generation_prompt when you want to add a "
                "header that will prompt it to start a new assistant message instead.",
                path="continue_final_message",
            )
        last = dict(messages[-1])
        content = last.get("content")
        place = f"messages[{len(messages) - 1}].content"
        if content is None:
            raise RenderError(
                'continue_final_message is set but the final message has no "content" to continue!', path=place
            )
        if "content" not in self.source:
            raise RenderError(
                'continue_final_message is set to "content" but this is not an accepted field in the chat_template',
                path="continue_final_message",
            )
        if isinstance(content, list):
            index = next((i for i in reversed(range(len(content))) if "text" in content[i]), None)
            if index is None:
                raise RenderError(
                    "continue_final_message is set but we could not find any text to continue in the final message!",
                    path=place,
                )
            final = content[index]["text"]
            marked = {**content[index], "text": join("", [final, CONTINUE_MARKER])}
            last["content"] = [*content[:index], marked, *content[index + 1 :]]
        else:
            final = content
            last["content"] = join("", [final, CONTINUE_MARKER])
        text = render(self._variables([*messages[:-1], last], kwargs, renderer))
        at = text.rfind(CONTINUE_MARKER.strip())
        if at < 0 or final.strip() not in text:
            raise RenderError(
                "continue_final_message is set but the final message does not appear in the chat after applying the chat "
                "template! This can happen if the chat template deletes portions of the final message. Please verify the "
                "chat template and final message in your chat to ensure they are compatible.",
                path=place,
            )
        head = text[:at]
        # A template that trimmed the message has trimmed the marker's space as well, so the head is trimmed too.
        return head if text.startswith(CONTINUE_MARKER, at) else head.rstrip()


def check_items(items: Any, complaint: str, path: str) -> None:
    try:
        wrong = any(not isinstance(item, dict) for item in items)
    except TypeError as error:
        raise RenderError(str(error), path=path) from None
    if wrong:
        raise RenderError(complaint, path=path)
