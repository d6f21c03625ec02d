"""The clock that a recorded request was rendered under."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

from pkv_lint.prompt.errors import InputError

# Smaller numbers are seconds since some start (10^8 s after 1970 is 1973), larger ones Unix seconds; from 10^11 (the
# year 5138) on they are Unix milliseconds, as many logs write them; from 10^14 on they are refused.
_UNIX_SECONDS = 1e8
_UNIX_MILLISECONDS = 1e11
_TOO_LARGE = 1e14
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")


@dataclass(frozen=True, slots=True)
class Moment:
    """When a request came: `seconds` order the requests of one traffic (since 1970, or since the traffic's own start),
    `now` is the naive local time of the server that a template sees. None stands for unknown; relative seconds have no
    clock.
    """

    seconds: float | None = None
    now: datetime | None = None


UNKNOWN = Moment()


def read_timezone(name: str) -> tzinfo:
    """The zone called `UTC`, `+02:00` or `Europe/Berlin`. Raises InputError."""
    if name.upper() in ("UTC", "Z"):
        return UTC
    if found := _OFFSET.fullmatch(name):
        hours, minutes = int(found[2]), int(found[3])
        if hours < 24 and minutes < 60:
            offset = timedelta(hours=hours, minutes=minutes)
            return timezone(-offset if found[1] == "-" else offset)
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise InputError(f"unknown time zone {name[:60]!r} (such as UTC, +02:00 or Europe/Berlin)") from None


def read_timestamp(value: Any, zone: tzinfo = UTC, path: str = "timestamp") -> Moment:
    """The moment that a timestamp means: ISO 8601 without offset is the server's local time, with an offset it is
    converted to `zone`, as Unix seconds (or milliseconds) are; numbers below 10^8 are seconds since some start.

    None gives an unknown moment. Raises InputError (PKV902), naming `path`.
    """
    if value is None:
        return UNKNOWN
    try:
        if isinstance(value, str):
            return _from_text(value, zone)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _from_number(value, zone)
    except (ValueError, OverflowError):
        pass
    if isinstance(value, bool):
        shown = str(value).lower()
    elif isinstance(value, str | int | float):
        shown = repr(value)
    else:
        shown = "a list" if isinstance(value, list) else "an object"
    if len(shown) > 60:
        shown = shown[:57] + "..."
    raise InputError(f"needs ISO 8601 or seconds, not {shown}", path=path, code="PKV902")


def _from_text(value: str, zone: tzinfo) -> Moment:
    moment = datetime.fromisoformat(value.strip())
    if moment.tzinfo is None:
        return Moment(moment.replace(tzinfo=zone).timestamp(), moment)
    return Moment(moment.timestamp(), moment.astimezone(zone).replace(tzinfo=None))


def _from_number(value: float, zone: tzinfo) -> Moment:
    if not 0 <= value < _TOO_LARGE or not math.isfinite(value):
        raise ValueError
    if value < _UNIX_SECONDS:
        return Moment(float(value), None)
    seconds = value / 1000 if value >= _UNIX_MILLISECONDS else float(value)
    return Moment(seconds, datetime.fromtimestamp(seconds, zone).replace(tzinfo=None))
