"""Timestamps of recorded requests."""

from __future__ import annotations

import subprocess
import sys
import zoneinfo
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pkv_lint.prompt.clock import Moment, read_timestamp, read_timezone
from pkv_lint.prompt.errors import InputError

EPOCH = 1795961133  # 2026-11-29 14:05:33 UTC
PLUS2 = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("value", "zone", "now"),
    [
        ("2026-11-29T14:05:33", UTC, datetime(2026, 11, 29, 14, 5, 33)),
        ("2026-11-29T14:05:33", PLUS2, datetime(2026, 11, 29, 14, 5, 33)),  # local already
        ("2026-11-29 14:05:33.5", UTC, datetime(2026, 11, 29, 14, 5, 33, 500_000)),
        ("2026-11-29 14:05:33.1234567", UTC, datetime(2026, 11, 29, 14, 5, 33, 123_456)),
        ("2026-11-29", UTC, datetime(2026, 11, 29)),
        ("20261129T140533", UTC, datetime(2026, 11, 29, 14, 5, 33)),
        (" 2026-11-29T14:05:33Z\n", UTC, datetime(2026, 11, 29, 14, 5, 33)),
        ("2026-11-29T14:05:33Z", PLUS2, datetime(2026, 11, 29, 16, 5, 33)),
        ("2026-11-29T14:05:33+02:00", UTC, datetime(2026, 11, 29, 12, 5, 33)),
        ("2026-11-29T14:05:33-0530", UTC, datetime(2026, 11, 29, 19, 35, 33)),
        (EPOCH, UTC, datetime(2026, 11, 29, 14, 5, 33)),
        (EPOCH, PLUS2, datetime(2026, 11, 29, 16, 5, 33)),
        (EPOCH + 0.25, UTC, datetime(2026, 11, 29, 14, 5, 33, 250_000)),
        (EPOCH * 1000 + 250, UTC, datetime(2026, 11, 29, 14, 5, 33, 250_000)),
        (10**8, UTC, datetime(1973, 3, 3, 9, 46, 40)),
        (10**11, UTC, datetime(1973, 3, 3, 9, 46, 40)),
    ],
)
def test_the_server_sees(value: Any, zone: timezone, now: datetime) -> None:
    assert read_timestamp(value, zone).now == now


@pytest.mark.parametrize("value", [0, 0.5, 12, 99_999_999, 99_999_999.9])
def test_small_numbers_have_no_clock(value: float) -> None:
    assert read_timestamp(value) == Moment(float(value), None)


def test_no_timestamp_is_no_moment() -> None:
    assert read_timestamp(None) == Moment(None, None)


@pytest.mark.parametrize("value", [EPOCH, EPOCH * 1000, "2026-11-29T14:05:33Z", "2026-11-29T16:05:33+02:00"])
def test_all_forms_are_ordered_by_the_same_seconds(value: Any) -> None:
    assert read_timestamp(value, PLUS2).seconds == EPOCH


def test_local_times_are_ordered_by_the_zone() -> None:
    assert read_timestamp("2026-11-29T16:05:33", PLUS2).seconds == EPOCH


@pytest.mark.skipif(not zoneinfo.available_timezones(), reason="needs the system's time zones or the package tzdata")
def test_summer_time_is_followed() -> None:
    zone = read_timezone("Europe/Berlin")
    assert read_timestamp("2026-07-01T12:00:00Z", zone).now == datetime(2026, 7, 1, 14)
    assert read_timestamp("2026-12-01T12:00:00Z", zone).now == datetime(2026, 12, 1, 13)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "yesterday",
        "2026-13-01",
        "2026-11-29T25:00:00",
        "1795961133",
        "0001-01-01T00:00:00+14:00",
        -1,
        1e14,
        10**400,
        float("nan"),
        float("inf"),
        True,
        [],
        {"a": 1},
        "x" * 1000,
    ],
)
def test_anything_else_is_one_clear_line(value: Any) -> None:
    with pytest.raises(InputError) as caught:
        read_timestamp(value, path="end_timestamp")
    assert caught.value.code == "PKV902"
    assert str(caught.value).startswith("end_timestamp: needs ISO 8601 or seconds, not ")
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    ("name", "hours"), [("UTC", 0.0), ("utc", 0.0), ("+02:00", 2.0), ("-0530", -5.5), ("-00:30", -0.5)]
)
def test_zones(name: str, hours: float) -> None:
    assert read_timezone(name).utcoffset(datetime(2026, 1, 1)) == timedelta(hours=hours)


@pytest.mark.parametrize("name", ["", "Nowhere/Else", "Europe", "../etc/passwd", "/etc/passwd", "+25:00", "+2", "a\0b"])
def test_unknown_zones_are_one_clear_line(name: str) -> None:
    with pytest.raises(InputError, match="unknown time zone"):
        read_timezone(name)


@given(st.datetimes(datetime(1974, 1, 1), datetime(5000, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_writing_a_moment_in_any_way_gives_it_back(now: datetime, minutes: int) -> None:
    offset = timezone(timedelta(minutes=minutes))
    aware = now.replace(tzinfo=offset)
    assert read_timestamp(aware.isoformat(), offset).now == now
    assert read_timestamp(aware.astimezone(UTC).isoformat(), offset).now == now
    whole = now.replace(microsecond=0)
    assert read_timestamp(whole.replace(tzinfo=offset).timestamp(), offset).now == whole


def test_reading_utc_loads_no_zone_database() -> None:
    code = "import sys; from pkv_lint.prompt.clock import *; read_timezone('UTC'); print('zoneinfo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


@pytest.mark.parametrize(
    ("value", "shown"), [([], "a list"), ({}, "an object"), (True, "true"), ("x", "'x'"), (-5, "-5")]
)
def test_what_no_timestamp_is_is_named_in_words_of_json(value: Any, shown: str) -> None:
    with pytest.raises(InputError) as caught:
        read_timestamp(value)
    assert caught.value.message == f"needs ISO 8601 or seconds, not {shown}"
