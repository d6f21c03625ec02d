"""A file of lines that grows by whole ones."""

from __future__ import annotations

import os
from contextlib import suppress

from pkv_lint.prompt.errors import InputError


class LineFile:
    """A context manager. Lines are appended; the file is made for its owner's eyes alone, as traffic is private."""

    def __init__(self, name: str) -> None:
        """Raises InputError for a file that cannot be written."""
        try:
            self._file = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", file=name) from None
        end = os.lseek(self._file, 0, os.SEEK_END)
        if end and os.pread(self._file, 1, end - 1) != b"\n":
            # Whoever wrote it before was cut off; what follows must not be joined to that.
            self.write(b"\n")

    def __enter__(self) -> LineFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def write(self, line: bytes) -> None:
        """Appends a line; where that fails (a full disk), nothing of it stays. Raises OSError."""
        start = os.lseek(self._file, 0, os.SEEK_END)
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            with suppress(OSError):  # devices have no length; the first error is the one to tell
                os.ftruncate(self._file, start)
            raise
