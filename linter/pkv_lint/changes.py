"""What differs between two requests, as something a person can act on, before any of it is rendered.

A `Change` says what happened and how to undo it; `equalised` undoes some, so that a render can show what they cost.
`head_changes` lists those in front of the history: system text, tools, template arguments. Bodies are in
chat-completions form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pkv_lint.patterns import values
from pkv_lint.prompt.source import format_path
from pkv_lint.text_changes import TextChange, text_changes

ChangeKind = Literal[
    "text",
    "tools_reordered",
    "tool_set",
    "tool_definition",
    "schema_keys",
    "history_edited",
    "history_removed",
    "history_inserted",
    "history_window",
    "history_pruned",
    "history_compacted",
    "reminder",
    "head",
    "arguments",
    "call_ids",
    "reasoning",
    "argument",
    "salt",
    "clock",
    "template",
    "reply",
]
Chat = Mapping[str, Any]
Steps = tuple[str | int, ...]
RENDERED_FIELDS = ("chat_template_kwargs", "documents", "reasoning_effort", "add_generation_prompt", "chat_template")


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs.

    `path` is the place in the later body, `span` the code points of the decoded string there (None for a whole value),
    `before` and `after` the two versions as text, `names` the tools concerned, `messages` how many messages went
    and came. `edits` say how to undo it, at as many `places`.
    """

    kind: ChangeKind
    path: str
    before: str = ""
    after: str = ""
    span: tuple[int, int] | None = None
    names: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = field(default=(), repr=False)
    messages: tuple[int, int] = (0, 0)
    places: int = 1


@dataclass(frozen=True, slots=True)
class Edit:
    """Put `value` where `steps` lead (ABSENT: take it away), or, with `span`, replace that part of the string or list
    there. Steps and spans are those of the later body, whatever else is undone with it."""

    steps: Steps
    value: Any
    span: tuple[int, int] | None = None


ABSENT = object()


