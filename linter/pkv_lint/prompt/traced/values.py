"""JSON values whose strings, names and numbers remember where they stand in a request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pkv_lint.prompt.origin import COMPUTED, Source
from pkv_lint.prompt.source import format_path, join_path, parse_path
from pkv_lint.prompt.traced.strings import Traced, concat, plain, separated, trace, written

CONSTANTS: Mapping[Any, str] = {True: "true", False: "false", None: "null"}


class TracedInt(int):
    """A number that prints as traced text; arithmetic makes plain numbers of it."""

    _printed: Traced

    def __str__(self) -> Traced:
        return respelled(self._printed, int.__repr__(self))


class TracedFloat(float):
    """See TracedInt."""

    _printed: Traced

    def __str__(self) -> Traced:
        return respelled(self._printed, float.__repr__(self))


class TracedDict(dict[Any, Any]):
    """`_syntax` is the source of the braces and separators that are written for it, `_constants` the text of members
    that are true, false or null (values of these types cannot carry it).

    The underscores keep templates, which find members as attributes, from seeing them.
    """

    __slots__ = ("_constants", "_syntax")
    _constants: dict[Any, Traced]
    _syntax: Source

    def __init__(self, members: Mapping[Any, Any], syntax: Source, constants: dict[Any, Traced]) -> None:
        super().__init__(members)
        self._syntax = syntax
        self._constants = constants

    def __str__(self) -> str:
        from pkv_lint.prompt.traced.printing import repr_of

        return repr_of(self)


class TracedList(list[Any]):
    """See TracedDict; `_constants` are by index."""

    __slots__ = ("_constants", "_syntax")
    _constants: dict[Any, Traced]
    _syntax: Source

    def __init__(self, items: list[Any], syntax: Source, constants: dict[Any, Traced]) -> None:
        super().__init__(items)
        self._syntax = syntax
        self._constants = constants

    def __str__(self) -> str:
        from pkv_lint.prompt.traced.printing import repr_of

        return repr_of(self)


def trace_value(value: Any, path: str) -> Any:
    """A deep copy of a JSON value with origins: strings and names are `Traced`, numbers print so.

    A value without any origins stands at `path`. Where parts of it have origins they are kept, and the rest counts as
    written for the smallest value of the request that holds those parts (which need not stand at `path`).
    """
    if isinstance(value, (dict, list)):
        syntax = syntax_of(value)
        return _placed(value, path) if syntax is COMPUTED else _completed(value, syntax)
    return _placed(value, path)


def _placed(value: Any, path: str) -> Any:
    if isinstance(value, dict):
        places = {key: member_path(path, key) for key in value}
        members = {
            trace(key, Source("key", places[key])) if isinstance(key, str) else key: _placed(child, places[key])
            for key, child in value.items()
        }
        constants = {
            key: trace(CONSTANTS[child], Source("value", places[key]))
            for key, child in value.items()
            if child is None or isinstance(child, bool)
        }
        return TracedDict(members, Source("syntax", path), constants)
    if isinstance(value, list):
        items = [_placed(child, f"{path}[{i}]") for i, child in enumerate(value)]
        constants = {
            i: trace(CONSTANTS[child], Source("value", f"{path}[{i}]"))
            for i, child in enumerate(value)
            if child is None or isinstance(child, bool)
        }
        return TracedList(items, Source("syntax", path), constants)
    if type(value) is str:
        return trace(value, Source("value", path))
    if type(value) in (int, float):
        return traced_number(value, trace(repr(value), Source("value", path)))
    return value


def _completed(value: Any, syntax: Source) -> Any:
    """A copy of a partly traced value; what has no origin in it was written for `syntax`."""
    if isinstance(value, dict):
        constants = dict(getattr(value, "_constants", {}))
        members = {}
        for key, child in value.items():
            name = named(key, child, syntax)
            members[name] = _completed(child, syntax_or(child, syntax))
            if child is None or isinstance(child, bool):
                constants.setdefault(name, written(CONSTANTS[child], syntax))
        return TracedDict(members, syntax, constants)
    if isinstance(value, list):
        constants = dict(getattr(value, "_constants", {}))
        for i, child in enumerate(value):
            if child is None or isinstance(child, bool):
                constants.setdefault(i, written(CONSTANTS[child], syntax))
        return TracedList([_completed(child, syntax_or(child, syntax)) for child in value], syntax, constants)
    if type(value) is str:
        return written(value, syntax)
    if type(value) in (int, float):
        return traced_number(value, written(repr(value), syntax))
    return value


def named(key: Any, child: Any, syntax: Source) -> Any:
    """The name of a member of a container that was written for `syntax`, with an origin."""
    if type(key) is not str or syntax.kind != "syntax":
        return key
    place = member_path(syntax.where, key)
    where = path_of(child)
    if where is not None and (where == place or where.startswith((f"{place}.", f"{place}["))):
        return trace(key, Source("key", place))
    return written(key, syntax)


def traced_number(value: int | float, printed: Traced) -> int | float:
    number: Any = TracedInt(value) if isinstance(value, int) else TracedFloat(value)
    number._printed = printed
    return number  # type: ignore[no-any-return]


def retrace(shaped: Any, original: Any) -> Any:
    """A copy of the plain value `shaped`, a reshaped form of `original`, with the traced parts of `original` in it.

    Members and items that are where they were and equal what they were become the traced ones; a member under another
    name is found by its value. The rest stays plain.
    """
    if isinstance(shaped, str):
        return original if isinstance(original, str) and original == shaped else shaped
    if isinstance(shaped, dict) and isinstance(original, dict):
        names = {name: name for name in original}
        moved = [value for name, value in original.items() if name not in shaped and isinstance(value, str)]
        members = {}
        for name, value in shaped.items():
            if name in original:
                members[names[name]] = retrace(value, original[name])
            else:
                members[name] = next((other for other in moved if other == value), value)
        constants = {name: text for name, text in getattr(original, "_constants", {}).items() if name in members}
        return TracedDict(members, syntax_of(original), constants)
    if isinstance(shaped, list) and isinstance(original, list) and len(shaped) == len(original):
        items = [retrace(value, other) for value, other in zip(shaped, original, strict=True)]
        return TracedList(items, syntax_of(original), getattr(original, "_constants", {}))
    if (type(shaped), type(original)) in ((int, TracedInt), (float, TracedFloat)):
        return original if shaped == original else shaped
    return shaped


def syntax_of(container: Any) -> Source:
    """What braces and separators of a dict or list were written for: itself, or, when it was put together from parts of
    a request, the smallest value there that holds all the parts."""
    if isinstance(container, (TracedDict, TracedList)):
        return container._syntax
    paths = list(_owners(container))
    return Source("syntax", common_path(paths)) if paths else COMPUTED


def syntax_or(value: Any, syntax: Source) -> Source:
    """`syntax_of` a container, or `syntax` where nothing tells."""
    found = syntax_of(value) if isinstance(value, (dict, list)) else COMPUTED
    return syntax if found is COMPUTED else found


def _owners(container: Any) -> Iterator[str]:
    """For each member or item from the request the path of the container it stands in there (if it is so placed)."""
    members = isinstance(container, dict)
    for key, child in container.items() if members else enumerate(container):
        if isinstance(key, Traced) and key._runs and key._runs[0][0].kind == "key":
            yield key._runs[0][0].where.removesuffix(format_path((str(key),))).removesuffix(".")
            continue
        where = path_of(child)
        if where is not None:
            step = format_path((str(key) if members else key,))
            inside = where.endswith(step) and (
                step.startswith("[") or where in (step, f"{where[: -len(step) - 1]}.{step}")
            )
            yield where[: len(where) - len(step)].removesuffix(".") if inside else where


def path_of(value: Any) -> str | None:
    """The path in the request of a traced value; None for anything else."""
    if isinstance(value, (TracedInt, TracedFloat)):
        value = value._printed
    if isinstance(value, Traced):
        return next((run[0].where for run in value._runs if run[0].kind in ("value", "syntax", "key")), None)
    if isinstance(value, (dict, list, tuple)):
        source = syntax_of(value)
        return source.where if source.kind == "syntax" else None
    return None


def common_path(paths: list[str]) -> str:
    """The path of the smallest value that holds the values at all these paths."""
    first = paths[0]
    if all(path == first for path in paths):
        return first
    steps = [parse_path(path) for path in paths]
    shared = 0
    while all(len(path) > shared and path[shared] == steps[0][shared] for path in steps):
        shared += 1
    return format_path(steps[0][:shared])


def member_path(path: str, key: object) -> str:
    return join_path(path, format_path((str(key),)))


def respelled(text: Traced, spelled: str) -> Traced:
    """`spelled`, another spelling of `text`, with its origins."""
    if len(spelled) == len(text):
        return text if spelled == text else Traced(spelled, text._ends, text._runs)
    source, offset, _ = text._runs[0]
    return written(spelled, source, offset)


def join(separator: str, parts: Iterable[str]) -> str:
    """`separator.join(parts)`; a separator without origins was written for the value that holds the parts."""
    parts = list(parts)
    if not any(isinstance(part, Traced) for part in parts):
        return separator.join(parts)
    if not isinstance(separator, Traced):
        paths = [path for path in map(path_of, parts) if path is not None]
        separator = written(separator, Source("syntax", common_path(paths)) if paths else COMPUTED)
    return concat(separated(separator, parts))


def untrace(value: Any) -> Any:
    """A deep copy of a JSON value without origins."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {untrace(key): untrace(child) for key, child in value.items()}
    if isinstance(value, list):
        return [untrace(child) for child in value]
    if isinstance(value, TracedInt):
        return int(value)
    return float(value) if isinstance(value, TracedFloat) else value
