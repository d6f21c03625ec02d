"""Text of single requests that looks volatile, where no other request shows whether it changes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pkv_lint.causes import Replayed
from pkv_lint.changes import split
from pkv_lint.patterns import Match, volatile
from pkv_lint.places import sent_place
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.source import format_path
from pkv_lint.turns import Turn


@dataclass(frozen=True, slots=True)
class Pattern:
    """Text that looks volatile and stands in front of something that could be cached.

    `path` and `match` are its place in the body of the first request that has it, `text` what it says, `behind` the
    tokens between it and the last message, `requests` all requests that have something like it there.
    """

    turn: Turn
    path: str
    match: Match
    text: str
    behind: int
    requests: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Something a client sends with every request. `label` is what a value is called where that is not part of it."""

    path: str
    text: str
    instructions: bool = True
    label: str = ""


def alone(replayed: Sequence[Replayed]) -> list[Turn]:
    """The requests that nothing could be compared with."""
    compared = {item.reference.turn.index for item in replayed if item.reference is not None}
    return [item.turn for item in replayed if item.reference is None and item.turn.index not in compared]


def suspects(replayed: Sequence[Replayed], block_size: int, renderer: Renderer) -> list[Pattern]:
    """Volatile-looking text in front of at least one block, the same place in several requests once. What stands word
    for word in two of them is constant."""
    found: dict[tuple[str, str, str], list[tuple[Turn, Text, Match]]] = {}
    lines: Counter[str] = Counter()
    for turn in alone(replayed):
        seen = set()
        for text in fixed_texts(turn.chat):
            for match in volatile(text.label + text.text, instructions=text.instructions):
                before, line = around(text.label + text.text, match)
                seen.add(line)
                key = (match.kind, re.sub(r"\d+", "", text.path), re.sub(r"[\d\W]+", " ", before))
                found.setdefault(key, []).append((turn, text, match))
        lines.update(seen)
    patterns = []
    for places in found.values():
        for turn, text, match in places:
            if lines[around(text.label + text.text, match)[1]] == 1:
                start, end = match.start - len(text.label), match.end - len(text.label)
                behind = tokens_behind(turn, text.path, end - 1, renderer)
                if behind >= block_size:
                    moved = Match(match.kind, start, end, match.granularity)
                    requests = tuple(dict.fromkeys(other.index for other, _, _ in places))
                    patterns.append(Pattern(turn, text.path, moved, text.text[start:end], behind, requests))
                break
    return patterns


def around(text: str, match: Match) -> tuple[str, str]:
    """The line of a match up to it, and as a whole."""
    start = text.rfind("\n", 0, match.start) + 1
    end = text.find("\n", match.end)
    return text[start : match.start], text[start : end if end >= 0 else len(text)]


def fixed_texts(chat: Mapping[str, Any]) -> Iterator[Text]:
    """System text, template arguments and descriptions of tools."""
    for index, message in enumerate(split(chat).system):
        for path, text in strings(message.get("content"), ("messages", index, "content")):
            yield Text(path, text)
    given = chat.get("chat_template_kwargs")
    for name, value in given.items() if isinstance(given, dict) else ():
        if isinstance(value, str):
            yield Text(format_path(("chat_template_kwargs", name)), value, label=f"{name}: ")
    tools = chat.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else []):
        for path, text in descriptions(tool, ("tools", index)):
            yield Text(path, text, instructions=False)


def strings(value: object, steps: tuple[str | int, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield format_path(steps), value
    elif isinstance(value, list):
        for index, part in enumerate(value):
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield format_path((*steps, index, "text")), part["text"]


def descriptions(value: object, steps: tuple[str | int, ...]) -> Iterator[tuple[str, str]]:
    """The descriptions in a tool, at any depth."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name == "description" and isinstance(item, str):
                yield format_path((*steps, name)), item
            else:
                yield from descriptions(item, (*steps, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from descriptions(item, (*steps, index))


def tokens_behind(turn: Turn, path: str, offset: int, renderer: Renderer) -> int:
    """Tokens between a character of the body and the last message, as far as the prompt shows both."""
    start = shown_at(turn, *sent_place(turn, path, (offset, offset + 1), renderer))
    if start is None:
        return 0
    last, _ = sent_place(turn, f"messages[{max(0, len(turn.chat['messages']) - 1)}]", None, renderer)
    end = next(
        (origin.start for origin in turn.prompt.origins if origin.kind == "value" and is_in(origin.source.where, last)),
        len(turn.prompt.text or ""),
    )
    return sum(1 for begin, _ in turn.prompt.token_spans if start < begin < end)


def is_in(path: str, outer: str) -> bool:
    return path.startswith(outer) and path[len(outer) :][:1] in ("", ".", "[")


def shown_at(turn: Turn, path: str, span: tuple[int, int] | None) -> int | None:
    """The first character of the prompt that shows the first of a span of the body as it was sent."""
    offset = span[0] if span else 0
    for origin in turn.prompt.origins:
        if origin.kind == "value" and origin.source.where == path:
            if origin.linear and origin.offset <= offset < origin.offset + origin.end - origin.start:
                return origin.start + offset - origin.offset
            if not origin.linear and origin.offset == offset:
                return origin.start
    return None
