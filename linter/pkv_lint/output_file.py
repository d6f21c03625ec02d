"""An output file that is written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pkv_lint.prompt.errors import InputError


def check_writable(name: str) -> None:
    """Raises InputError for a file that cannot be written, before the work is done whose result it is to hold."""
    path = Path(name)
    if path.is_dir():
        raise InputError("cannot be written: is a directory", file=name)
    if not path.parent.is_dir():
        raise InputError(f"cannot be written: there is no directory {path.parent}", file=name)
    if path.exists() and not os.access(path, os.W_OK):
        # It could be replaced all the same: that is a matter of the folder.
        raise InputError("cannot be written: permission denied", file=name)


def write_file(name: str, parts: Iterable[str]) -> None:
    """Write a text as UTF-8; what it cannot hold as an escape. See `write_bytes`."""
    write_bytes(name, (part.encode(errors="backslashreplace") for part in parts))


def write_bytes(name: str, parts: Iterable[bytes]) -> None:
    """Write a file, or its content anew. A reader sees the old one or the whole new one. Raises InputError."""
    check_writable(name)
    import tempfile

    target = os.path.realpath(name)
    try:
        if os.path.exists(target) and not os.path.isfile(target):
            with open(target, "wb") as stream:  # such as a pipe
                stream.writelines(parts)
            return
        handle, scratch = tempfile.mkstemp(prefix=".pkv-", dir=os.path.dirname(target))
        try:
            with open(handle, "wb") as stream:
                stream.writelines(parts)
            os.chmod(scratch, mode_of(target))
            os.replace(scratch, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(scratch)
            raise
    except OSError as error:
        raise InputError(f"cannot be written: {(error.strerror or str(error)).lower()}", file=name) from None


def mode_of(target: str) -> int:
    """The permissions that the file has, or that a new one gets (temporary files are for their owner alone)."""
    with suppress(FileNotFoundError):
        return os.stat(target).st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
