"""Dates and times in running text, in the notations that programs and people write.

Pieces (a date, a time of day, a weekday, a Unix time) are found one by one and put together where nothing but a
separator or a small word stands between them.
"""

# ruff: noqa: RUF001 (the letters of other alphabets are meant)

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

from pkv_lint.calendar_names import ERAS, EVERYDAY, MONTHS, SHORT_WEEKDAYS, WEEKDAYS, in_ascii

Granularity = Literal["day", "hour", "minute", "second", "fraction"]
PieceKind = Literal["date", "time", "weekday", "short", "epoch"]
AROUND = 120
"""Characters around a span in which a date or time that touches it is looked for."""
EPOCHS = range(1_420_070_400, 2_208_988_800)
"""Unix times that a clock shows: 2015 to 2039."""

YEAR = r"(?P<y>(?:19|20)\d{2})"
# Of the Persian and the Buddhist calendar, too.
ANY_YEAR = r"(?P<y>(?:1[34]|19|20|25)\d{2})"
MONTH = r"(?P<mo>0?[1-9]|1[0-2])"
DAY = r"(?P<d>0?[1-9]|[12]\d|3[01])"
HOUR = r"(?P<h>[01]?\d|2[0-3])"
HALF = r"(?:\s?(?P<half>[ap])\.?\s?m\b\.?)"
ZONE = (
    r"(?-i:\s?(?:Z\b|(?:UTC|GMT|[A-Z]{1,4}T\b)(?:\s?[+-]\d{1,2}(?::?\d{2})?(?!\d))?)|\s?[+-]\d{2}:?\d{2}(?!\d)"
    r"|\s?\((?:UTC|GMT)[+-]?[\d:]*\)|\s\(?[A-Z][a-z]+/[A-Z][A-Za-z_]+\)?)*"
)
# A time of day written straight behind a date: ISO 8601, file names.
STUCK = (
    r"(?:[T_-](?P<h>[01]\d|2[0-3])(?:[-:._h]?(?P<mi>[0-5]\d)(?:[-:._m]?(?P<s>[0-5]\d)(?:[.,](?P<f>\d{1,9}))?)?)?"
    r"(?![\d:])(?:Z\b|[+-]\d{2}:?\d{2}(?!\d))?)?"
)
DIGIT = re.compile(r"\d")
FREE = r"(?<![\d])(?<![\w][-_.:/])"
# "It costs EUR 12.11."
UNPRICED = r"(?<![$€£¥])(?<![$€£¥]\s)(?<!(?-i:EUR|USD|GBP|CHF|JPY|CNY|SEK|NOK|DKK|PLN)\s)"
EAST_HALF = r"(?P<east>上午|下午|中午|晚上|凌晨|午前|午後|오전|오후)\s?"
AFTERNOON = ("下午", "晚上", "午後", "오후")
# Between a day and a month, a month and a year: "29 de noviembre de 2026", "29. November 2026", "29-Nov-2026".
OF = r"(?:\s?(?:de|del|of)\s|\s|[-./])"


@dataclass(frozen=True, slots=True)
class Piece:
    kind: PieceKind
    start: int
    end: int
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Timestamp:
    """`text[start:end]` is a date or a time. `epoch` is the Unix time in seconds where it is written as one; `order`
    grows with time and is None where too little is said to compare two timestamps."""

    start: int
    end: int
    granularity: Granularity
    has_date: bool
    epoch: float | None
    order: float | None


@cache
def months() -> Mapping[str, int]:
    return {name: number for number, names in enumerate(MONTHS, 1) for name in names.split()}


