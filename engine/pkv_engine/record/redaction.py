"""Traffic without its text: what stays is which prompts begin alike, and how long they are."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import blake2b
from typing import Any

from pkv_engine.protocol.endpoints import PATHS
from pkv_engine.record.lines import Exchange, counts, timestamp
from pkv_lint.prompt.renderer import Renderer

ID_BITS = 31


class Redactor:
    """Replaces each token id by a keyed pseudo-random function of all ids up to it.

    Prompts that begin with the same tokens keep that, and nothing else: equal tokens behind different beginnings get
    different ids. Without the key an id cannot be tested against a guess. Two different prefixes get one id with a
    chance of 2^-31, a whole block of 16 tokens by chance never.
    """

    def __init__(self, key: bytes, renderer: Renderer) -> None:
        """`key` has 1 to 64 bytes. Exchanges with one key are comparable."""
        self._key = key
        self._renderer = renderer

    def line(self, exchange: Exchange) -> dict[str, Any]:
        """The exchange as token ids. Raises RenderError for a request that the server would refuse."""
        prompt = self._renderer.render(exchange.request, datetime.now(), api=exchange.api).token_ids
        output = self._generated(exchange)
        ids = array("i", self.ids([*prompt, *output]))
        salt = exchange.request.get("cache_salt")
        line: dict[str, Any] = {
            "timestamp": timestamp(exchange.started),
            "end_timestamp": timestamp(exchange.ended),
            "path": PATHS[exchange.api],
            "session_id": self.name(exchange.session_id) if exchange.session_id else None,
            "model": exchange.request.get("model"),
            "cache_salt": self.name(str(salt)) if salt else None,
            "token_ids": ids[: len(prompt)].tolist(),
            "output_token_ids": ids[len(prompt) :].tolist() if output else None,
            **counts(exchange),
        }
        return {name: value for name, value in line.items() if value is not None}

    def ids(self, token_ids: Iterable[int]) -> Iterator[int]:
        """One id below 2^31 for each prefix."""
        digest = b""
        for token in token_ids:
            digest = blake2b(digest + struct.pack("<q", token), key=self._key, digest_size=16).digest()
            yield int.from_bytes(digest[:4], "little") >> (32 - ID_BITS)

    def name(self, text: str) -> str:
        """What stands for a name."""
        return blake2b(text.encode("utf-8", "surrogatepass"), key=self._key, digest_size=8, person=b"name").hexdigest()

    def _generated(self, exchange: Exchange) -> array[int]:
        reply = exchange.reply
        if reply.token_ids is not None:
            return reply.token_ids
        return self._renderer.encode_completion(reply.text) if reply.plain and reply.text else array("i")
