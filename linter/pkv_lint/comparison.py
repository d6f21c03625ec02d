"""How one request differs from an earlier one: its head, and what happened to the messages of its history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pkv_lint.changes import (
    ABSENT,
    Change,
    ChangeKind,
    Chat,
    Edit,
    Steps,
    content,
    head_changes,
    reached,
    role,
    serialised,
    shared_items,
    shown,
    split,
    text_of,
)
from pkv_lint.histories import Alignment, Gists, History, Stretch, parsed, plainly
from pkv_lint.patterns import values
from pkv_lint.prompt.source import format_path
from pkv_lint.reasoning import FIELDS, thoughts_in, without_thoughts
from pkv_lint.text_changes import text_changes

PINNED = 2
"""Messages that may stay in front of those that a summary replaces."""


def compare(before: Chat, after: Chat) -> list[Change]:
    """The differences, those that usually stand first in a prompt first, for requests of which one goes on from the
    other."""
    return [*head_changes(before, after), *history_changes(before, after)]


def compare_heads(before: Chat, after: Chat) -> list[Change]:
    """The same for requests with one history behind different heads: all that keeps the later one from reusing it, as
    one change."""
    changes = compare(before, after)
    if not changes:
        return []
    old, new = (split(chat).system for chat in (before, after))
    at = min(shared_items(old, new), max(len(new) - 1, 0))
    path = "tools" if old == new else format_path(("messages", at, "content") if new else ("messages", 0))
    was, now = ("\n".join(map(text_of, system)) for system in (old, new))
    edits = tuple(edit for change in changes for edit in change.edits)
    return [Change("head", path, was, now, edits=edits)]


def history_changes(before: Chat, after: Chat) -> Iterator[Change]:
    old, new = split(before), split(after)
    if not old.history or not new.history:
        return
    gists = Gists()
    alignment = Alignment(History.of(old.history, gists), History.of(new.history, gists))
    yield from HistoryChanges(alignment, len(new.system)).all()


class HistoryChanges:
    """What happened to the messages of an earlier history; `first` is the place of the later one in its body."""

    def __init__(self, alignment: Alignment, first: int) -> None:
        self.alignment = alignment
        self.old = alignment.before.messages
        self.new = alignment.after.messages
        self.first = first

    def all(self) -> Iterator[Change]:
        """In the order of the messages."""
        changes = [
            *(change for stretch in self.alignment.stretches for change in self.of_stretch(stretch)),
            *self.of_equal_messages(),
            *self.of_moved(),
        ]
        # Stable: what is said about one message stays in order.
        yield from sorted(changes, key=lambda change: change.edits[0].steps[1:2] or (change.edits[0].span or (0,))[:1])

    def of_equal_messages(self) -> Iterator[Change]:
        for block in self.alignment.blocks:
            for offset in range(block.size):
                i, j = block.before + offset, block.after + offset
                yield from message_changes(self.old[i], self.new[j], j + self.first)

    def of_moved(self) -> Iterator[Change]:
        if self.alignment.moved:
            start = len(self.old) - self.alignment.moved
            last = self.alignment.blocks[-1] if self.alignment.blocks else None
            to = last.after + last.size if last else 0
            yield self.spliced("reminder", start, len(self.old), to, to)

    def of_stretch(self, stretch: Stretch) -> Iterator[Change]:
        """Messages that were replaced, taken out or put in."""
        kind = self.at_the_front(stretch)
        if kind is not None:
            yield self.spliced(kind, stretch.start, stretch.end, stretch.from_, stretch.to)
            return
        changes = list(self.of_pairs(stretch))
        rewritten = [change for change in changes if change.kind.startswith("history_")]
        reminder = stretch.start >= self.alignment.before.newest and all(map(is_shorter, rewritten))
        for change in changes:
            yield replace(change, kind="reminder") if reminder and change in rewritten else change

    def of_pairs(self, stretch: Stretch) -> Iterator[Change]:
        start, from_ = stretch.start, stretch.from_
        for i, j in [*self.alignment.pairs(stretch), (stretch.end, stretch.to)]:
            if i is None or j is None:
                continue
            if start < i or from_ < j:
                kind: ChangeKind = "history_edited" if start < i and from_ < j else "history_inserted"
                yield self.spliced("history_removed" if from_ == j else kind, start, i, from_, j)
            if i < stretch.end:
                yield from message_changes(self.old[i], self.new[j], j + self.first)
            start, from_ = i + 1, j + 1

    def at_the_front(self, stretch: Stretch) -> ChangeKind | None:
        """What it is when the oldest messages went: a window that slides, a summary in their place, or whole turns
        behind messages that stay."""
        if not stretch.inside or stretch.start == stretch.end:
            return None
        if stretch.from_ == stretch.to:
            if stretch.start == 0:
                return "history_window"
            speakers = {self.alignment.before.speaks(at) for at in range(stretch.start, stretch.end)}
            return "history_pruned" if len(speakers) == 2 else None
        if stretch.start <= PINNED and stretch.end - stretch.start >= 2:
            if any(
                i is not None and j is not None and self.alignment.alike(i, j) for i, j in self.alignment.pairs(stretch)
            ):
                return None
            if stretch.to - stretch.from_ < stretch.end - stretch.start:
                return "history_compacted"
        return None

    def spliced(self, kind: ChangeKind, start: int, end: int, from_: int, to: int) -> Change:
        """Messages `[start, end)` of the earlier history became `[from_, to)` of the later one."""
        return Change(
            kind,
            format_path(("messages", from_ + self.first)),
            said(self.old[start:end]),
            said(self.new[from_:to]),
            edits=(Edit(("messages",), list(self.old[start:end]), (from_ + self.first, to + self.first)),),
            messages=(end - start, to - from_),
        )


def is_shorter(change: Change) -> bool:
    """Whether something was only taken out, and no result of a tool with it."""
    if change.kind == "history_removed":
        return all(role(message) != "tool" for message in change.edits[0].value)
    return change.kind == "history_edited" and bool(change.before.strip()) and not change.after.strip()


def said(messages: Iterable[Any]) -> str:
    return "\n".join(text for message in messages if (text := text_of(message) or called(message)))


def called(message: Any) -> str:
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    names = [reached(call, ("function", "name")) for call in calls] if isinstance(calls, list) else []
    return ", ".join(f"{name}(…)" for name in names if isinstance(name, str))


def message_changes(old: Any, new: Any, place: int) -> Iterator[Change]:
    """What happened to one message: its text, its reasoning, its ids, the notation of its arguments."""
    if old == new and not (isinstance(old, dict) and old.get("tool_calls")):
        return
    steps: Steps = ("messages", place)
    if not (isinstance(old, dict) and isinstance(new, dict)) or role(old) != role(new):
        yield Change("history_edited", format_path(steps), shown(old), shown(new), edits=(Edit(steps, old),))
        return
    if content(old) != content(new):
        yield content_change(old, new, steps)
    yield from reasoning_change(old, new, steps)
    if old.get("tool_call_id") != new.get("tool_call_id"):
        yield value_change("call_ids", (*steps, "tool_call_id"), old, new)
    yield from calls_changes(old, new, steps)
    for name in sorted({*old, *new} - {"content", "role", "tool_calls", "tool_call_id", *FIELDS}):
        if old.get(name) != new.get(name):
            yield value_change("history_edited", (*steps, name), old, new)


def value_change(kind: ChangeKind, steps: Steps, old: Any, new: Any, names: tuple[str, ...] = ()) -> Change:
    """One member of a message (or of a call in it); `steps` lead there from the body, its last from `old` and `new`."""
    was, now = old.get(steps[-1], ABSENT), new.get(steps[-1], ABSENT)
    span = (0, len(now)) if isinstance(now, str) else None
    return Change(kind, format_path(steps), shown(was), shown(now), span, names, (Edit(steps, was),))


def reasoning_change(old: Any, new: Any, steps: Steps) -> Iterator[Change]:
    was, now = (next((message[name] for name in FIELDS if message.get(name) is not None), "") for message in (old, new))
    if was != now:
        edits = tuple(Edit((*steps, name), old.get(name, ABSENT)) for name in FIELDS if {name} & {*old, *new})
        yield Change("history_edited" if now else "reasoning", format_path(steps), shown(was), shown(now), edits=edits)


def content_change(old: Any, new: Any, steps: Steps) -> Change:
    was, now = content(old), content(new)
    place = (*steps, "content")
    edits = (Edit(place, old.get("content", ABSENT)),)
    if isinstance(was, str) and isinstance(now, str):
        thought = thoughts_in(was) if role(old) == "assistant" else ""
        if thought and without_thoughts(was).strip() == now.strip():
            return Change("reasoning", format_path(steps), thought, edits=edits)
        if role(old) == "tool" and same_json(was, now):
            return Change("arguments", format_path(place), was, now, (0, len(now)), edits=edits)
        before, after = edited_span(was, now)
        return Change("history_edited", format_path(place), was[slice(*before)], now[slice(*after)], after, edits=edits)
    one, other = parts(was), parts(now)
    if one == other:
        return Change("history_edited", format_path(place), shape(was), shape(now), edits=edits)
    head = shared_items(one, other)
    tail = shared_items(one[head:][::-1], other[head:][::-1])
    gone, came = one[head : len(one) - tail], other[head : len(other) - tail]
    if isinstance(now, list) and head < len(now):
        place = (*place, head)
    if len(gone) == len(came) == 1 and all(isinstance(part.get("text"), str) for part in (*gone, *came)):
        before, after = edited_span(gone[0]["text"], came[0]["text"])
        taken, put = gone[0]["text"][slice(*before)], came[0]["text"][slice(*after)]
        return Change("history_edited", format_path(place), taken, put, edits=edits)
    taken, put = ("\n".join(map(named, side)) for side in (gone, came))
    return Change("history_edited", format_path(place), taken, put, edits=edits)


def edited_span(before: str, after: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """From the first to the last change of a text, in both versions."""
    changes = text_changes(before, after, values)
    first, last = changes[0], changes[-1]
    return (first.before[0], last.before[1]), (first.after[0], last.after[1])


def same_json(one: str, other: str) -> bool:
    """Whether two texts are the same object or list in JSON."""
    return isinstance(parsed(one), dict | list) and plainly(one) == plainly(other)


def parts(value: Any) -> list[Any]:
    """Content as a list of parts."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}] if value else []
    return (
        [part if isinstance(part, dict) else {"text": str(part)} for part in value] if isinstance(value, list) else []
    )


