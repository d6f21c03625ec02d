"""Times to the first token that stand in recorded traffic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC
from typing import Any, NamedTuple

from pkv_lint.prompt.clock import read_timestamp
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.json_values import read_values
from pkv_lint.prompt.streams import plain_stream


class TimedLine(NamedTuple):
    """One request: seconds on the clock of the traffic, seconds to the first token, and tokens of its prompt."""

    start: float
    end: float
    ttft: float
    prompt_tokens: int
    cached_tokens: int


def timed_lines(file: str) -> Iterator[TimedLine]:
    """The lines that tell times and usage (see pkv-record). Raises InputError for a file that cannot be read."""
    with plain_stream(file, file) as stream:
        for item in read_values(stream, file):
            if not isinstance(item, InputError) and (line := _timed(item.value)) is not None:
                yield line


def _timed(value: Any) -> TimedLine | None:
    usage = value.get("usage") if isinstance(value, dict) else None
    if not isinstance(usage, dict):
        return None
    ttft, prompt, cached = value.get("ttft"), usage.get("prompt_tokens"), usage.get("cached_tokens")
    if not isinstance(ttft, int | float) or type(prompt) is not int or type(cached) is not int:
        return None
    try:
        start, end = (read_timestamp(value.get(name), UTC, name).seconds for name in ("timestamp", "end_timestamp"))
    except InputError:
        return None
    if start is None or end is None or ttft <= 0 or not 0 <= cached < prompt:
        return None
    return TimedLine(start, end, ttft, prompt, cached)


def alone(lines: Iterable[TimedLine]) -> list[TimedLine]:
    """Those that ran while no other did, in the order of their times."""
    ordered = sorted(lines)
    found = []
    busy = float("-inf")
    for at, line in enumerate(ordered):
        following = ordered[at + 1].start if at + 1 < len(ordered) else float("inf")
        if busy <= line.start and line.end <= following:
            found.append(line)
        busy = max(busy, line.end)
    return found
