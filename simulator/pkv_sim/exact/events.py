"""KV cache events, as vLLM publishes them (`distributed/kv_events.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pkv_sim.exact.extra_keys import ExtraKeys


@dataclass(frozen=True, slots=True)
class BlockStored:
    """Blocks of one request that became findable in one step, in order.

    `block_hashes` are raw digests (see `external_block_hash`), `parent_block_hash` the digest before the first of them
    (None at a prompt's start), `token_ids` all their tokens, `extra_keys` one entry for each block (untagged).
    """

    block_hashes: tuple[bytes, ...]
    parent_block_hash: bytes | None
    token_ids: Sequence[int]
    block_size: int
    extra_keys: tuple[ExtraKeys | None, ...]
    lora_name: str | None = None
    group_idx: int = 0


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """A block was taken for other content and lost its hash. (That a request let go of it says nothing.)"""

    block_hashes: tuple[bytes, ...]
    group_idx: int = 0


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """The prefix cache was reset."""


KVCacheEvent = BlockStored | BlockRemoved | AllBlocksCleared


def external_block_hash(block_hash: bytes, *, as_int: bool = True) -> int | bytes:
    """A digest as it stands in a published event: its low 64 bits as an unsigned int, or all of its bytes.

    The latter is what a server with VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0 publishes.
    """
    return int.from_bytes(block_hash[-8:], "big") if as_int else block_hash
