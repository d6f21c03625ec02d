"""Server-sent events, from bytes as they come."""

from __future__ import annotations

import re

_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")


class EventReader:
    """Cuts a stream into the data of its events; names, ids and comments are passed over.

    Works on bytes: text that is decoded and cut at every kind of line end would break JSON that holds one (U+2028).
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, part: bytes) -> list[bytes]:
        """The data of the events that are complete with this part."""
        *lines, self._rest = _LINE_END.split(self._rest + part)
        events = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events
