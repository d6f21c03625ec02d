"""The address of a server as users write it."""

from __future__ import annotations

import httpx

from pkv_lint.prompt.errors import InputError


def server_root(url: str, option: str) -> str:
    """The URL without the version that its paths begin with: both `http://host:8000` and `http://host:8000/v1` are
    written. Raises InputError, which names the option, for what is no such URL."""
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InputError(f"{option}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.host or (parts.port or 0) > 65535:
        raise InputError(f"{option} needs a URL such as http://127.0.0.1:8000, not {url!r}")
    return url.rstrip("/").removesuffix("/v1")
