"""How one request differs from an earlier one, as causes a person can act on, before any of it is rendered.

`compare` lists what happened to the parts a prompt is made of (tools, system text, history, template arguments);
`equalised` undoes some of it, so that a render can show what it cost. Bodies are in chat-completions form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Literal

from .patterns import values
from .prompt.source import format_path
from .text_changes import TextChange, shared_ends, text_changes

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
RENDERED_FIELDS = ("chat_template_kwargs", "documents", "reasoning_effort", "add_generation_prompt", "chat_template")


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs.

    `path` is the place in the later body, `span` the code points of the decoded string there (None for a whole value),
    `before` and `after` the two versions as text, `names` the tools concerned. `edits` say how to undo it.
    """

    kind: ChangeKind
    path: str
    before: str = ""
    after: str = ""
    span: tuple[int, int] | None = None
    names: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Edit:
    """Put `value` where `steps` lead (ABSENT: take it away), or, with `span`, replace that part of the string or list
    there. Steps and spans are those of the later body, whatever else is undone with it."""

    steps: tuple[str | int, ...]
    value: Any
    span: tuple[int, int] | None = None


ABSENT = object()


def compare(before: Chat, after: Chat) -> list[Change]:
    """The differences, those that usually stand first in a prompt first."""
    old, new = split(before), split(after)
    return [
        *template_arguments(before, after),
        *system_changes(old.system, new.system),
        *tool_changes(before.get("tools"), after.get("tools")),
        *tool_choice_changes(before.get("tool_choice"), after.get("tool_choice")),
        *(history_changes(old.history, new.history, len(new.system)) if continues(old.history, new.history) else ()),
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


def edited(value: Any, steps: tuple[str | int, ...], edit: Edit) -> Any:
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
    if not rest and edit.value is ABSENT:
        return {name: item for name, item in value.items() if name != step}
    return {**value, step: edited(value.get(step), rest, edit)}


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


def argument_change(steps: tuple[str | int, ...], old: Any, new: Any) -> Change:
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


def value_changes(steps: tuple[str | int, ...], old: Any, new: Any) -> Iterator[Change]:
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


def text_change(steps: tuple[str | int, ...], old: str, new: str, change: TextChange) -> Change:
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
    steps: tuple[str | int, ...] = ("tools", index)
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


def first_reordering(old: Any, new: Any) -> tuple[str | int, ...]:
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


def first_difference(old: Any, new: Any) -> tuple[str | int, ...]:
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


def continues(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Whether the later history goes on from the earlier one: it keeps most of it and adds to it."""
    if not before or len(after) < 2:
        return False
    if after[: len(before)] == before:
        return True
    kept = sum(size for _, _, size in blocks(before, after))
    if not kept:
        kept = sum(resembles(old, new) for old, new in zip(before, after, strict=False))
    return kept * 2 >= min(len(before), len(after))


def resembles(old: Any, new: Any) -> bool:
    """Whether two messages are versions of one: the same role, and most of the text at its ends."""
    if role(old) != role(new):
        return False
    one, other = text_of(old), text_of(new)
    return sum(shared_ends(one, other)) * 2 >= max(len(one), len(other))


def blocks(before: Sequence[Any], after: Sequence[Any]) -> list[tuple[int, int, int]]:
    """The stretches of messages that say the same, in order: (place before, place after, length)."""
    keys = [[gist(message) for message in side] for side in (before, after)]
    matcher = SequenceMatcher(None, keys[0], keys[1], autojunk=False)
    return [(b, a, size) for b, a, size in matcher.get_matching_blocks() if size]


def gist(message: Any) -> str:
    """What a message says, whatever its ids, its reasoning and the notation of its arguments."""
    if not isinstance(message, dict):
        return repr(message)
    calls = message.get("tool_calls")
    return canonical(
        [role(message), text_of(message), [call_gist(call) for call in calls] if isinstance(calls, list) else []]
    )


def call_gist(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    return [function.get("name"), parsed(function.get("arguments"))]


def parsed(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return text


def history_changes(before: Sequence[Any], after: Sequence[Any], first: int) -> Iterator[Change]:
    """What happened to the messages of the earlier request; `first` is the place of `after[0]` in the body."""
    same = blocks(before, after)
    old_at = new_at = 0
    for old_start, new_start, size in [*same, (len(before), None, 0)]:
        gone = list(before[old_at:old_start])
        if new_start is None:
            # Behind the last message in common: what the earlier request ended with against what stands there now. A
            # later history that ends here too is another branch, not a rewritten one.
            came = list(after[new_at : new_at + len(gone)])
            if not gone or len(after) <= new_at + len(gone):
                break
        else:
            came = list(after[new_at:new_start])
        yield from stretch_changes(gone, came, new_at + first, old_at, bool(same) and new_start is not None)
        if new_start is None:
            break
        for offset in range(size):
            yield from message_changes(
                before[old_start + offset], after[new_start + offset], first + new_start + offset
            )
        old_at, new_at = old_start + size, new_start + size


def stretch_changes(gone: list[Any], came: list[Any], place: int, old_place: int, inside: bool) -> Iterator[Change]:
    """A stretch of messages that was replaced, taken out or put in."""
    if not gone and not came:
        return
    if len(gone) == len(came) and [role(message) for message in gone] == [role(message) for message in came]:
        for offset, (old, new) in enumerate(zip(gone, came, strict=True)):
            yield from edited_message(old, new, place + offset)
        return
    if gone and not came:
        window = old_place <= 2 and inside
        kind: ChangeKind = "history_window" if window else "history_removed"
    else:
        kind = "history_edited" if gone else "history_inserted"
    yield Change(
        kind,
        f"messages[{place}]",
        "\n".join(map(text_of, gone)),
        "\n".join(map(text_of, came)),
        names=(str(len(gone)), str(len(came))),
        edits=(Edit(("messages",), gone, (place, place + len(came))),),
    )


def edited_message(old: Any, new: Any, place: int) -> Iterator[Change]:
    if isinstance(content(old), str) and isinstance(content(new), str) and content(old) != content(new):
        changes = text_changes(content(old), content(new), values)
        span = (changes[0].after[0], changes[-1].after[1])
        old_span = (changes[0].before[0], changes[-1].before[1])
        yield Change(
            "history_edited",
            f"messages[{place}].content",
            content(old)[slice(*old_span)],
            content(new)[slice(*span)],
            span,
            edits=(Edit(("messages", place), old),),
        )
    else:
        yield Change(
            "history_edited", f"messages[{place}]", shown(old), shown(new), edits=(Edit(("messages", place), old),)
        )


def message_changes(old: Any, new: Any, place: int) -> Iterator[Change]:
    """A message that says the same: its call ids, the notation of its arguments, its reasoning, its content's form."""
    if old == new:
        return
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return
    steps: tuple[str | int, ...] = ("messages", place)
    for name in ("reasoning_content", "reasoning"):
        if old.get(name) != new.get(name):
            yield Change(
                "reasoning",
                format_path(steps),
                shown(old.get(name) or ""),
                shown(new.get(name) or ""),
                edits=(Edit((*steps, name), old.get(name, ABSENT)),),
            )
    if old.get("tool_call_id") != new.get("tool_call_id"):
        yield scalar_change("call_ids", (*steps, "tool_call_id"), old.get("tool_call_id"), new.get("tool_call_id"))
    if content(old) != content(new):
        yield Change(
            "history_edited",
            format_path((*steps, "content")),
            shown(content(old)),
            shown(content(new)),
            edits=(Edit((*steps, "content"), content(old)),),
        )
    one, other = old.get("tool_calls"), new.get("tool_calls")
    if isinstance(one, list) and isinstance(other, list):
        for index, (call, later) in enumerate(zip(one, other, strict=False)):
            if not (isinstance(call, dict) and isinstance(later, dict)):
                continue
            here = (*steps, "tool_calls", index)
            if call.get("id") != later.get("id"):
                yield scalar_change("call_ids", (*here, "id"), call.get("id"), later.get("id"))
            was, now = reached(call, ("function", "arguments")), reached(later, ("function", "arguments"))
            if was != now and was is not ABSENT and now is not ABSENT:
                yield scalar_change("arguments", (*here, "function", "arguments"), was, now)


def scalar_change(kind: ChangeKind, steps: tuple[str | int, ...], old: Any, new: Any) -> Change:
    span = (0, len(new)) if isinstance(new, str) else None
    return Change(kind, format_path(steps), shown(old), shown(new), span, edits=(Edit(steps, old),))