def head_changes(before: Chat, after: Chat) -> list[Change]:
    """The differences in front of the history, those that usually stand first in a prompt first."""
    return [
        *template_arguments(before, after),
        *system_changes(split(before).system, split(after).system),
        *tool_changes(before.get("tools"), after.get("tools")),
        *tool_choice_changes(before.get("tool_choice"), after.get("tool_choice")),
    ]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of a body: the system and developer messages in front, and the history behind them."""

    system: list[Any]
    history: list[Any]


def split(chat: Mapping[str, Any]) -> Conversation:
    messages = chat.get("messages")
    messages = messages if isinstance(messages, list) else []
    count = 0
    while count < len(messages) and role(messages[count]) in ("system", "developer"):
        count += 1
    return Conversation(messages[:count], messages[count:])


def role(message: Any) -> str:
    return str(message.get("role")) if isinstance(message, dict) else ""


def equalised(chat: Chat, changes: Iterable[Change]) -> Chat:
    """A copy of the later body in which these changes did not happen."""
    edits = [edit for change in changes for edit in change.edits]
    # What is deeper goes first and spans go from the end, so that the places of the other edits stay valid.
    edits.sort(key=lambda edit: (len(edit.steps), edit.span or (0, 0)), reverse=True)
    for edit in edits:
        chat = edited(chat, edit.steps, edit)
    return chat


def edited(value: Any, steps: Steps, edit: Edit) -> Any:
    if not steps:
        if edit.span is None:
            return edit.value
        if isinstance(edit.value, Reordered):
            return [value[place] for place in edit.value.places]
        return value[: edit.span[0]] + edit.value + value[edit.span[1] :]
    step, rest = steps[0], steps[1:]
    if isinstance(value, list):
        assert isinstance(step, int)
        return [*value[:step], edited(value[step], rest, edit), *value[step + 1 :]]
    members = value or {}  # the later body may have none of the template's arguments, or null in their place
    if not rest and edit.value is ABSENT:
        return {name: item for name, item in members.items() if name != step}
    return {**members, step: edited(members.get(step), rest, edit)}


def template_arguments(before: Chat, after: Chat) -> Iterator[Change]:
    for name in RENDERED_FIELDS:
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if name == "chat_template_kwargs" and isinstance(old or {}, dict) and isinstance(new or {}, dict):
            old, new = old or {}, new or {}
            for key in {**old, **new}:
                if old.get(key) != new.get(key):
                    yield argument_change((name, key), old.get(key, ABSENT), new.get(key, ABSENT))
        else:
            yield argument_change((name,), before.get(name, ABSENT), after.get(name, ABSENT))


def argument_change(steps: Steps, old: Any, new: Any) -> Change:
    span = (0, len(new)) if isinstance(old, str) and isinstance(new, str) else None
    return Change("argument", format_path(steps), shown(old), shown(new), span, edits=(Edit(steps, old),))


def shown(value: Any) -> str:
    if value is ABSENT:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def system_changes(before: Sequence[Any], after: Sequence[Any]) -> Iterator[Change]:
    """Text that changed in the messages in front; a message that came or went is a change of all of them."""
    if len(before) != len(after):
        head = shared_items(before, after)
        tail = shared_items(before[head:][::-1], after[head:][::-1])
        gone, came = before[head : len(before) - tail], after[head : len(after) - tail]
        yield Change(
            "text",
            f"messages[{head}]",
            "\n".join(map(text_of, gone)),
            "\n".join(map(text_of, came)),
            edits=(Edit(("messages",), list(gone), (head, head + len(came))),),
        )
        return
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        yield from value_changes(("messages", index, "content"), content(old), content(new))
        for name in ("role", "name"):
            if isinstance(old, dict) and isinstance(new, dict) and old.get(name) != new.get(name):
                steps: Steps = ("messages", index, name)
                edits = (Edit(steps, old.get(name, ABSENT)),)
                yield Change("text", format_path(steps), shown(old.get(name)), shown(new.get(name)), edits=edits)


def shared_items(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many items two lists have in common in front."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def content(message: Any) -> Any:
    return message.get("content") if isinstance(message, dict) else None


def text_of(message: Any) -> str:
    value = content(message)
    if isinstance(value, list):
        return "\n".join(str(part.get("text", "")) for part in value if isinstance(part, dict))
    return value if isinstance(value, str) else ""


def value_changes(steps: Steps, old: Any, new: Any) -> Iterator[Change]:
    """What changed in a message's content: spans of text, or a whole value where its shape changed."""
    if old == new:
        return
    if isinstance(old, str) and isinstance(new, str):
        for change in text_changes(old, new, values):
            yield text_change(steps, old, new, change)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
                for name in one:
                    yield from value_changes((*steps, index, name), one[name], other[name])
            elif one != other:
                yield from value_changes((*steps, index), one, other)
    else:
        yield Change("text", format_path(steps), shown(old), shown(new), edits=(Edit(steps, old),))


def text_change(steps: Steps, old: str, new: str, change: TextChange) -> Change:
    before, after = old[slice(*change.before)], new[slice(*change.after)]
    return Change("text", format_path(steps), before, after, change.after, edits=(Edit(steps, before, change.after),))


def tool_changes(before: Any, after: Any) -> Iterator[Change]:
    """What happened to the tools: another set, another order, other definitions."""
    old, new = before if isinstance(before, list) else [], after if isinstance(after, list) else []
    old_names, new_names = [tool_name(tool) for tool in old], [tool_name(tool) for tool in new]
    if old == new and serialised(old) == serialised(new):
        return
    if sorted(old_names) != sorted(new_names):
        added = [name for name in new_names if name not in old_names]
        removed = [name for name in old_names if name not in new_names]
        yield Change(
            "tool_set",
            "tools",
            ", ".join(removed),
            ", ".join(added),
            names=(*(f"+{name}" for name in added), *(f"-{name}" for name in removed)),
            edits=(Edit(("tools",), before if before is not None else ABSENT),),
        )
        return
    places = order_of(old_names, new_names)
    if places != list(range(len(new))):
        first = next(i for i, place in enumerate(places) if i != place)
        yield Change(
            "tools_reordered",
            "tools",
            ", ".join(old_names),
            ", ".join(new_names),
            names=(old_names[first], new_names[first]),
            edits=(Edit(("tools",), Reordered(tuple(places)), (0, len(new))),),
        )
    for index, place in enumerate(places):
        yield from definition_changes(old[index], new[place], place)


