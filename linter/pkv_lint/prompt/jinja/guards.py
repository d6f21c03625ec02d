"""What single operators, methods, filters and functions of a chat template would cost, found out before they run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Set
from types import GeneratorType, MethodType
from typing import Any

from jinja2.runtime import LoopContext
from jinja2.utils import Namespace, generate_lorem_ipsum
from markupsafe import Markup

from pkv_lint.prompt.jinja.limits import Meter

Guard = Callable[[Meter, Any, tuple[Any, ...], dict[str, Any]], None]

_DIGITS = re.compile(r"\d+")
_WIDTH = re.compile(r"\d+(?=[.\d*hlL]*[diouxXeEfFgGcrsa%])")
"""A number in a printf template that may be a width or a precision: a conversion follows it."""
_PIECE = 64
"""Bytes that one small string takes."""
_TEXT = (str, bytes)
_COST_OF_CALL = 1000


def argument(args: tuple[Any, ...], kwargs: Mapping[str, Any], position: int, name: str, default: Any = None) -> Any:
    return args[position] if len(args) > position else kwargs.get(name, default)


def is_text(value: Any) -> bool:
    return isinstance(value, _TEXT)


def size_of(value: Any) -> int:
    """A number as a size; 0 for what is none (Python will say so)."""
    return value if isinstance(value, int) else 0


# Operators


def multiply(meter: Meter, left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        meter.number(left.bit_length() + right.bit_length())
    for value, count in ((left, right), (right, left)):
        if isinstance(count, int):
            if is_text(value):
                meter.text(len(value) * count)
            elif isinstance(value, (list, tuple)):
                meter.items(len(value) * count)
    return meter.made(left * right)


def power(meter: Meter, left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        meter.number(left.bit_length() * max(right, 0))
    return left**right


def percent(meter: Meter, left: Any, right: Any) -> Any:
    if is_text(left):
        widths(meter, left, right)
    return meter.made(left % right)


def widths(meter: Meter, template: Any, values: Any) -> None:
    """A printf template pads, and each conversion may print all of the values."""
    if isinstance(template, bytes):
        template = template.decode("latin-1")
    conversions = template.count("%")
    length = len(template) + total(_WIDTH.findall(template))
    if conversions:
        length += meter.weigh(values) * (conversions if isinstance(values, Mapping) else 1)
    if "*" in template:
        for value in values if isinstance(values, tuple) else (values,):
            length += abs(size_of(value))
    meter.text(length)


def widest(specification: str) -> int:
    """The most characters that the widths in a format specification ask for."""
    return total(_DIGITS.findall(specification))


def total(numbers: Iterable[str]) -> int:
    return sum(int(digits[:18]) for digits in numbers)


def member(meter: Meter, left: Any, right: Any) -> bool:
    """`left in right`."""
    if isinstance(right, str):
        meter.weighed(right)
    elif isinstance(left, str) and len(left) < 256 and isinstance(right, (list, tuple)):
        meter.tick(16 * len(right))
    elif isinstance(right, Mapping):
        meter.weighed(left)
    else:
        meter.weighed(left)
        meter.weighed(right)
        if isinstance(right, GeneratorType):
            right = meter.ticking(right)
    return left in right


def subtract(meter: Meter, left: Any, right: Any) -> Any:
    for value in (left, right):
        if not isinstance(value, (int, float)):
            meter.weighed(value)  # views of dicts subtract as sets do
    return left - right


OPERATORS: Mapping[str, Callable[[Meter, Any, Any], Any]] = {
    "*": multiply,
    "**": power,
    "%": percent,
    "-": subtract,
}


# Methods of built-in values. A guard may look at anything; what it finds too large it refuses.


def _padded(meter: Meter, text: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if is_text(text):
        meter.text(size_of(argument(args, kwargs, 0, "width")))


def _tabs(meter: Meter, text: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if is_text(text):
        tabs = text.count("\t" if isinstance(text, str) else b"\t")
        meter.text(len(text) + tabs * size_of(argument(args, kwargs, 0, "tabsize", 8)))


def _replaced(meter: Meter, text: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not is_text(text) or len(args) < 2 or not all(is_text(arg) for arg in args[:2]):
        return
    meter.tick(len(text))
    grown = len(args[1]) - len(args[0])
    if grown > 0 and len(text) * grown > 4096:
        times = text.count(args[0])
        if len(args) > 2 and size_of(args[2]) >= 0:
            times = min(times, size_of(args[2]))
        meter.text(len(text) + times * grown)


def _split(meter: Meter, text: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if is_text(text) and len(text) > 100_000:
        separator = argument(args, kwargs, 0, "sep")
        pieces = text.count(separator) if separator and is_text(separator) else len(text) // 2
        limit = size_of(argument(args, kwargs, 1, "maxsplit", -1))
        _pieces(meter, pieces if limit < 0 else min(limit, pieces))
        meter.steps(len(text) * (1 + (len(separator) if is_text(separator) else 0)))


def _pieces(meter: Meter, count: int) -> None:
    meter.items(count)
    meter.tick(_PIECE * count)


def _lines(meter: Meter, text: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if isinstance(text, str) and len(text) > 100_000:
        # Everything that ends a line for `splitlines`.
        _pieces(meter, sum(text.count(end) for end in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"))


def _searched(meter: Meter, text: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Searches from the end, and strips of given characters, may look at the whole argument at every place."""
    if is_text(text):
        wanted = argument(args, kwargs, 0, "")
        if is_text(wanted) and len(text) > _PIECE:
            meter.steps(len(text) * len(wanted))
    elif isinstance(text, (list, tuple)):
        _compared(meter, text, args, kwargs)


