"""What volatile text looks like: dates and times, identifiers.

Two questions are asked of it. Of text that is seen to change: is it a date, a time or an identifier (`timestamps`,
`identifiers`; any form counts)? Of one text alone, where nothing can be compared: does it look like the moment or the
identity of this one request (`volatile`; only where the words around it say so, or the form leaves no doubt)?
"""

# ruff: noqa: RUF001 (the letters of other alphabets are meant)

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pkv_lint.identifiers import Identifier, find_identifiers
from pkv_lint.timestamps import Granularity, Timestamp, find_timestamps

Kind = Literal["timestamp", "identifier"]

__all__ = ["Granularity", "Kind", "Match", "identifiers", "timestamps", "values", "volatile"]


@dataclass(frozen=True, slots=True)
class Match:
    """`text[start:end]` looks like a `kind`; `granularity` is the finest unit that a timestamp shows."""

    kind: Kind
    start: int
    end: int
    granularity: Granularity | None = None


# "Now" in the languages of `calendar_names`.
NOW = re.compile(
    r"\b(?:now|current(?:ly)?|today(?:'s)?|as of|generated|rendered|created at|started|server time|local time|"
    r"system time|utc time|clock|right now|at the moment|jetzt|aktuell\w*|heute|heutige\w*|stand|maintenant|"
    r"actuel\w*|aujourd.hui|ahora|actual\w*|hoy|agora|atual\w*|hoje|adesso|attual\w*|oggi|nu|huidige|vandaag|nu|nuvarande|idag|сейчас|"
    r"текущ\w*|сегодня\w*|teraz|obecn\w*|aktualn\w*|dzisiaj|dziś|şimdi|şu an\w*|bugün\w*|الآن|الحالي\w*|اليوم)\b"
    r"|现在|当前|目前|今天|今日|現在|当前|本日|지금|현재|오늘",
    re.IGNORECASE,
)
# A label that may also be that of constant data ("Date: ..."): it counts at the start of a line only.
LABEL = re.compile(
    r"[\W_]*(?:(?:[\w-]*(?:time|timestamp|clock|zeit|datum)|(?:[\w-]*[_-])?(?:ts|date|heure|hora|fecha|data|ora|tijd|tid|"
    r"время|дата|czas|saat|tarih|الوقت|التاريخ))|date and time|date & time|date et heure|fecha y hora|data e hora|"
    r"дата и время|时间|日期|日期时间|時刻|日時|日付|시간|시각|날짜|일시)[\"'`*>\s]*[:=>\uff1a][\s\"'`*\[(<]*",
    re.IGNORECASE,
)
EXAMPLE = re.compile(
    r"\be\.?g\.|\bex(?:ample|emple|empel)s?\b|\bi\.e\.|\bsuch as\b|\bformat|\bpattern\b|\blike\b|\bz\.\s?b\.|"
    r"\bbeispiel|\bpar exemple|\bejemplo|\bexemplo|\besempio|\bbijvoorbeeld|\bнапример|例如|例|예",
    re.IGNORECASE,
)
# A date that a rule or a fact is about.
FACT = re.compile(
    r"\b(?:between|from|until|till|before|after|since|by|effective|valid|version|released?|cut-?off|knowledge|opening|"
    r"hours?|schedul\w+|due|expir\w+|deadline|born|birth\w*|founded|launch\w*|updated|revised|revision|copyright|von|bis|"
    r"ab|gültig|seit|vor|nach|depuis|jusqu\w+|avant|après|desde|hasta|antes|después|até|dal|fino|dopo|prima|vanaf|tot|"
    r"opens?|closes?|every|daily|each)\b",
    re.IGNORECASE,
)
# UUIDs of examples and placeholders.
PLACEHOLDER = re.compile(
    r"(.)\1*(?:-\1+)*|123e4567-e89b-12d3-a456-426614174000|12345678-1234-.*|([0-9a-f])\2{7}-.*", re.IGNORECASE
)
# What common services put in front of the ids that they make for one request, one call or one session.
REQUEST_PREFIX = re.compile(
    r"(?:req|request|sess|session|run|thread|conv|conversation|trace|span|msg|message|chatcmpl|cmpl|resp|call|task|job|"
    r"txn|evt|event|inv|turn)[_-]",
    re.IGNORECASE,
)
AHEAD = 60
"""Characters in front of a value in which a word may say what it is."""
WORTH_READING = re.compile(
    r"\d{4}|\d[:.h]\d\d|\d\s?[ap]\.?\s?m|\d\s?(?:[月日號号時时點点시일]|Uhr)|[a-z]\d|\d[a-z_]", re.I
)
"""What every date, time of day and identifier has; most lines with a number have it not."""
LONGEST_LINE = 4000
"""Longer lines are data rather than instructions; they are not searched."""