def named(part: Any) -> str:
    """A part of content as a person would name it: its text, or what kind of thing it is."""
    text = part.get("text")
    return text if isinstance(text, str) else f"<{part.get('type', 'part')}>"


def shape(value: Any) -> str:
    return "a list of parts" if isinstance(value, list) else "a string" if isinstance(value, str) else shown(value)


def calls_changes(old: Any, new: Any, steps: Steps) -> Iterator[Change]:
    one, other = old.get("tool_calls"), new.get("tool_calls")
    # Equal values may have their keys in another order.
    if one == other and serialised(one) == serialised(other):
        return
    place: Steps = (*steps, "tool_calls")
    if not isinstance(one, list) or not isinstance(other, list) or len(one) != len(other):
        before, after = ("\n".join(map(written, calls)) if isinstance(calls, list) else "" for calls in (one, other))
        edits = (Edit(place, old.get("tool_calls", ABSENT)),)
        yield Change("history_edited", format_path(place), before, after, edits=edits)
        return
    for index, (call, later) in enumerate(zip(one, other, strict=True)):
        if isinstance(call, dict) and isinstance(later, dict):
            yield from call_changes(call, later, (*place, index))


def written(call: Any) -> str:
    return f"{reached(call, ('function', 'name'))}({shown(reached(call, ('function', 'arguments')))})"


def call_changes(old: Any, new: Any, steps: Steps) -> Iterator[Change]:
    if old.get("id") != new.get("id"):
        yield value_change("call_ids", (*steps, "id"), old, new)
    was, now = old.get("function"), new.get("function")
    if not isinstance(was, dict) or not isinstance(now, dict):
        return
    inner: Steps = (*steps, "function")
    if was.get("name") != now.get("name"):
        yield value_change("history_edited", (*inner, "name"), was, now)
    if serialised(was.get("arguments")) != serialised(now.get("arguments")):
        same = plainly(was.get("arguments")) == plainly(now.get("arguments"))
        names = (str(now.get("name")),)
        yield value_change("arguments" if same else "history_edited", (*inner, "arguments"), was, now, names)


def merged(changes: Sequence[Change]) -> Change:
    """One change for several of a kind: the first, undone together with the others."""
    first = changes[0]
    if len(changes) == 1:
        return first
    names = first.names
    if first.kind in ("arguments", "schema_keys", "tool_definition"):
        names = tuple(dict.fromkeys(name for change in changes for name in change.names))
    edits = tuple(edit for change in changes for edit in change.edits)
    return replace(first, names=names, edits=edits, places=len(changes))