@cache
def forms() -> tuple[tuple[PieceKind, re.Pattern[str]], ...]:
    # Any word in the place of a month, looked up afterwards: long lists of names are slow to search for.
    name = r"(?P<name>[^\W\d_]{3,12})"
    nth = r"(?:st|nd|rd|th|er|º|ª)?\.?"
    patterns: tuple[tuple[PieceKind, str], ...] = (
        ("date", rf"{FREE}{ANY_YEAR}(?P<by>[-/.]){MONTH}(?P=by){DAY}(?!\d){STUCK}"),
        ("date", rf"{FREE}{DAY}(?P<by>[-/.])\s?(?P<mo>\d{{1,2}})(?P=by)\s?{YEAR}(?!\d){STUCK}"),
        ("date", rf"{FREE}(?P<d>[0-3]\d)(?P<by>[./])(?P<mo>[0-3]\d)(?P=by)(?P<yy>\d\d)(?![\d./])"),
        ("date", rf"{FREE}{UNPRICED}(?P<d>[0-3]\d)\.\s?(?P<mo>[01]\d)\.(?!\s?\d)"),
        ("date", rf"{FREE}(?P<d>\d{{1,2}})/(?P<mo>\d{{1,2}})/(?P<yy>\d\d)(?![\d/])"),
        ("date", rf"{FREE}{YEAR}(?P<mo>0[1-9]|1[0-2])(?P<d>0[1-9]|[12]\d|3[01])(?!\d){STUCK}"),
        (
            "date",
            rf"{FREE}{YEAR}(?P<mo>0[1-9]|1[0-2])(?P<d>0[1-9]|[12]\d|3[01])(?P<h>[01]\d|2[0-3])(?P<mi>[0-5]\d)"
            rf"(?:(?P<s>[0-5]\d)(?:\.?(?P<f>\d{{3}}))?)?(?!\d)",
        ),
        ("date", rf"{FREE}{YEAR}-?W(?P<week>[0-5]\d)(?:-?(?P<d>[1-7]))?\b"),
        ("date", rf"{FREE}{YEAR}\.\s{MONTH}\.\s{DAY}\.(?!\d)"),
        ("date", rf"(?:{YEAR}\s?[年년]\s?)?(?P<mo>\d{{1,2}})\s?[月월]\s?(?P<d>\d{{1,2}})\s?[日일号號]"),
        ("date", rf"(?P<era>{alternatives(ERAS)})\s?(?P<yy>\d{{1,2}})\s?年\s?{MONTH}\s?月\s?{DAY}\s?日"),
        ("date", rf"\b{name}\b\.?\s{{1,2}}{DAY}{nth},?\s{YEAR}\b(?!:)"),
        ("date", rf"{FREE}{DAY}{nth}{OF}{name}\b\.?,?{OF}{YEAR}\b"),
        ("date", rf"\b{name}\b\.?\s{{1,2}}{DAY}(?:st|nd|rd|th)?\b(?![.:]?\d)(?P<bare>)"),
        # ctime and date(1) write the year last; the short names are safe in front of a time.
        ("date", rf"\b{name}\b\.?\s{{1,2}}{DAY}(?=,?\s\d{{1,2}}:\d\d)"),
        ("date", rf"{FREE}{DAY}{nth}{OF}{name}\b(?P<bare>)"),
        (
            "time",
            rf"(?<![\w.:/-])(?:{EAST_HALF})?{HOUR}:(?P<mi>[0-5]\d)(?::(?P<s>[0-5]\d)(?:[.,](?P<f>\d{{1,9}}))?)?(?![\d:])"
            rf"{HALF}?{ZONE}(?:\s?(?:Uhr|uur|h|hrs)\b)?(?P<late>\s{YEAR}\b)?",
        ),
        # Straight behind East Asian text there is no word boundary.
        ("time", rf"{EAST_HALF}{HOUR}:(?P<mi>[0-5]\d)(?::(?P<s>[0-5]\d)(?:[.,](?P<f>\d{{1,9}}))?)?(?![\d:])"),
        ("time", rf"(?<![\w.:/-]){HOUR}\s?h\s?(?P<mi>[0-5]\d)(?:\s?(?:m|min)\s?(?P<s>[0-5]\d)\s?s?)?(?!\w){ZONE}"),
        ("time", rf"(?<![\w.:/-]){HOUR}[.](?P<mi>[0-5]\d)(?:[.](?P<s>[0-5]\d))?\s?(?:Uhr|uur)\b"),
        ("time", rf"(?<![\w.:/-])(?:kl|klo)\.?\s{HOUR}[.](?P<mi>[0-5]\d)(?:[.](?P<s>[0-5]\d))?(?!\w)"),
        ("time", rf"(?<![\w.:/-]){HOUR}{HALF}{ZONE}"),
        ("time", rf"(?<![\w.:/-]){HOUR}\sUhr(?:\s(?P<mi>[0-5]\d)\b)?"),
        (
            "time",
            rf"(?:{EAST_HALF})?{HOUR}\s?[时時点點시](?:\s?(?P<mi>[0-5]?\d)\s?[分분](?:\s?(?P<s>[0-5]?\d)\s?[秒초])?)?",
        ),
        ("weekday", r"\b(?P<weekday>[^\W\d_]{5,13}(?:-feira)?|salı|cuma)\b"),
        (
            "weekday",
            r"[(]?(?:星期|周|週|礼拜)[一二三四五六日天][)]?|[(]?[月火水木金土日]曜日?[)]?|[(（][月火水木金土日][)）]",
        ),
        ("weekday", r"[(]?[월화수목금토일]요일[)]?|\([월화수목금토일]\)"),
        ("short", r"\b(?P<weekday>[^\W\d_]{2,5})(?=\.?,?\s\W?\w|\.?\)|\.?,?$)"),
        ("epoch", r"(?<![\w.-])(?P<epoch>\d{10}(?:\.\d{1,9})?|\d{13}|\d{16}|\d{19})(?![\w-])(?!\.\d)"),
    )
    return tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in patterns)


