"""The sandbox in which every character of the output is followed back to where it came from.

Strings of the request and of the template are `Traced` (`traced.py`). What makes new strings of them without calling
their methods is replaced here: the code that Jinja generates for literals and output, and filters written in C or with
plain strings. What is missed loses its origins and becomes COMPUTED; it never gets wrong ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from jinja2 import Environment, nodes, pass_environment
from jinja2.compiler import Frame
from jinja2.filters import make_attrgetter
from jinja2.sandbox import SandboxedFormatter
from markupsafe import Markup

from pkv_lint.prompt.jinja.limits import Limits
from pkv_lint.prompt.jinja.sandbox import LimitedCodeGenerator, LimitedSandbox, Operations, guarded_filter
from pkv_lint.prompt.origin import Source
from pkv_lint.prompt.traced.formatting import format_fields
from pkv_lint.prompt.traced.markup import TracedMarkup, escaped, markup
from pkv_lint.prompt.traced.printing import json_of, text_of
from pkv_lint.prompt.traced.strings import Traced, concat, plain, separated, trace, traced
from pkv_lint.prompt.traced.values import TracedDict

_BEFORE_WORDS = re.compile(r"[-\s({\[<]+")


class TracingOperations(Operations):
    """The operations of a traced render."""

    def printed(self, value: Any) -> str:
        return text_of(self.meter.weighed(value))

    def concat(self, pieces: Iterable[str]) -> str:
        pieces = list(pieces)
        self.meter.text(sum(map(len, pieces)))
        return concat(pieces)

    def tojson(self, value: Any, ensure_ascii: bool, indent: Any, separators: Any, sort_keys: bool) -> str:
        return json_of(self.meter.weighed(value), ensure_ascii, indent, separators, sort_keys)

    def format(self, environment: Environment, template: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        if isinstance(template, TracedMarkup):
            return super().format(environment, Markup(plain(template)), args, kwargs)
        return format_fields(traced(template), args, kwargs, SandboxedFormatter(environment))

    def strftime(self, format: str) -> str:
        return trace(super().strftime(format), Source("clock", "strftime_now"))


class TracingCodeGenerator(LimitedCodeGenerator):
    """Emits literals that know the line of the template they stand on."""

    environment: TracingSandbox

    def write_commons(self) -> None:
        super().write_commons()
        self.writeline("literals = environment.literals")

    def _literal(self, value: Any, line: int) -> str:
        if isinstance(value, str):
            literals = self.environment.literals
            literals.append(trace(plain(value), Source("template", f"line {line}")))
            return f"literals[{len(literals) - 1}]"
        if isinstance(value, (list, tuple)):
            items = "".join(f"{self._literal(item, line)}, " for item in value)
            return f"[{items}]" if isinstance(value, list) else f"({items})"
        if isinstance(value, dict):
            return (
                "{" + "".join(f"{self._literal(k, line)}: {self._literal(v, line)}, " for k, v in value.items()) + "}"
            )
        return str(value) if isinstance(value, float) else repr(value)

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:
        self.write(self._literal(node.as_const(frame.eval_ctx), node.lineno))

    def visit_TemplateData(self, node: nodes.TemplateData, frame: Frame) -> None:
        if frame.eval_ctx.volatile or frame.eval_ctx.autoescape:
            super().visit_TemplateData(node, frame)
        else:
            self.write(self._literal(node.data, node.lineno))

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        # The line comes back in _output_const_repr, which sees nothing but the strings.
        text = super()._output_child_to_const(node, frame, finalize)
        return trace(plain(text), Source("template", f"line {node.lineno}"))

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        literals = self.environment.literals
        literals.append(concat(group))
        return f"literals[{len(literals) - 1}]"


class TracingSandbox(LimitedSandbox):
    code_generator_class = TracingCodeGenerator
    dictionaries = (dict, TracedDict)

    def __init__(self, limits: Limits) -> None:
        self.literals: list[Traced] = []
        super().__init__(limits)
        traced_filters: dict[str, Callable[..., Any]] = {
            "e": escaped,
            "escape": escaped,
            "forceescape": lambda value: escaped(text_of(value)),
            "indent": indent,
            "join": join,
            "safe": lambda value: markup(text_of(value)),
            "string": lambda value: value if isinstance(value, str) else text_of(value),
            "title": title,
        }
        self.filters |= {name: guarded_filter(name, function) for name, function in traced_filters.items()}

    def concat(self, pieces: Iterable[str]) -> str:
        pieces = list(pieces)
        super().concat(pieces)
        return concat(pieces)


# Filters, as Jinja has them in an environment that does not escape


def title(value: Any) -> str:
    text = traced(value if isinstance(value, str) else text_of(value))
    pieces: list[str] = []
    bounds = [0, *(at for between in _BEFORE_WORDS.finditer(text) for at in between.span()), len(text)]
    for start, end in pairwise(bounds):
        if start < end:
            pieces += (text[start].upper(), text[start + 1 : end].lower())
    return concat(pieces)


def indent(s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    indention = width if isinstance(width, str) else " " * width
    pieces: list[str] = [indention] if first else []
    for i, line in enumerate(traced(s + "\n").splitlines()):
        if i:
            pieces += ("\n", indention) if line or blank else ("\n",)
        pieces.append(line)
    text = concat(pieces)
    return markup(text) if isinstance(s, TracedMarkup) else text


@pass_environment
def join(environment: Environment, value: Any, d: str = "", attribute: str | int | None = None) -> str:
    if attribute is not None:
        value = map(make_attrgetter(environment, attribute), value)
    return concat(separated(text_of(d), map(text_of, value)))
