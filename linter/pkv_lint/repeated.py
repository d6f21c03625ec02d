"""Text that many requests carry word for word, but behind the point where their prompts part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pkv_lint.causes import Replayed
from pkv_lint.changes import role, shared_items
from pkv_lint.nature import Nature
from pkv_lint.prompt.source import format_path
from pkv_lint.text_changes import bisect_equal
from pkv_lint.turns import Turn

CountTokens = Callable[[str], int]
LINE = 16
"""Characters of a line from which on it is remembered; shorter ones belong to their neighbours."""
LARGE = 128
"""Tokens of repeated text in one request from which on moving it is worth a word."""
OWN_CAUSE: frozenset[Nature] = frozenset(
    {"generation_prompt", "generated", "reasoning_dropped", "reasoning_not_replayed", "reasoning"}
)
"""Causes that leave the place of such a text as it is; any other is the finding to make instead."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """`path` and `span` show the longest repeated stretch in the first request that repeats one, `tokens` is how much
    of that request is repeated, `won` how many tokens all `requests` would reuse more if it stood in front."""

    turn: Turn
    path: str
    span: tuple[int, int]
    tokens: int
    won: int
    requests: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    path: str
    start: int
    end: int
    text: str


def repeated_texts(replayed: Sequence[Replayed], block_size: int, count: CountTokens) -> list[Repeated]:
    """What requests with one head repeat, one entry per head. Only what a request has that the one it goes on from has
    not is looked at: a history that goes on repeats itself."""
    seen: dict[int, set[str]] = {}
    heads: dict[int, int] = {}
    found: dict[int, list[tuple[Turn, list[Stretch], int, int]]] = {}
    for item in replayed:
        turn, reference = item.turn, item.reference
        blameless = all(cause.nature in OWN_CAUSE for cause in item.causes)
        head = heads[reference.turn.index] if reference and blameless else turn.index
        heads[turn.index] = head
        lines = seen.setdefault(head, set())
        fresh = list(fresh_texts(turn, reference.turn if reference else None))
        if reference and blameless:
            stretches = [stretch for path, text in fresh for stretch in known_stretches(path, text, lines)]
            lost, tokens = behind_the_parting(item, stretches, count)
            won = (item.shared + tokens) // block_size * block_size - item.hit
            if tokens >= LARGE and won >= block_size:
                found.setdefault(head, []).append((turn, lost, tokens, won))
        for _, text in fresh:
            lines.update(line for line in text.splitlines() if len(line) >= LINE)
    results = []
    for places in found.values():
        turn, stretches, tokens, _ = places[0]
        longest = max(stretches, key=lambda stretch: len(stretch.text))
        requests = tuple(place[0].index for place in places)
        won = sum(place[3] for place in places)
        results.append(Repeated(turn, longest.path, (longest.start, longest.end), tokens, won, requests))
    return results


def fresh_texts(turn: Turn, earlier: Turn | None) -> Iterator[tuple[str, str]]:
    """Text of the system and the user from the first message on that the earlier request does not have."""
    messages: list[Any] = turn.chat["messages"]
    first = shared_items(earlier.chat["messages"], messages) if earlier else 0
    for index, message in enumerate(messages[first:], first):
        if role(message) not in ("system", "developer", "user"):
            continue
        content = message.get("content")
        if isinstance(content, str):
            yield format_path(("messages", index, "content")), content
        elif isinstance(content, list):
            for place, part in enumerate(content):
                if isinstance(part, dict) and isinstance(part.get("text"), str):
                    yield format_path(("messages", index, "content", place, "text")), part["text"]


def known_stretches(path: str, text: str, known: set[str]) -> Iterator[Stretch]:
    """The longest runs of lines that are known; lines too short to tell go with what is around them."""
    start = end = at = 0
    open_run = False
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        if len(bare) >= LINE:
            if bare in known:
                start = start if open_run else at
                open_run, end = True, at + len(bare)
            elif open_run:
                yield Stretch(path, start, end, text[start:end])
                open_run = False
        at += len(line)
    if open_run:
        yield Stretch(path, start, end, text[start:end])


def parting(earlier: str, text: str) -> int:
    """The first character that differs."""
    return bisect_equal(min(len(earlier), len(text)), lambda n: earlier[:n] == text[:n])


def behind_the_parting(item: Replayed, stretches: Sequence[Stretch], count: CountTokens) -> tuple[list[Stretch], int]:
    """The stretches that the request did not reuse, and their tokens."""
    text = item.turn.prompt.text
    if text is None or sum(len(stretch.text) for stretch in stretches) < LARGE:
        return [], 0
    # A text that also stands in the history that is reused counts where it comes again.
    at = parting(item.reference.turn.prompt.text or "", text) if item.reference else 0
    lost, tokens = [], 0
    for stretch in stretches:
        place = text.find(stretch.text, at)
        if place < 0:
            continue
        at = place + len(stretch.text)
        size = count(stretch.text)
        if item.shared < count(text[:place]) + size // 2:
            lost.append(stretch)
            tokens += size
    return lost, tokens
