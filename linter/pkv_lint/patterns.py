"""What volatile text looks like: dates and times, identifiers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

Kind = Literal["timestamp", "identifier"]
Granularity = Literal["day", "minute", "second", "fraction"]

MONTHS = (
    "jan(?:uary|vier|uar|eiro)?|feb(?:ruary|ruar|rero)?|f[ée]v(?:r(?:ier)?|ereiro)?|mar(?:ch|s|zo|[çc]o)?|m[äa]rz|apr(?:il)?|"
    "avr(?:il)?|abr(?:il)?|may|mai|mayo|maio|jun(?:e|i|io|ho)?|juin|jul(?:y|i|io|ho)?|juil(?:let)?|aug(?:ust)?|ao[uû]t|"
    "ago(?:sto)?|sep(?:t(?:ember|embre|iembre)?)?|set(?:embro)?|o[ck]t(?:ober|obre|ubre)?|out(?:ubro)?|nov(?:ember|embre|"
    "iembre|embro)?|de[cz](?:ember|embre|embro)?|d[ée]c(?:embre)?|dic(?:iembre)?|"
    "янв(?:аря)?|фев(?:раля)?|мар(?:та)?|апр(?:еля)?|мая|июн[яь]|июл[яь]|авг(?:уста)?|сен(?:тября)?|окт(?:ября)?|"
    "ноя(?:бря)?|дек(?:абря)?"
)
TIME = (
    r"(?:[01]?\d|2[0-3])[:hH]\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:\s?[ap]\.?m\.?)?(?:\s?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}))?"
)
DATE = (
    r"(?:19|20)\d{2}[-/.](?:0?[1-9]|1[0-2])[-/.](?:0?[1-9]|[12]\d|3[01])"
    r"|(?:0?[1-9]|[12]\d|3[01])[-/.](?:0?[1-9]|[12]\d|3[01])[-/.](?:19|20)\d{2}"
    r"|(?:19|20)\d{2}\s?[年년]\s?\d{1,2}\s?[月월]\s?\d{1,2}\s?[日일]"
    rf"|(?:{MONTHS})\.?\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+(?:19|20)\d{{2}}"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?\.?\s+(?:de\s+)?(?:{MONTHS})\.?,?\s+(?:de\s+)?(?:19|20)\d{{2}}"
    r"|(?:19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?=[T_-]?\d{4,6}\b)"
)
WEEKDAY = r"(?:(?:mon|tue(?:s)?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?,?\s+)?"


@dataclass(frozen=True, slots=True)
class Match:
    """`text[start:end]` looks like a `kind`; `granularity` is the finest unit that a timestamp shows."""

    kind: Kind
    start: int
    end: int
    granularity: Granularity | None = None


@cache
def timestamp_pattern() -> re.Pattern[str]:
    return re.compile(
        rf"(?<![\w.]){WEEKDAY}(?P<date>{DATE})(?:(?:\s*[T,@]\s*|\s+(?:at\s+|um\s+)?|[_-])(?P<time>{TIME}|\d{{4,6}}))?(?!\w)"
        rf"|(?<![\w.:/])(?P<clock>{TIME})(?:\s*[,@]?\s*(?P<day>{DATE}))?(?![\w:])"
        r"|(?<![\w.-])(?P<epoch>1[5-9]\d{8}(?:\.\d+|\d{3}|\d{6})?|2[01]\d{8}(?:\.\d+|\d{3}|\d{6})?)(?![\w.-])",
        re.IGNORECASE,
    )


@cache
def identifier_pattern() -> re.Pattern[str]:
    return re.compile(
        r"(?<![\w-])(?:"
        r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"  # UUID
        r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # JWT
        r"|[0-7][0-9A-HJKMNP-TV-Z]{25}"  # ULID
        r"|(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{12,128}"  # a hash, or a trace id
        r"|[a-z]{2,12}[_-](?=[\w-]*\d)[A-Za-z0-9_-]{8,64}"  # req_8f3k2…, sess-…
        r")(?![\w-])",
        re.IGNORECASE,
    )


def timestamps(text: str, start: int = 0, end: int | None = None) -> Iterator[Match]:
    """Dates, times and Unix times that touch `text[start:end]`."""
    for found in around(timestamp_pattern(), text, start, end):
        yield Match("timestamp", found.start(), found.end(), granularity(found))


def identifiers(text: str, start: int = 0, end: int | None = None) -> Iterator[Match]:
    for found in around(identifier_pattern(), text, start, end):
        yield Match("identifier", found.start(), found.end())


def around(pattern: re.Pattern[str], text: str, start: int, end: int | None) -> Iterator[re.Match[str]]:
    end = len(text) if end is None else end
    # A match may begin in front of the span: the line is searched from its beginning, at most 200 characters back.
    first = max(text.rfind("\n", 0, start) + 1, start - 200)
    for found in pattern.finditer(text, first, min(len(text), end + 200)):
        if found.end() > start and found.start() < max(end, start + 1):
            yield found
        if found.start() >= end:
            return


def granularity(found: re.Match[str]) -> Granularity:
    epoch = found["epoch"]
    if epoch:
        return "fraction" if len(epoch) > 10 else "second"
    time = found["time"] or found["clock"]
    if not time:
        return "day"
    if re.search(r"[:h]\d{2}:\d{2}[.,]\d", time, re.IGNORECASE):
        return "fraction"
    return "second" if time.count(":") == 2 or (":" not in time and len(time) >= 6) else "minute"