def timestamps(text: str, start: int = 0, end: int | None = None) -> Iterator[Match]:
    """Dates, times and Unix times that touch `text[start:end]`."""
    for found in find_timestamps(text, start, len(text) if end is None else end):
        yield timestamp_match(found)


def identifiers(text: str, start: int = 0, end: int | None = None) -> Iterator[Match]:
    """Identifiers of any shape that touch `text[start:end]`."""
    for found in find_identifiers(text, start, len(text) if end is None else end):
        yield Match("identifier", found.start, found.end)


def timestamp_match(found: Timestamp) -> Match:
    return Match("timestamp", found.start, found.end, found.granularity)


def volatile(text: str, *, instructions: bool) -> Iterator[Match]:
    """What looks like the moment or the identity of one request. `instructions` says that the text is a system prompt;
    descriptions of tools are full of examples, there a word for "now" is needed."""
    at = 0
    for line in text.splitlines(keepends=True):
        if len(line) <= LONGEST_LINE and WORTH_READING.search(line):
            for match in volatile_in_line(line, instructions):
                yield Match(match.kind, at + match.start, at + match.end, match.granularity)
        at += len(line)


def volatile_in_line(line: str, instructions: bool) -> Iterator[Match]:
    times = find_timestamps(line, 0, len(line))
    for found in times:
        if is_moment(found, line, instructions):
            yield timestamp_match(found)
    spans = [(found.start, found.end) for found in times]
    for other in find_identifiers(line, 0, len(line)):
        if apart((other.start, other.end), spans) and is_of_request(other, line):
            yield Match("identifier", other.start, other.end)


def is_moment(found: Timestamp, line: str, instructions: bool) -> bool:
    """Whether the words around a date or time make it the time of the request."""
    ahead = line[max(0, found.start - AHEAD) : found.start]
    if EXAMPLE.search(ahead) or quoted(line, found.start, found.end, instructions):
        return False
    if NOW.search(ahead):
        return True
    if not instructions:
        return False
    labelled = found.start <= AHEAD and LABEL.fullmatch(line[: found.start]) is not None
    if found.epoch is not None or not found.has_date:
        return labelled
    if labelled:
        return True
    # A full date with the second on it is written by a program; alone on its line or in front of it, or in a sentence
    # that is not about a rule.
    exact = found.granularity in ("second", "fraction")
    return exact and not FACT.search(ahead)


def quoted(line: str, start: int, end: int, instructions: bool) -> bool:
    """In a description of a tool, a value in quotation marks is one that the model may give."""
    return not instructions and all(line[at : at + 1] in tuple("\"'`") for at in (max(0, start - 1), end))


def is_of_request(found: Identifier, line: str) -> bool:
    word = line[found.start : found.end]
    ahead = line[max(0, found.start - AHEAD) : found.start]
    if EXAMPLE.search(ahead) or PLACEHOLDER.fullmatch(word) or "://" in ahead.rpartition(" ")[2]:
        return False
    if found.shape in ("uuid", "ulid", "jwt", "trace"):
        return True
    if found.shape == "prefixed" and REQUEST_PREFIX.match(word):
        return True
    return found.of_request and len(word) >= 6


def values(line: str) -> list[tuple[int, int]]:
    """The spans of a line that are one date, time or identifier each, in order."""
    times = [(found.start, found.end) for found in find_timestamps(line, 0, len(line))]
    ids = [(found.start, found.end) for found in find_identifiers(line, 0, len(line))]
    # Where the two overlap, the time counts.
    return sorted(times + [span for span in ids if apart(span, times)])


def apart(span: tuple[int, int], others: Sequence[tuple[int, int]]) -> bool:
    """Whether a span touches none of the others, which are in order and do not overlap."""
    at = bisect_left(others, span[1], key=lambda other: other[0])
    return at == 0 or others[at - 1][1] <= span[0]
