"""Jinja's immutable sandbox, in which templates also cannot run for long, fill the memory or crash the process.

The code that Jinja generates is changed: loops, macros and blocks report to a `Meter` (`limits.py`), and operators,
calls and filters ask a guard first (`guards.py`). What a template prints stays the same to the character.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import BuiltinMethodType, MethodType
from typing import Any, NoReturn

from jinja2 import Environment, TemplateError, nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame, operators, optimizeconst
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEscapeFormatter, SandboxedFormatter
from jinja2.utils import Namespace
from markupsafe import Markup

from pkv_lint.prompt.jinja import guards
from pkv_lint.prompt.jinja.limits import Limits, Meter
from pkv_lint.prompt.tools import Tool

_COST_OF_NODE = 64
"""Units of work for one node of the syntax tree each time it may run: it makes objects of at most so many bytes that no
guard sees, and takes about as many nanoseconds."""

_SUMS_AT_ONCE = 4
_DICT_ATTRIBUTES = frozenset(dir(dict))
_MISSING = object()
# What the sandbox always allows: asking it costs more than most of these do.
_SAFE_ATTRIBUTES: Mapping[type, frozenset[str]] = {
    str: frozenset(name for name in dir(str) if not name.startswith(("_", "format"))),
    LoopContext: frozenset(name for name in dir(LoopContext) if not name.startswith("_")),
}


class Operations:
    """What the generated code calls, for one render."""

    def __init__(self, meter: Meter, now: datetime) -> None:
        self.meter = meter
        self.now = now

    def printed(self, value: Any) -> str:
        """`str(value)`."""
        if type(value) is str:
            if len(value) > 1024:
                self.meter.text(len(value))
            return value
        return str(self.meter.weighed(value))

    def concat(self, pieces: Iterable[str]) -> str:
        """What a macro, a set block or the whole template gives."""
        pieces = list(pieces)
        self.meter.text(sum(map(len, pieces)))
        return "".join(pieces)

    def tilde(self, values: Iterable[Any]) -> str:
        """The operator `~`."""
        return self.concat(map(self.printed, values))

    def markup_tilde(self, values: tuple[Any, ...], autoescape: bool) -> str:
        """The operator `~` inside of an autoescape block: one Markup among the values has the others escaped."""
        if autoescape and any(hasattr(value, "__html__") for value in values):
            self.meter.text(6 * sum(map(self.meter.weigh, values)))
            return Markup("").join(values)
        return self.tilde(values)

    def tojson(self, value: Any, ensure_ascii: bool, indent: Any, separators: Any, sort_keys: bool) -> str:
        if type(value) is Tool and not (ensure_ascii or sort_keys) and indent is None and separators is None:
            return self.meter.made(value._json_text())
        weight = self.meter.weigh(value)
        if separators is not None:
            self.meter.text(weight // 8 * self.meter.weigh(separators))
        encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        if indent is None or isinstance(value, str):
            return self.meter.made(encoder.encode(value))
        # The encoder indents in Python: slowly, but in pieces. A level may be repeated as often as Python recurs.
        self.meter.text(1000 * (len(indent) if isinstance(indent, str) else guards.size_of(indent)))
        return self.concat(self.meter.ticking(encoder.iterencode(value)))

    def member(self, left: Any, right: Any) -> bool:
        """The operator `in`."""
        kind = type(right)
        if type(left) is str and (kind is dict or (kind is str and len(right) < 4096)):
            return left in right
        return guards.member(self.meter, left, right)

    def format(self, environment: Environment, template: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """`template.format(*args, **kwargs)`; what the fields lead to is looked up in the sandbox."""
        if isinstance(template, Markup):
            formatter = _formatter(SandboxedEscapeFormatter, self.meter)(environment, escape=template.escape)
            return Markup(formatter.vformat(template, args, kwargs))
        return _formatter(SandboxedFormatter, self.meter)(environment).vformat(template, args, kwargs)

    def strftime(self, format: str) -> str:
        if isinstance(format, str):
            self.meter.text(1000 * len(format))
        return self.now.strftime(format)


class LimitedContext(Context):
    """Carries the operations of the render it belongs to."""

    operations: Operations

    def derived(self, locals: dict[str, Any] | None = None) -> Context:
        context = super().derived(locals)
        assert isinstance(context, LimitedContext)
        context.operations = self.operations
        return context


class LimitedCodeGenerator(CodeGenerator):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._covered: set[int] = set()  # ids of sums that need no look of their own

    def write_commons(self) -> None:
        super().write_commons()
        self.writeline("operations = context.operations")
        self.writeline("meter = operations.meter")
        self.writeline("concat = operations.concat")
        self.writeline("printed = operations.printed")
        self.writeline("tick = meter.tick")
        self.writeline("ticked = meter.ticked")
        self.writeline("made = meter.made")
        self.writeline("member = operations.member")
        self.writeline("weighed = meter.weighed")

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        nodes = list(nodes)
        if not frame.soft_frame:  # the bodies of loops, macros and blocks, not of conditions
            self.writeline(f"tick({_cost(*nodes)})")
        super().blockvisit(nodes, frame)

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        if node.test is not None:
            tick = object.__new__(nodes.InternalName)
            nodes.Node.__init__(tick, f"ticked({_cost(node.test)})", lineno=node.lineno)
            node.test = nodes.And(tick, node.test, lineno=node.lineno)
        super().visit_For(node, frame)

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        if frame.eval_ctx.volatile:
            self.write("(escape if context.eval_ctx.autoescape else str)(weighed(")
        elif frame.eval_ctx.autoescape:
            self.write("escape(weighed(")
        else:
            self.write("printed(")  # looks at its argument as `made` does
            if isinstance(node, nodes.Add):
                self._covered.add(id(node))
                self._cover(node)

    def _output_child_post(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        self.write("))" if frame.eval_ctx.volatile or frame.eval_ctx.autoescape else ")")

    @optimizeconst
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        escaping = frame.eval_ctx.volatile or frame.eval_ctx.autoescape
        self.write("operations.markup_tilde((" if escaping else "operations.tilde((")
        for child in node.nodes:
            self.visit(child, frame)
            self.write(", ")
        self.write("), context.eval_ctx.autoescape)" if escaping else "))")

    @optimizeconst
    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:
        if id(node) not in self._covered:
            self._cover(node)
            self.write("made")
        self.write("(")
        self.visit(node.left, frame)
        self.write(" + ")
        self.visit(node.right, frame)
        self.write(")")

    def _cover(self, node: nodes.BinExpr) -> None:
        """The sums that a sum begins with are looked at with it, as long as no more than two large terms are in it."""
        terms = int(not isinstance(node.right, nodes.Const))
        left = node.left
        for _ in range(_SUMS_AT_ONCE):
            if not isinstance(left, nodes.Add):
                break
            terms += not isinstance(left.right, nodes.Const)
            if terms + (not isinstance(left.left, nodes.Const)) > 2:
                break
            self._covered.add(id(left))
            left = left.left

    @optimizeconst
    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        operands = [node.expr, *(operand.expr for operand in node.ops)]
        searched = node.ops[0].op in ("in", "notin")
        if len(operands) == 2 and searched and not _is_constant(operands[1]):
            self.write("(not " if node.ops[0].op == "notin" else "(")
            self.write("member(")
            self.visit(operands[0], frame)
            self.write(", ")
            self.visit(operands[1], frame)
            self.write("))")
        elif len(operands) == 2 and any(map(_is_constant, operands)):
            super().visit_Compare(node, frame)
        else:
            self.write("(weighed(")
            self.visit(node.expr, frame)
            for operand in node.ops:
                self.write(f") {operators[operand.op]} weighed(")
                self.visit(operand.expr, frame)
            self.write("))")

    @optimizeconst
    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if isinstance(node.arg, nodes.Slice):
            self.write("made(")
            super().visit_Getitem(node, frame)
            self.write(")")
        elif isinstance(node.arg, nodes.Const):
            super().visit_Getitem(node, frame)
        else:
            self.write("environment.getitem(")
            self.visit(node.node, frame)
            self.write(", weighed(")
            self.visit(node.arg, frame)
            self.write("))")

    def visit_Pair(self, node: nodes.Pair, frame: Frame) -> None:
        self.write("weighed(")
        self.visit(node.key, frame)
        self.write("): ")
        self.visit(node.value, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.write("{")
        for pair in node.items:
            self.visit(pair, frame)
            self.write(", ")
        self.write("}")


def _cost(*parts: nodes.Node) -> int:
    return _COST_OF_NODE * (1 + len(parts) + sum(1 for part in parts for _ in part.find_all(nodes.Node)))


def _is_constant(node: nodes.Node) -> bool:
    """Whether a comparison with it is cheap: it is small, and nothing is hashed to look it up there."""
    if isinstance(node, (nodes.List, nodes.Tuple)):
        return all(map(_is_constant, node.items))
    return isinstance(node, nodes.Const) and not isinstance(node.value, dict)


class StringFormat:
    """The method `format` or `format_map` of a string: fields are looked up in the sandbox."""

    def __init__(self, environment: ImmutableSandboxedEnvironment, template: str, is_map: bool) -> None:
        # Names that the sandbox hides: templates can hold this object.
        self._environment = environment
        self._template = template
        self._is_map = is_map

    @pass_context
    def __call__(self, context: LimitedContext, /, *args: Any, **kwargs: Any) -> str:
        if self._is_map:
            if kwargs:
                raise TypeError("format_map() takes no keyword arguments")
            if len(args) != 1:
                raise TypeError(f"format_map() takes exactly one argument ({len(args)} given)")
            return context.operations.format(self._environment, self._template, (), args[0])
        return context.operations.format(self._environment, self._template, args, kwargs)


def _formatter(kind: type[SandboxedFormatter], meter: Meter) -> type[SandboxedFormatter]:
    """A formatter of this kind that asks before it pads."""

    class LimitedFormatter(kind):  # type: ignore[misc, valid-type]
        length = 0

        def convert_field(self, value: Any, conversion: Any) -> Any:
            return super().convert_field(meter.weighed(value) if conversion else value, conversion)

        def format_field(self, value: Any, format_spec: str) -> Any:
            meter.text(self.length + guards.widest(format_spec))
            text = super().format_field(meter.weighed(value), format_spec)
            self.length += len(text)
            meter.text(self.length)
            return text

    return LimitedFormatter


class LimitedSandbox(ImmutableSandboxedEnvironment):
    """The environment of transformers' `_compile_jinja_template`, within limits."""

    code_generator_class = LimitedCodeGenerator
    context_class = LimitedContext
    dictionaries: tuple[type, ...] = (dict, Tool)
    intercepted_binops = frozenset({"*", "**", "%", "-"})

    def __init__(self, limits: Limits) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, LoopControlExtension])
        self.limits = limits
        self.filters = {name: guarded_filter(name, function) for name, function in self.filters.items()}
        self.filters["tojson"] = tojson
        for name, guard in guards.TESTS.items():
            test: Any = self.tests[name]
            self.tests[name] = _guarded_test(test, guard)
        self.globals["raise_exception"] = raise_exception
        self.globals["strftime_now"] = strftime_now

    def concat(self, pieces: Iterable[str]) -> str:
        """What `self.name()` of a block gives."""
        pieces = list(pieces)
        Meter(self.limits).text(sum(map(len, pieces)))
        return "".join(pieces)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        return guards.OPERATORS[operator](context.operations.meter, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        if type(obj) in self.dictionaries and attribute not in _DICT_ATTRIBUTES:
            # What the general way comes to after a failed look-up, which is slow.
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        if attribute in _SAFE_ATTRIBUTES.get(type(obj), ()):
            return getattr(obj, attribute)
        if type(obj) is Namespace and attribute[:1] != "_":
            value = getattr(obj, attribute, _MISSING)
            if value is not _MISSING:
                return value
        return super().getattr(obj, attribute)

    def wrap_str_format(self, value: Any) -> Any:
        if (
            isinstance(value, (MethodType, BuiltinMethodType))
            and value.__name__ in ("format", "format_map")
            and isinstance(value.__self__, str)
        ):
            return StringFormat(self, value.__self__, value.__name__ == "format_map")
        return None

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        meter: Meter = context.operations.meter
        kind = type(obj)
        if kind is not BuiltinMethodType and not (kind is MethodType and isinstance(obj.__self__, str)):
            if not self.is_safe_callable(obj):
                raise SecurityError(f"{meter.weighed(obj)!r} is not safely callable")
            return meter.made(context.call(obj, *guards.call(meter, obj, args, kwargs), **kwargs))
        # A method of a built-in value needs nothing of what Context.call does.
        kwargs.pop("_loop_vars", None)
        kwargs.pop("_block_vars", None)
        owner = obj.__self__
        if owner.__class__ is str and len(owner) > 4096:
            meter.tick(len(owner))
        name = obj.__name__
        guard = guards.METHODS.get(name)
        if guard is not None:
            guard(meter, owner, args, kwargs)
        elif name == "join" and len(args) == 1:
            args = (guards.joined(meter, owner, args[0]),)
        try:
            return meter.made(obj(*args, **kwargs))
        except StopIteration:
            return self.undefined("value was undefined because a callable raised a StopIteration exception")


def guarded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    guard = guards.FILTERS.get(name)
    if guard is None:
        return function
    passed = getattr(function, "jinja_pass_arg", None)
    kind = passed.name if passed is not None else None
    consuming = name in guards.CONSUMING

    # Filters that take the context are not run at compile time, on constants, where no meter is.
    @pass_context
    def guarded(context: LimitedContext, value: Any, *args: Any, **kwargs: Any) -> Any:
        meter = context.operations.meter
        guard(meter, value, args, kwargs)
        if consuming:
            value = guards.iterable(meter, value)
        if kind == "context":
            return function(context, value, *args, **kwargs)
        if kind == "eval_context":
            return meter.made(function(context.eval_ctx, value, *args, **kwargs))
        if kind == "environment":
            return meter.made(function(context.environment, value, *args, **kwargs))
        return meter.made(function(value, *args, **kwargs))

    return guarded


def _guarded_test(function: Callable[..., Any], guard: guards.Guard) -> Callable[..., Any]:
    @pass_context
    def guarded(context: LimitedContext, value: Any, *args: Any, **kwargs: Any) -> Any:
        guard(context.operations.meter, value, args, kwargs)
        return function(value, *args, **kwargs)

    return guarded


@pass_context
def raise_exception(context: LimitedContext, message: Any) -> NoReturn:
    raise TemplateError(context.operations.meter.weighed(message))


@pass_context
def tojson(
    context: LimitedContext,
    x: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return context.operations.tojson(x, ensure_ascii, indent, separators, sort_keys)


@pass_context
def strftime_now(context: LimitedContext, format: str) -> str:
    return context.operations.strftime(format)


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