def alternatives(names: Iterable[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


GLUE = re.compile(
    r"[\s,;.|@·–—/(\[\])T-]{0,3}(?:(?:at|on|am|um|om|à|a las|las|às|as|alle|ore|kl|klo|el|le|den|the|г|года|в|o|saat|"
    r"الساعة)\b[.,\s]*){0,2}",
    re.IGNORECASE,
)


def find_timestamps(text: str, start: int, end: int) -> list[Timestamp]:
    """The dates and times that touch `text[start:end]`, in order."""
    first, last = max(text.rfind("\n", 0, start) + 1, start - AROUND), min(len(text), end + AROUND)
    found = []
    for line in in_ascii(text[first:last]).split("\n"):
        found += [timestamp(run, first) for run in runs(pieces(line), line)]
        first += len(line) + 1
    return [one for one in found if one.end > start and one.start < max(end, start + 1)]


@lru_cache(maxsize=256)
def pieces(text: str) -> Sequence[Piece]:
    """The pieces in order; where two overlap the longer one counts. Remembered, because what changes in a line is asked
    about several times."""
    digits = DIGIT.search(text) is not None
    found = [
        Piece(kind, *match.span(), {name: value for name, value in match.groupdict().items() if value is not None})
        for kind, pattern in forms()
        if digits or kind == "weekday"
        for match in pattern.finditer(text)
    ]
    taken = bytearray(len(text))
    kept: list[Piece] = []
    for piece in sorted(found, key=lambda piece: (piece.start - piece.end, piece.start)):
        if plausible(piece) and not any(taken[piece.start : piece.end]):
            taken[piece.start : piece.end] = b"\1" * (piece.end - piece.start)
            kept.append(piece)
    return sorted(kept, key=lambda piece: piece.start)


def plausible(piece: Piece) -> bool:
    fields = piece.fields
    if piece.kind == "epoch":
        return seconds(fields["epoch"]) is not None
    if "weekday" in fields:
        return fields["weekday"].lower() in (WEEKDAYS if piece.kind == "weekday" else SHORT_WEEKDAYS)
    if "name" in fields:
        name = fields["name"].lower()
        return name in months() and not ("bare" in fields and name in EVERYDAY)
    if "mo" in fields:
        day, month = int(fields["d"]), int(fields["mo"])
        return 1 <= min(day, month) <= 12 and max(day, month) <= 31
    return True


def seconds(digits: str) -> float | None:
    """A Unix time in seconds, milliseconds, microseconds or nanoseconds, in seconds."""
    whole = digits.partition(".")[0]
    value = float(digits) / 10 ** (len(whole) - 10)
    return value if int(value) in EPOCHS else None


def runs(found: Sequence[Piece], text: str) -> list[list[Piece]]:
    """Pieces put together: at most one date, one time and one weekday. Short weekdays count only next to others."""
    together: list[list[Piece]] = []
    for piece in found:
        run = together[-1] if together else []
        kinds = {other.kind for other in run}
        fits = run and piece.kind not in kinds and "epoch" not in (piece.kind, *kinds)
        if fits and GLUE.fullmatch(text, run[-1].end, piece.start):
            run.append(piece)
        else:
            together.append([piece])
    return [run for run in map(without_lone_weekdays, together) if run]


def without_lone_weekdays(run: list[Piece]) -> list[Piece]:
    if any(piece.kind in ("date", "weekday") for piece in run):
        return run
    return [piece for piece in run if piece.kind != "short"]


def timestamp(run: list[Piece], first: int) -> Timestamp:
    fields = {name: value for piece in run for name, value in piece.fields.items()}
    epoch = seconds(fields["epoch"]) if "epoch" in fields else None
    return Timestamp(
        first + run[0].start,
        first + run[-1].end,
        granularity(fields),
        any(piece.kind == "date" for piece in run),
        epoch,
        epoch if epoch is not None else order(fields),
    )


def granularity(fields: Mapping[str, str]) -> Granularity:
    if "epoch" in fields:
        return "second" if len(fields["epoch"]) == 10 else "fraction"
    names: tuple[tuple[str, Granularity], ...] = (("f", "fraction"), ("s", "second"), ("mi", "minute"), ("h", "hour"))
    return next((unit for name, unit in names if name in fields), "day")


def order(fields: Mapping[str, str]) -> float | None:
    """Seconds on a calendar of equal months: only good for telling which of two dates is later, and about how far."""
    year = int(fields["y"]) if "y" in fields else None
    if year is None and "yy" in fields:
        year = int(fields["yy"]) + (ERAS[fields["era"]] if "era" in fields else 2000)
    if year is None or "d" not in fields:
        return None
    if "week" in fields:
        return (year * 366 + int(fields["week"]) * 7 + int(fields["d"])) * 86400.0
    day = int(fields["d"])
    month = months()[fields["name"].lower()] if "name" in fields else int(fields["mo"])
    if month > 12 or ("by" in fields and fields["by"] == "/" and day <= 12 < month):
        day, month = month, day
    hours = int(fields.get("h", 0))
    if "half" in fields or "east" in fields:
        hours = hours % 12 + 12 * (fields.get("half", "").lower() == "p" or fields.get("east") in AFTERNOON)
    moment = ((year * 12 + month) * 31 + day) * 86400 + hours * 3600
    return moment + int(fields.get("mi", 0)) * 60 + float(f"{fields.get('s', 0)}.{fields.get('f', 0)}")
