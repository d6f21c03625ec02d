"""Chat templates, compiled and rendered as a server does it, but within limits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any

import jinja2
from jinja2 import meta, nodes

from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.limits import LimitError, Limits, Meter
from pkv_lint.prompt.sandbox import LimitedContext, LimitedSandbox, Operations

LIMITS = Limits()
_LONGEST_MESSAGE = 4000


class Template:
    """A compiled chat template, rendered as often as needed."""

    def __init__(self, source: str, limits: Limits = LIMITS) -> None:
        """Raises RenderError for a template that does not parse."""
        self.source = source
        self.limits = limits
        self._environment = LimitedSandbox(limits)
        try:
            if len(source) > limits.source:
                raise LimitError(f"the chat template has more than {limits.source:,} characters")
            self._template = self._environment.from_string(source)
        except Exception as error:
            raise template_error(error) from error

    @cached_property
    def undeclared(self) -> frozenset[str]:
        """The names that the template expects from outside (transformers' `_get_template_variables`)."""
        return frozenset(meta.find_undeclared_variables(self.parse()))

    def parse(self) -> nodes.Template:
        """The syntax tree."""
        return self._environment.parse(self.source)

    def render(self, variables: Mapping[str, Any], now: datetime) -> str:
        """The text for these variables; `now` is the naive local time that `strftime_now` sees.

        Raises RenderError with `from_template` where the template refuses the variables, fails on them or costs
        too much.
        """
        try:
            return rendered(self._template, variables, Operations(Meter(self.limits), now))
        except Exception as error:
            raise template_error(error) from error


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
    message = None
    current: BaseException | None = error
    while message is None and current is not None and id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, jinja2.TemplateError):
            message = str(current)
        current = current.__cause__ or current.__context__
    message = str(error) if message is None else message
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + "…"
    return RenderError(message, from_template=True)