def tool_choice_changes(before: Any, after: Any) -> Iterator[Change]:
    """`none` takes the tools out of the prompt when the server runs with --exclude-tools-when-tool-choice-none; a
    render shows whether it does."""
    if before != after and "none" in (before, after):
        old, new = ABSENT if before is None else before, ABSENT if after is None else after
        yield Change("tool_set", "tool_choice", shown(old), shown(new), edits=(Edit(("tool_choice",), old),))


@dataclass(frozen=True, slots=True)
class Reordered:
    """The value of an edit that puts the items of a list in another order: item `places[i]` comes `i`-th."""

    places: tuple[int, ...]


def tool_name(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, dict) else None
    return str(function.get("name")) if isinstance(function, dict) else ""


def order_of(old: Sequence[str], new: Sequence[str]) -> list[int]:
    """For each name of `old` its place in `new`; equal names in their order."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(new):
        places.setdefault(name, []).append(place)
    return [places[name].pop(0) for name in old]


def serialised(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def canonical(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def definition_changes(old: Any, new: Any, index: int) -> Iterator[Change]:
    """One tool under the same name: keys in another order, or another text."""
    if old == new and serialised(old) == serialised(new):
        return
    steps: Steps = ("tools", index)
    if canonical(unordered(old)) == canonical(unordered(new)):
        place = (*steps, *first_reordering(old, new))
        yield Change(
            "schema_keys",
            format_path(place),
            serialised(old),
            serialised(new),
            names=(tool_name(new),),
            edits=(Edit(steps, old),),
        )
        return
    inner = first_difference(old, new)
    was, now = reached(old, inner), reached(new, inner)
    span = None
    if isinstance(was, str) and isinstance(now, str):
        changes = text_changes(was, now, values)
        span = (changes[0].after[0], changes[-1].after[1])
        was = was[changes[0].before[0] : changes[-1].before[1]]
        now = now[slice(*span)]
    yield Change(
        "tool_definition",
        format_path((*steps, *inner)),
        shown(was),
        shown(now),
        span,
        names=(tool_name(new),),
        edits=(Edit(steps, old),),
    )


def unordered(value: Any, name: str = "") -> Any:
    """The value with `required` lists sorted: their order means nothing (that of `enum` may)."""
    if isinstance(value, dict):
        return {key: unordered(item, key) for key, item in value.items()}
    if isinstance(value, list):
        items = [unordered(item) for item in value]
        return sorted(items, key=canonical) if name == "required" else items
    return value


def first_reordering(old: Any, new: Any) -> Steps:
    """The innermost value whose members stand in another order."""
    if isinstance(old, dict) and isinstance(new, dict):
        if list(old) != list(new):
            return ()
        for key in new:
            if serialised(old[key]) != serialised(new[key]):
                return (key, *first_reordering(old[key], new[key]))
    if isinstance(old, list) and isinstance(new, list):
        for index, (one, other) in enumerate(zip(old, new, strict=False)):
            if serialised(one) != serialised(other):
                return () if canonical(one) != canonical(other) else (index, *first_reordering(one, other))
    return ()


def first_difference(old: Any, new: Any) -> Steps:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**new, **old}:
            if key not in old or key not in new:
                return (key,) if key in new else ()
            if old[key] != new[key]:
                return (key, *first_difference(old[key], new[key]))
    if isinstance(old, list) and isinstance(new, list):
        for index, (one, other) in enumerate(zip(old, new, strict=False)):
            if one != other:
                return (index, *first_difference(one, other))
    return ()


def reached(value: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return ABSENT
    return value
