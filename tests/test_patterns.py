"""Dates, times and identifiers in text."""

# ruff: noqa: RUF001 (the letters of other alphabets are meant)

from __future__ import annotations

from itertools import pairwise

import pytest

from pkv_lint.patterns import identifiers, timestamps, values, volatile
from pkv_lint.timestamps import find_timestamps

# What is found stands between the brackets; the unit is the finest that it shows.
TIMES = {
    "at [2026-11-29 14:05:33] sharp": "second",
    "[2026-11-29T14:05:33.123+02:00]": "fraction",
    "[2026-11-29 14]:": "day",
    "[Sun Nov 29 14:05:33 UTC 2026]": "second",
    "[Sunday, November 29, 2026 at 2:05 PM] there": "minute",
    "am [Sonntag, 29. November 2026, 14:05 Uhr]": "minute",
    "[29/11/2026 à 14h05]": "minute",
    "[29 de noviembre de 2026]": "day",
    "[29 ноября 2026 г., 14:05]": "minute",
    "[2026年11月29日(日) 午後2時05分]": "minute",
    "[2026년 11월 29일 오후 2시]": "hour",
    "[٢٩/١١/٢٠٢٦ ١٤:٠٥]": "minute",
    "ts [1795961133]": "second",
    "ts [1795961133123]": "fraction",
    "[20261129T140533Z]": "second",
    "week [2026-W48-7]": "day",
    "see you on [Friday]": "day",
    "around [2 pm]": "hour",
}
NO_TIMES = [
    "v1.14.05 and 1.2.26",
    "localhost:8080",
    "main.py:12:34",
    "3c:22:fb:01:02:03",
    "gpt-4o-2024-08-06",
    "you may 5 times set 10 of 12",
    "the sun, the mon and 12.000.000",
    "0123456789 9999999999 12345678901",
    "call 555-12-2024",
    "a fee of $12.05. Also £ 10.11. a day",
    "it costs EUR 12.11. in all, or USD 10.05. a day",
]


def marked(text: str) -> tuple[str, tuple[int, int]]:
    start, end = text.index("["), text.index("]") - 1
    return text.replace("[", "", 1).replace("]", "", 1), (start, end)


@pytest.mark.parametrize("text", [text for text in TIMES if text != "[2026-11-29 14]:"])
def test_timestamps(text: str) -> None:
    bare, span = marked(text)
    (found,) = timestamps(bare)
    assert ((found.start, found.end), found.granularity) == (span, TIMES[text])


@pytest.mark.parametrize("text", NO_TIMES)
def test_no_timestamps(text: str) -> None:
    assert not list(timestamps(text))


def test_the_order_of_timestamps_is_that_of_time() -> None:
    rising = [
        "2025-12-31 23:59:59",
        "Jan 1, 2026 12:05 AM",
        "1. Januar 2026, 08:00 Uhr",
        "01/31/2026, 2:05 PM",
        "2026年2月1日 下午3:00",
        "1 mars 2026 à 9h00",
        "20261129T140533Z",
    ]
    orders = [find_timestamps(text, 0, len(text))[0].order for text in rising]
    assert None not in orders and orders == sorted(orders, key=lambda order: order or 0)


IDS = [
    "id [3f2504e0-4f89-41d3-9a0c-0305e82c3301].",
    "[01ARZ3NDEKTSV4RRFFQ69G5FAV]",
    "Bearer [eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF-12]",
    "[00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01]",
    "state [9fceb02d0ae598e95dc970b74767f19372d61af8]",
    "thread [thread_8fK3k2x91]",
    "[V1StGXR8_Z5jdHi6B-myT]",
    "nonce: [kJ8s+Qd9/4mZpA==]",
    "session=[af01]",
    "sessionId: [4711]",
    "trace-id [48213377]",
    "Sitzungs-ID: [47a1]",
    "ID запроса: [8812734]",
    "请求ID：[98f2a1]",
]
NO_IDS = [
    "session 3 of 20, request: 3, turn 12",
    "the lid 56 of the grid 7",
    "/home/ana/projects/tern2/src",
    "commit 3f9a1c2 on feature/abc-123",
    "gpt-4o-2024-08-06 claude-3-5-sonnet-20241022",
    "customer id: 4711, user no. 88123",
    "SHA256 HTTP2 python3.11 utf8mb4_general_ci",
    "sum=04fd1",
    "abc123 call_abc123",
]


@pytest.mark.parametrize("text", IDS)
def test_identifiers(text: str) -> None:
    bare, span = marked(text)
    assert [(found.start, found.end) for found in identifiers(bare)] == [span]


@pytest.mark.parametrize("text", NO_IDS)
def test_no_identifiers(text: str) -> None:
    assert not list(identifiers(text))


def test_a_span_finds_what_touches_it() -> None:
    text = "at 14:05 and at 15:06"
    assert [text[found.start : found.end] for found in timestamps(text, 6, 7)] == ["14:05"]
    assert [text[found.start : found.end] for found in timestamps(text, 10, 11)] == []


def test_values_of_a_line_do_not_overlap() -> None:
    line = "2026-11-29 14:05 [3f2504e0-4f89-41d3-9a0c-0305e82c3301] run-20261129-140533 ok"
    spans = values(line)
    assert spans[:2] == [(0, 16), (18, 54)]
    assert all(one[1] <= other[0] for one, other in pairwise(spans))


def test_only_words_around_make_a_lone_date_the_time_of_the_request() -> None:
    text = "Now: 2026-11-29 14:05\nOpen until 18:00.\nNow, e.g. 14:05\nTrip on 2026-12-24."
    assert [text[found.start : found.end] for found in volatile(text, instructions=True)] == ["2026-11-29 14:05"]


@pytest.mark.parametrize(
    "piece", ["a b 12 ", "2026-", "14:", "f3", "1 de ", "Mon, ", "id: 7 ", "a/b+c1/", "eyJ", "\n", "ー1月"]
)
def test_long_text_comes_to_an_end(piece: str) -> None:
    text = piece * (30_000 // len(piece))
    list(volatile(text, instructions=True))
    values(text)
