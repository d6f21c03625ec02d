"""Replies are read within bounds: a server that is no server may send for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx

MOST_BYTES = 64 << 20
"""Bytes of one reply that are read, once they are decompressed."""


class TooLongError(httpx.RequestError):
    """A reply of more than MOST_BYTES."""


async def parts(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body as it comes. Raises TooLongError and what httpx does."""
    left = MOST_BYTES
    async for part in response.aiter_bytes():
        left -= len(part)
        if left < 0:
            raise TooLongError(f"longer than {MOST_BYTES:,} bytes")
        yield part


async def whole(response: httpx.Response) -> bytes:
    """The body, once all of it is there. Raises as `parts`."""
    return b"".join([part async for part in parts(response)])


async def fetch(client: httpx.AsyncClient, method: str, path: str, body: Any = None) -> httpx.Response:
    """A whole answer, within the client's time-out for a read. Raises httpx.RequestError."""
    seconds = client.timeout.read
    try:
        async with asyncio.timeout(seconds), client.stream(method, path, json=body) as response:
            return httpx.Response(response.status_code, content=await whole(response))
    except (TimeoutError, httpx.TimeoutException):
        raise httpx.ReadTimeout(f"no whole answer within {seconds:g} s") from None
