"""`%`, `str.format` and format specifications on traced text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any

from pkv_lint.prompt.traced.printing import repr_of, text_of
from pkv_lint.prompt.traced.strings import Builder, Traced, concat, plain, repeated, traced, untraced, written
from pkv_lint.prompt.traced.values import TracedFloat, TracedInt

_CONVERSION = re.compile(
    r"%(?:\((?P<name>[^()]*)\))?(?P<flags>[-+ #0]*)(?P<width>\d*)(?:\.(?P<precision>\d*))?[hlL]?(?P<kind>.)", re.S
)
_SPEC = re.compile(r"(?:(?P<fill>.)?(?P<align>[<>^=]))?(?P<width>\d+)?(?:\.(?P<precision>\d+))?s?", re.S)


def percent(template: Traced, values: Any) -> Traced:
    """`template % values`."""
    result = plain(template) % values  # says what is wrong, and what the text must be
    positional = iter(values if isinstance(values, tuple) else (values,))
    builder = Builder()
    at = 0
    for match in _CONVERSION.finditer(template):
        builder.add(template._cut(at, match.start()))
        at = match.end()
        if match["kind"] == "%":
            builder.add(template._cut(at - 1, at))
            continue
        if "*" in match[0]:
            break
        value = values[match["name"]] if match["name"] is not None else next(positional, "")
        builder.add(_converted(match, value))
    builder.add(template._cut(at, len(template)))
    text = builder.build()
    return text if text == result else untraced(result)


def _converted(match: re.Match[str], value: Any) -> str:
    if match["kind"] in "sr":
        text = text_of(value) if match["kind"] == "s" else repr_of(value)
        if match["precision"] is not None:
            text = text[: int(match["precision"] or 0)]
        return padded(text, int(match["width"] or 0), "<" if "-" in match["flags"] else ">", " ")
    conversion = "%" + match[0][1:] if match["name"] is None else "%" + match[0][match[0].index(")") + 1 :]
    return respelled_number(value, conversion % (value,))


def respelled_number(value: Any, text: str) -> str:
    """A number as some format prints it."""
    if isinstance(value, (TracedInt, TracedFloat)):
        if text == value._printed:
            return value._printed
        source, offset, _ = value._printed._runs[0]
        return written(text, source, offset)
    return text


def padded(text: str, width: int, align: str, fill: str) -> str:
    missing = max(0, width - len(text))
    if not missing:
        return text
    left = {"<": 0, ">": missing, "^": missing // 2}[align]
    return concat((*repeated(fill, left), text, *repeated(fill, missing - left)))


def formatted(value: Any, spec: str) -> str:
    """`format(value, spec)`."""
    spec = plain(spec)
    if not spec:
        return text_of(value)
    if isinstance(value, Traced):
        result = str.__format__(value, spec)
        match = _SPEC.fullmatch(spec)
        if match is None:
            return untraced(result)
        text = value if match["precision"] is None else value[: int(match["precision"])]
        align = match["align"] or "<"
        text = traced(padded(text, int(match["width"] or 0), align.replace("=", "<"), match["fill"] or " "))
        return text if text == result else untraced(result)
    return respelled_number(value, format(value, spec))


def format_fields(
    template: Traced, args: Sequence[Any], kwargs: Mapping[str, Any], formatter: Formatter | None = None
) -> Traced:
    """`template.format(*args, **kwargs)`; `formatter` looks the fields up."""
    formatter = formatter or Formatter()
    result = formatter.vformat(plain(template), args, kwargs)
    builder = Builder()
    at = automatic = 0
    for literal, field, spec, conversion in formatter.parse(plain(template)):
        builder.add(template._cut(at, at + len(literal)))
        at += len(literal)
        if field is None:
            at += 1  # the second of two braces
            continue
        at = _field_end(template, at)
        if not field:
            field = str(automatic)
            automatic += 1
        value, _ = formatter.get_field(field, args, kwargs)
        if conversion:
            value = text_of(value) if conversion == "s" else repr_of(value)
        builder.add(formatted(value, formatter.vformat(spec or "", args, kwargs)))
    text = builder.build()
    return text if text == result else untraced(result)


def _field_end(template: str, at: int) -> int:
    """Where the field whose opening brace is at `at` ends."""
    depth = 0
    for brace in re.compile("[{}]").finditer(template, at):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return brace.end()
    return len(template)
