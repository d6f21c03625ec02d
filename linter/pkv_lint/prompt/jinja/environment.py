"""Chat templates, compiled and rendered as a server does it, but within limits."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2 import meta, nodes

from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.jinja.limits import LimitError, Limits, Meter
from pkv_lint.prompt.jinja.sandbox import LimitedContext, LimitedSandbox, Operations

LIMITS = Limits()
_LONGEST_MESSAGE = 4000
# What a server cuts out of the messages it answers with (vLLM's `sanitize_message`).
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+(?=>)")
_HIDDEN_PATH = re.compile(
    r"/(?:home|usr|opt|var|tmp|root|lib|mnt|srv)(?:/[\w.-]+)+"  # folders of a system
    r"|(?:/[\w-]+)+/[\w-]+\.\w+"  # any file with an ending
)
ADDED_FUNCTIONS = frozenset({"raise_exception", "strftime_now"})
_TRACING_COSTS = 20
"""How many times the time of a plain render a traced one may take for each message."""
_TRACED_ITEM = 8
"""How many times the memory of a short string a traced one takes."""

if TYPE_CHECKING:
    from pkv_lint.prompt.traced.strings import Traced


class Template:
    """A compiled chat template, rendered as often as needed."""

    def __init__(self, source: str, limits: Limits = LIMITS) -> None:
        """Raises RenderError for a template that does not parse."""
        self.source = source
        self.limits = limits
        self._environment = LimitedSandbox(limits)
        begin = time.thread_time()
        try:
            if len(source) > limits.source:
                raise LimitError(f"the chat template has more than {limits.source:,} characters")
            self._template = self._environment.from_string(source)
        except Exception as error:
            raise template_error(error) from error
        self._compiled_in = time.thread_time() - begin

    @cached_property
    def undeclared(self) -> frozenset[str]:
        """The names that the template takes from outside, as vLLM counts them (`_resolve_chat_template_kwargs`): there
        the functions that transformers adds are not known yet, so a request could replace them."""
        tree = self.parse()
        called = {node.name for node in tree.find_all(nodes.Name) if node.ctx == "load"}
        return frozenset(meta.find_undeclared_variables(tree)) | (called & ADDED_FUNCTIONS)

    def parse(self) -> nodes.Template:
        """The syntax tree."""
        return self._environment.parse(self.source)

    def render(self, variables: Mapping[str, Any], now: datetime) -> str:
        """The text for these variables; `now` is the naive local time that `strftime_now` sees.

        Raises RenderError with `from_template` where the template refuses the variables, fails on them or costs
        too much.
        """
        try:
            return rendered(self._template, variables, Operations(self._meter(variables, self.limits), now))
        except Exception as error:
            raise template_error(error) from error

    def _meter(self, variables: Mapping[str, Any], limits: Limits) -> Meter:
        messages = variables.get("messages")
        extra = limits.seconds_per_message * len(messages) if isinstance(messages, list) else 0.0
        return Meter(limits, max(limits.seconds - self._compiled_in, limits.seconds / 4) + extra)

    @cached_property
    def _tracing(self) -> jinja2.Template:
        from pkv_lint.prompt.jinja.tracing import TracingSandbox

        return TracingSandbox(self.limits).from_string(self.source)

    def render_traced(self, variables: Mapping[str, Any], now: datetime) -> Traced:
        """The text of `render` with the origins of its characters.

        Strings of `variables` that are not `Traced` yet count as part of the template, under the name of the variable:
        special tokens such as `bos_token`. Raises as `render` does.
        """
        from pkv_lint.prompt.jinja.tracing import TracingOperations
        from pkv_lint.prompt.origin import Source
        from pkv_lint.prompt.traced.strings import Traced, trace, untraced
        from pkv_lint.prompt.traced.values import untrace

        text = self.render({name: untrace(value) for name, value in variables.items()}, now)
        named = {
            name: trace(value, Source("template", name)) if type(value) is str else value
            for name, value in variables.items()
        }
        limits = replace(
            self.limits,
            seconds_per_message=_TRACING_COSTS * self.limits.seconds_per_message,
            items=self.limits.items // _TRACED_ITEM,
        )
        try:
            followed = rendered(self._tracing, named, TracingOperations(self._meter(variables, limits), now))
        except Exception:
            return untraced(text)
        # A text that came out differently would show origins of something that no server sees.
        return followed if isinstance(followed, Traced) and followed == text else untraced(text)


def compile_template(source: str) -> Template:
    """Raises RenderError with `from_template` for a template that does not parse."""
    return Template(source)


def rendered(template: jinja2.Template, variables: Mapping[str, Any], operations: Operations) -> str:
    context = template.new_context(dict(variables))
    assert isinstance(context, LimitedContext)
    context.operations = operations
    return operations.concat(template.root_render_func(context))


def template_error(error: BaseException) -> RenderError:
    """The message a server gives for a failed render (vLLM's `_template_error_reason`)."""
    seen: set[int] = set()
    message = line = None
    current: BaseException | None = error
    while message is None and current is not None and id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, jinja2.TemplateError):
            message = str(current)
            line = current.lineno if isinstance(current, jinja2.TemplateSyntaxError) else None
        current = current.__cause__ or current.__context__
    if message is None:
        message = str(error) or f"the chat template fails with {type(error).__name__}"
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + "…"
    message = _HIDDEN_PATH.sub("<path>", _ADDRESS.sub("", message)).strip()
    return RenderError(message, from_template=True, template_line=line)