def _compared(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not is_text(value):
        meter.weigh(value)
    for arg in args:
        meter.weighed(arg)


def _affixes(meter: Meter, text: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if args and isinstance(args[0], tuple):
        meter.weigh(args[0])


def _translated(meter: Meter, text: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if isinstance(text, str):
        table = args[0] if args else None
        longest = 1
        if isinstance(table, Mapping):
            longest = max((len(value) for value in table.values() if isinstance(value, str)), default=1)
        meter.text(len(text) * longest)


def _to_bytes(meter: Meter, number: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    meter.text(size_of(argument(args, kwargs, 0, "length", 1)))


def _keyed(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for arg in args:
        if type(arg) is not str:
            meter.weighed(arg)


def _bytes_to_number(meter: Meter, number: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if args and isinstance(args[0], bytes):
        meter.number(8 * len(args[0]))


def _encoded(meter: Meter, text: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    encoding = argument(args, kwargs, 0, "encoding", "utf-8")
    if is_text(text) and encoding not in ("utf-8", "ascii", "latin-1"):
        meter.steps(len(text) ** 2)  # so much for the slowest, "punycode"


def _stripped_of_tags(meter: Meter, text: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if isinstance(text, str):
        meter.steps(10 * len(text) ** 2)


METHODS: Mapping[str, Guard] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _padded),
    **dict.fromkeys(("split", "rsplit"), _split),
    **dict.fromkeys(("rfind", "rindex", "rpartition", "strip", "lstrip", "rstrip"), _searched),
    **dict.fromkeys(("index", "count"), _compared),
    **dict.fromkeys(("startswith", "endswith"), _affixes),
    **dict.fromkeys(("fromkeys", "get", "isdisjoint"), _keyed),
    **dict.fromkeys(("decode", "encode"), _encoded),
    "expandtabs": _tabs,
    "from_bytes": _bytes_to_number,
    "replace": _replaced,
    "splitlines": _lines,
    "striptags": _stripped_of_tags,
    "translate": _translated,
    "to_bytes": _to_bytes,
}


def joined(meter: Meter, separator: Any, parts: Any) -> list[Any]:
    """The parts for `separator.join`, as a list."""
    items: list[Any] = meter.listed(parts)
    # Markup escapes what it joins, each character to five at most.
    factor = 5 if isinstance(separator, Markup) else 1
    texts = sum(len(item) for item in items if is_text(item))
    meter.text(factor * texts + len(separator) * len(items))
    return items


# Functions


def call(meter: Meter, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The positional arguments for a macro, a function, a class or a method of the template engine."""
    meter.tick(_COST_OF_CALL + 16 * len(args))
    if function is dict or function is Namespace:
        for arg in args:
            if isinstance(arg, (list, tuple)):
                meter.weigh(arg)
        return tuple(meter.listed(arg) if isinstance(arg, GeneratorType) else arg for arg in args)
    if function is generate_lorem_ipsum:
        paragraphs = size_of(argument(args, kwargs, 0, "n", 5))
        words = size_of(argument(args, kwargs, 3, "max", 100))
        meter.steps(10_000 * max(paragraphs, 0) * max(words, 1))
    elif isinstance(function, MethodType) and isinstance(function.__self__, LoopContext):
        for arg in args:
            meter.weighed(arg)  # `loop.changed` compares
    return args


# Filters


def _printed(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The filter works on `str(value)`."""
    for arg in (value, *args, *kwargs.values()):
        meter.weighed(arg)


def _pieced(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The filter takes the text apart in Python."""
    _printed(meter, value, args, kwargs)
    _pieces(meter, 8 * len(value) if isinstance(value, str) and len(value) > 4096 else 0)


def _taken_apart(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The filter copies the rest of the text for each piece it finds."""
    _printed(meter, value, args, kwargs)
    meter.steps(10 * meter.weigh(value) ** 2)


def _laid_out(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    meter.steps(2500 * meter.weigh(value))


def _escaped(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    meter.text(6 * meter.weigh(value))


def _centered(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _printed(meter, value, args, kwargs)
    meter.text(size_of(argument(args, kwargs, 0, "width", 80)))


def _indented(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _printed(meter, value, args, kwargs)
    if isinstance(value, str):
        width = argument(args, kwargs, 0, "width", 4)
        width = len(width) if isinstance(width, str) else size_of(width)
        meter.text(width)
        _lines(meter, value, (), {})
        meter.text(len(value) + width * (2 + sum(value.count(end) for end in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")))


def _wrapped(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _printed(meter, value, args, kwargs)
    if isinstance(value, str):
        meter.steps(len(value) ** 2 // 10)
        ending = argument(args, kwargs, 2, "wrapstring")
        meter.text(len(value) * (1 + (len(ending) if isinstance(ending, str) else 1)))


def _substituted(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _printed(meter, value, args, kwargs)
    old, new = (argument(args, kwargs, i, name, "") for i, name in enumerate(("old", "new")))
    _replaced(meter, value, (old, new), {})


def _listed(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if isinstance(value, (list, tuple, range, Mapping, Set)):
        meter.items(len(value))
    elif isinstance(value, str):
        _pieces(meter, len(value))


def _joined(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if isinstance(value, (list, tuple, str, Mapping)):
        separator = argument(args, kwargs, 0, "d", "")
        meter.text(meter.weigh(value) + meter.weigh(separator) * len(value))


def _printf(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    meter.weighed(value)
    if isinstance(value, str):
        widths(meter, value, kwargs or args)


def _added(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _printed(meter, value, args, kwargs)
    start = argument(args, kwargs, 1, "start", 0)
    if not isinstance(start, (int, float)) and isinstance(value, (list, tuple)):
        meter.steps(8 * len(value) * (len(value) + meter.weigh(value)))


def _batched(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _lazy(meter, value, args, kwargs)
    meter.items(min(size_of(argument(args, kwargs, 0, "linecount")), 1 << 62))


def _sliced(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _lazy(meter, value, args, kwargs)
    meter.items(size_of(argument(args, kwargs, 0, "slices")))


def _rounded(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    precision = abs(size_of(argument(args, kwargs, 0, "precision", 0)))
    meter.number(4 * precision)
    if isinstance(value, (*_TEXT, list, tuple)):
        meter.text(len(value) * 10**precision)  # the filter multiplies before it rounds


def _numbered(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if is_text(value):
        meter.number(6 * len(value.strip()) if len(value) > 4300 else 0)


def _lazy(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The filter makes a generator."""
    for arg in (*args, *kwargs.values()):
        meter.weighed(arg)


FILTERS: Mapping[str, Guard] = {
    **dict.fromkeys(
        ("capitalize", "filesizeformat", "float", "lower", "safe", "string", "trim", "truncate", "upper"), _printed
    ),
    **dict.fromkeys(("title", "urlencode", "wordcount", "xmlattr"), _pieced),
    **dict.fromkeys(("striptags", "urlize"), _taken_apart),
    **dict.fromkeys(("e", "escape", "forceescape"), _escaped),
    **dict.fromkeys(("dictsort", "groupby", "max", "min", "sort", "unique"), _compared),
    **dict.fromkeys(
        ("attr", "first", "items", "last", "map", "random", "reject", "rejectattr", "select", "selectattr"), _lazy
    ),
    "batch": _batched,
    "center": _centered,
    "format": _printf,
    "indent": _indented,
    "int": _numbered,
    "join": _joined,
    "list": _listed,
    "pprint": _laid_out,
    "replace": _substituted,
    "reverse": _listed,
    "round": _rounded,
    "slice": _sliced,
    "sum": _added,
    "wordwrap": _wrapped,
}
"""Filters that take iterables get them as lists or as generators that tick; see `iterable`."""

CONSUMING = frozenset(
    (
        *("batch", "groupby", "join", "list", "map", "max", "min", "reject", "rejectattr", "reverse", "select"),
        *("selectattr", "slice", "sort", "sum", "unique"),
    )
)


def _tested(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for arg in (value, *args):
        meter.weighed(arg)


def _found(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if args:
        member(meter, value, args[0])


def _divided(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if is_text(value):
        widths(meter, value, args or 2)


COMPARISONS = (
    *("==", "eq", "equalto", "!=", "ne", ">", "gt", "greaterthan", ">=", "ge", "<", "lt", "lessthan", "<=", "le"),
    *("lower", "upper"),
)
TESTS: Mapping[str, Guard] = {
    **dict.fromkeys(COMPARISONS, _tested),
    **dict.fromkeys(("divisibleby", "even", "odd"), _divided),
    "in": _found,
}


def iterable(meter: Meter, value: Any) -> Any:
    """What a filter that walks through `value` gets instead: the same, or the same items with a look at the clock."""
    if isinstance(value, GeneratorType):
        return meter.ticking(value)
    if isinstance(value, (list, tuple, str, range)):
        meter.tick(16 * len(value))
        if len(value) > 4096:
            return meter.ticking(value)
    return value
