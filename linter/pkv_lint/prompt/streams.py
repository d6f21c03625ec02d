"""Bytes of a file or of stdin as a stream, decompressed; what can go wrong is one clear line."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, BinaryIO

from pkv_lint.prompt.errors import InputError

Source = str | os.PathLike[str] | BinaryIO
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""What compressed files begin with."""


def name_of(source: Source, name: str | None = None) -> str:
    """What messages call a source: `name`, else its path."""
    if name is not None:
        return name
    if not isinstance(source, str | os.PathLike):
        return "input"
    return "stdin" if os.fspath(source) == "-" else os.fspath(source)


@contextmanager
def plain_stream(source: Source, name: str) -> Iterator[io.BufferedIOBase]:
    """The plain bytes of a file (`-` is stdin) or of a binary stream, which stays open; gzip and zstd are told by the
    first bytes. Raises InputError for what cannot be opened or read, while it is read as well."""
    if not isinstance(source, str | os.PathLike):
        with _decompressed(source, name) as plain:
            yield plain
    elif (path := os.fspath(source)) == "-":
        with _decompressed(sys.stdin.buffer, name) as plain:
            yield plain
    else:
        with open_file(path, name) as stream, _decompressed(stream, name) as plain:
            yield plain


def open_file(path: str, name: str) -> BinaryIO:
    """A regular file for reading. Raises InputError."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise InputError("is a directory", file=name)
        if not stat.S_ISREG(mode):
            # Opening a pipe that nobody writes to would wait for ever.
            raise InputError("is not a regular file (to read from a command, pipe it into stdin and name -)", file=name)
        return open(path, "rb")
    except FileNotFoundError:
        raise InputError("no such file", file=name) from None
    except PermissionError:
        raise InputError("no permission to read it", file=name) from None
    except OSError as error:
        raise InputError(f"cannot be opened ({(error.strerror or str(error)).lower()})", file=name) from None
    except ValueError:  # a zero byte in the name
        raise InputError("is not a file name", file=name) from None


@contextmanager
def _decompressed(stream: BinaryIO, name: str) -> Iterator[io.BufferedIOBase]:
    # Other streams (BytesIO, sockets) cannot be looked into before reading; they stay open.
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)  # type: ignore[type-var]
    damage: tuple[type[Exception], ...] = (gzip.BadGzipFile, zlib.error)
    try:
        plain: io.BufferedIOBase = buffered
        magic = buffered.peek(4)[:4]
        if magic.startswith(GZIP):
            plain = gzip.GzipFile(fileobj=buffered)
        elif magic == ZSTD:
            zstandard = _zstandard(name)
            plain, damage = io.BufferedReader(_ZstdStream(buffered, zstandard)), (zstandard.ZstdError,)
        yield plain
    except EOFError:
        raise InputError("the compressed data ends too early", file=name) from None
    except damage as error:
        raise InputError(f"the compressed data is damaged ({str(error).lower()})", file=name) from None
    except OSError as error:
        raise InputError(f"cannot be read ({(error.strerror or str(error)).lower()})", file=name) from None
    finally:
        if buffered is not stream:
            buffered.detach()


def _zstandard(name: str) -> Any:
    try:
        return import_module("zstandard")
    except ImportError:
        raise InputError("is compressed with zstd; install the package zstandard to read it", file=name) from None


class _ZstdStream(io.RawIOBase):
    """The plain bytes of zstd frames (zstandard's own stream_reader takes a frame that is cut off for a whole one)."""

    def __init__(self, source: io.BufferedIOBase, zstandard: Any) -> None:
        self._source = source
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame: Any = None
        self._packed = b""
        self._plain = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._plain:
            # Little at a time: a few bytes can stand for megabytes.
            packed = self._packed or self._source.read(2048)
            if not packed:
                if self._frame is not None:
                    raise EOFError
                return 0
            if self._frame is None:
                self._frame = self._decompressor.decompressobj()
            self._plain = memoryview(self._frame.decompress(packed))
            self._packed = b""
            if self._frame.eof:
                self._packed, self._frame = self._frame.unused_data, None
        size = min(len(buffer), len(self._plain))
        buffer[:size] = self._plain[:size]
        self._plain = self._plain[size:]
        return size
