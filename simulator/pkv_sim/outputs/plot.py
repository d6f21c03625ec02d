"""A curve drawn with block characters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

LEVELS = " ▁▂▃▄▅▆▇█"


def area(heights: Sequence[float], rows: int) -> Iterator[str]:
    """Columns of these heights, from 0 to 1, as so many rows from the top. Spaces at the ends are left out."""
    steps = len(LEVELS) - 1
    filled = [round(min(max(height, 0.0), 1.0) * rows * steps) for height in heights]
    for row in range(rows - 1, -1, -1):
        yield "".join(LEVELS[min(max(column - row * steps, 0), steps)] for column in filled).rstrip()


def interpolated(points: Sequence[tuple[float, float]], columns: int) -> list[float]:
    """The values of a curve at equal distances from its first point to its last: straight lines between points, which
    are (place, value) with ascending places."""
    first, last = points[0][0], points[-1][0]
    values = []
    at = 0
    for column in range(columns):
        place = first + (last - first) * column / (columns - 1)
        while at < len(points) - 2 and points[at + 1][0] < place:
            at += 1
        (left, low), (right, high) = points[at], points[at + 1]
        part = (place - left) / (right - left)
        values.append(low + (high - low) * min(part, 1.0))
    return values
