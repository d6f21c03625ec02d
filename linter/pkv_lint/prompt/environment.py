"""The Jinja environment in which a server renders chat templates: that of transformers' `_compile_jinja_template`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pkv_lint.prompt.errors import RenderError

_now: ContextVar[datetime] = ContextVar("now")


class Template:
    """A compiled chat template, rendered as often as needed."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._environment = _environment(ImmutableSandboxedEnvironment)
        try:
            self._template = self._environment.from_string(source)
        except Exception as error:
            raise template_error(error) from error

    @cached_property
    def undeclared(self) -> frozenset[str]:
        """The names that the template expects from outside (transformers' `_get_template_variables`)."""
        return frozenset(meta.find_undeclared_variables(self._environment.parse(self.source)))

    def render(self, variables: Mapping[str, Any], now: datetime) -> str:
        """The text for these variables; `now` is the naive local time that `strftime_now` sees.

        Raises RenderError with `from_template` where the template refuses the variables or fails on them.
        """
        token = _now.set(now)
        try:
            return self._template.render(variables)
        except Exception as error:
            raise template_error(error) from error
        finally:
            _now.reset(token)


def compile_template(source: str) -> Template:
    """Raises RenderError with `from_template` for a template that does not parse."""
    return Template(source)


def template_error(error: BaseException) -> RenderError:
    """The message a server gives for a failed render (vLLM's `_template_error_reason`)."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, jinja2.TemplateError):
            return RenderError(str(current), from_template=True)
        current = current.__cause__ or current.__context__
    return RenderError(str(error), from_template=True)


class GenerationTag(Extension):
    """`{% generation %}` of transformers (`AssistantTracker`) without its token mask: it prints its body, which has the
    scope of a call block."""

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    @staticmethod
    def _body(caller: Macro) -> str:
        return caller()


def raise_exception(message: Any) -> NoReturn:
    raise jinja2.TemplateError(message)


def tojson(
    x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(format: str) -> str:
    return _now.get().strftime(format)


def _environment(kind: type[ImmutableSandboxedEnvironment]) -> ImmutableSandboxedEnvironment:
    environment = kind(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, LoopControlExtension])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment
