"""A vLLM server with one template and the built-in vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from pkv_lint.prompt import builtin
from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.prompt import Prompt
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.template import ChatTemplates
from pkv_lint.prompt.tokenizer import Tokenizer

NOW = datetime(2026, 3, 9, 14, 5, 7)
USER = {"role": "user", "content": "hi"}
TOOL_PARSER = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")


class Server:
    """Answers requests as a `vllm serve` with these arguments would.

    `template` is given with `--chat-template`, or it is what the model's files hold.
    """

    def __init__(self, template: str | ChatTemplates, arguments: Sequence[str], tokenizer: Tokenizer) -> None:
        templates = ChatTemplates(template) if isinstance(template, str) else template
        deployment = Deployment.from_vllm_args(["--served-model-name", "m", *arguments])
        if deployment.max_model_len is None:
            deployment = replace(deployment, max_model_len=131072)
        self.arguments = arguments
        self.renderer = Renderer(templates, tokenizer, deployment)

    def prompt(self, *messages: Any, **fields: Any) -> Prompt:
        """The prompt of a body with these messages (one of the user by default) and further fields."""
        return self.renderer.render({"messages": list(messages or [USER]), **fields}, NOW, api="chat")

    def text(self, *messages: Any, **fields: Any) -> str:
        text = self.prompt(*messages, **fields).text
        assert text is not None
        return text

    def ids(self, *messages: Any, **fields: Any) -> list[int]:
        return self.prompt(*messages, **fields).token_ids.tolist()

    def refusal(self, *messages: Any, **fields: Any) -> RenderError:
        """The error that the body is answered with."""
        with pytest.raises(RenderError) as caught:
            self.prompt(*messages, **fields)
        assert caught.value.status in (400, 404, 500)
        return caught.value

    def accepts(self, *messages: Any, **fields: Any) -> bool:
        try:
            self.prompt(*messages, **fields)
        except RenderError:
            return False
        return True


@pytest.fixture(scope="session")
def vocabulary() -> Tokenizer:
    return builtin.load()[1]


@pytest.fixture(scope="session")
def serve(vocabulary: Tokenizer) -> Callable[..., Server]:
    """Starts a server: `serve(template, *arguments)`; with a tool parser unless arguments are given."""

    def start(template: str | ChatTemplates, *arguments: str, tokenizer: Tokenizer = vocabulary) -> Server:
        return Server(template, arguments or TOOL_PARSER, tokenizer)

    return start
