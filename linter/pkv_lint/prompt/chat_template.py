"""One chat template, rendered for a request as vLLM and transformers do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from pkv_lint.prompt.content_format import content_format
from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.jinja.environment import compile_template
from pkv_lint.prompt.messages import ContentFormat, Message, conversation, join, without_developer
from pkv_lint.prompt.request import ChatRequest

CONTINUE_MARKER = "CONTINUE_FINAL_MESSAGE_TAG "
HF_PARAMETERS = frozenset(
    (
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
    )
)
"""Parameters of transformers' `apply_chat_template`: a request may pass them, no template variable comes of them."""
NOT_A_VARIABLE = HF_PARAMETERS | {"chat_template", "tokenize"}

Render = Callable[[dict[str, Any]], str]


class ChatTemplate:
    """One compiled template and what vLLM learns from its text."""

    def __init__(self, source: str) -> None:
        """Raises RenderError for a template that does not parse."""
        self.source = source
        self.template = compile_template(source)
        self.content_format: ContentFormat = content_format(self.template.parse())
        self.knows_developer = '"developer"' in source or "'developer'" in source

    @property
    def variables(self) -> frozenset[str]:
        """Names that the template takes from outside, `strftime_now` and other functions included."""
        return self.template.undeclared

    def text(
        self,
        prepared: ChatRequest,
        special_tokens: Mapping[str, str],
        now: datetime,
        *,
        content_format: ContentFormat,
        text_model: str | None = None,
        interleave: bool = False,
        traced: bool = False,
    ) -> str:
        """The prompt text; with `traced` the same text as a `Traced` string, for a request made of traced values.

        `special_tokens` are the tokenizer's; for `content_format`, `text_model` and `interleave` see `conversation`.
        Follows `safe_apply_chat_template` of vLLM and `apply_chat_template` of transformers in the order of their
        checks. Raises RenderError where they refuse.
        """
        if traced:

            def render(variables: dict[str, Any]) -> str:
                return self.template.render_traced(traced_variables(variables, special_tokens), now)
        else:

            def render(variables: dict[str, Any]) -> str:
                return self.template.render(variables, now)

        messages = conversation(prepared.messages, content_format, text_model=text_model, interleave=interleave)
        kwargs = prepared.template_kwargs
        for name in ("model_config", "tokenizer", "conversation"):
            if name in kwargs:
                raise RenderError(
                    f"safe_apply_chat_template() got multiple values for argument '{name}'",
                    path=f"chat_template_kwargs.{name}",
                )
        if not self.knows_developer and any(message["role"] == "developer" for message in messages):
            messages = without_developer(messages)
        if "self" in kwargs:
            raise RenderError(
                "maybe_make_thread_pool.<locals>.TokenizerPool.apply_chat_template() got multiple values for argument "
                "'self'",
                path="chat_template_kwargs.self",
            )
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
            return self._continued(messages, kwargs, special_tokens, render)
        return render(self._variables(messages, kwargs, special_tokens))

    def _variables(
        self, messages: list[Message], kwargs: Mapping[str, Any], special_tokens: Mapping[str, str]
    ) -> dict[str, Any]:
        accepted = {
            name: value
            for name, value in kwargs.items()
            # The template is analysed only for a name that stands in it.
            if name not in NOT_A_VARIABLE and name in self.source and name in self.template.undeclared
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
            **special_tokens,
            **accepted,
            "messages": messages,
            "tools": None if tools is None else list(tools),
            "documents": documents,
            "add_generation_prompt": kwargs["add_generation_prompt"],
        }

    def _continued(
        self, messages: list[Message], kwargs: Mapping[str, Any], special_tokens: Mapping[str, str], render: Render
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
        text = render(self._variables([*messages[:-1], last], kwargs, special_tokens))
        at = text.rfind(CONTINUE_MARKER.strip())
        if at < 0 or final.strip() not in text:
            raise RenderError(
                "continue_final_message is set but the final message does not appear in the chat after applying the "
                "chat template! This can happen if the chat template deletes portions of the final message. Please "
                "verify the chat template and final message in your chat to ensure they are compatible.",
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


def traced_variables(variables: Mapping[str, Any], special_tokens: Mapping[str, str]) -> dict[str, Any]:
    """The variables with an origin for what does not have one yet: containers that were built on the way, the names of
    their members, special tokens, arguments of the server."""
    from pkv_lint.prompt.origin import Source
    from pkv_lint.prompt.traced import trace, trace_value

    traced: dict[str, Any] = {}
    for name, value in variables.items():
        if name in special_tokens and value is special_tokens[name]:
            traced[name] = trace(value, Source("template", name))
        elif name in ("messages", "tools", "documents", "add_generation_prompt"):
            traced[name] = trace_value(value, name)
        else:
            traced[name] = trace_value(value, f"chat_template_kwargs.{name}")
    return traced
