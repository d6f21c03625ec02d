"""Why prompt tokens were not found in the cache: each has exactly one reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Misses(NamedTuple):
    """Prompt tokens that were computed, by reason. The names are the keys of the JSON output.

    `other_replica`: cached on another replica. `other_namespace`: cached under another salt or adapter. `evicted`: were
    cached once. `last_block`: the last block of a prompt that ends with a block; its last token is always computed, so
    none of it is reused. `diverged`: behind the place where an earlier request goes on otherwise. `first_seen`: new.
    `partial_block`: behind the last full block. `below_block`: the whole of a prompt that is shorter than a block.
    """

    other_replica: int = 0
    other_namespace: int = 0
    evicted: int = 0
    last_block: int = 0
    diverged: int = 0
    first_seen: int = 0
    partial_block: int = 0
    below_block: int = 0

    @property
    def tokens(self) -> int:
        return sum(self)


def total(misses: Iterable[Misses]) -> Misses:
    """All of them together."""
    return Misses(*map(sum, zip(Misses(), *misses, strict=True)))


def misses_of(
    num_prompt_tokens: int,
    block_size: int,
    *,
    hit: int,
    seen: int,
    diverges: bool,
    other_namespace: int = 0,
    other_replica: int = 0,
) -> Misses:
    """The reasons for what a request did not hit, block by block from the hit on the first that fits, in the order of
    the fields.

    Counts are blocks from the start of the prompt: `hit` were reused, `seen` were computed before in this namespace,
    `other_namespace` and `other_replica` are cached there now. `diverges` says whether an earlier request goes on
    otherwise behind what this one shares with all of them. The cap on the last block comes first: no cache would have
    served that block.
    """
    full, tail = divmod(num_prompt_tokens, block_size)
    if not full:
        return Misses(below_block=num_prompt_tokens)
    usable = (num_prompt_tokens - 1) // block_size
    replica = max(hit, min(other_replica, usable))
    namespace = max(replica, min(other_namespace, usable))
    once = max(namespace, min(seen, usable))
    last = int(full > usable and max(seen, other_namespace, other_replica) >= full)
    new = full - once - last
    return Misses(
        other_replica=(replica - hit) * block_size,
        other_namespace=(namespace - replica) * block_size,
        evicted=(once - namespace) * block_size,
        last_block=last * block_size,
        diverged=new * block_size if diverges else 0,
        first_seen=0 if diverges else new * block_size,
        partial_block=tail,
    )
