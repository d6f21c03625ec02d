"""Canonical CBOR of what block hashes are made of (RFC 8949 section 4.2.1, as `cbor2.dumps(value, canonical=True)`)."""

from __future__ import annotations

from typing import Any


class CanonicalCbor:
    """Encodes ints of 64 bits, bytes, strings, None and tuples of them. Anything else is a TypeError.

    Each instance remembers the encoding of the ints it has seen: token ids come from one vocabulary, again and again.
    """

    __slots__ = ("_ints",)

    def __init__(self) -> None:
        self._ints = _EncodedInts()

    def dumps(self, value: object) -> bytes:
        if isinstance(value, tuple):
            return _head(4, len(value)) + self._items(value)
        if isinstance(value, bytes):
            return _head(2, len(value)) + value
        if isinstance(value, str):
            text = value.encode()
            return _head(3, len(text)) + text
        if value is None:
            return b"\xf6"
        if type(value) is int:
            return self._ints[value]
        raise TypeError(f"no canonical CBOR here for {type(value).__name__}")

    def _items(self, items: tuple[Any, ...]) -> bytes:
        # The token ids of a block: nearly all the bytes there are, and all of them ints.
        if items and type(items[0]) is int and type(items[-1]) is int:
            return b"".join(map(self._ints.__getitem__, items))
        return b"".join(map(self.dumps, items))


class _EncodedInts(dict[int, bytes]):
    def __missing__(self, number: int) -> bytes:
        if type(number) is not int:
            raise TypeError(f"no canonical CBOR here for {type(number).__name__} among ints")
        encoded = self[number] = _head(0, number) if number >= 0 else _head(1, -1 - number)
        return encoded


def _head(major: int, number: int) -> bytes:
    """The initial byte and its argument in the shortest form."""
    if number < 24:
        return bytes((major << 5 | number,))
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if number < 1 << 8 * size:
            return bytes((major << 5 | code,)) + number.to_bytes(size, "big")
    raise TypeError("no canonical CBOR here for ints beyond 64 bits")
