"""The blocks of the KV cache and the map from hashes to them (vLLM: `v1/core/block_pool.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pkv_sim.exact.events import AllBlocksCleared, BlockRemoved, BlockStored, KVCacheEvent
from pkv_sim.exact.extra_keys import event_extra_keys, extra_keys
from pkv_sim.exact.free_queue import FreeKVCacheBlockQueue
from pkv_sim.exact.profile import DEFAULT_PROFILE, Profile
from pkv_sim.exact.request import Request

# A block hash and the KV cache group that the block belongs to: the same prefix has one entry for each group.
BlockKey = tuple[bytes, int]

NULL_BLOCK = 0


class BlockPool:
    """Blocks 0 to num_gpu_blocks - 1, named by their id. Block 0 is the null block: it is never free and never cached.

    A block is free when nobody refers to it. It keeps its hash while it is free, until it is taken for other content
    (lazy eviction), so the free queue is the LRU list of the prefix cache as well.
    """

    __slots__ = (
        "_block_keys",
        "_cached",
        "_events",
        "_profile",
        "enable_kv_cache_events",
        "free_block_queue",
        "num_gpu_blocks",
        "ref_counts",
    )

    def __init__(
        self, num_gpu_blocks: int, *, enable_kv_cache_events: bool = False, profile: Profile = DEFAULT_PROFILE
    ) -> None:
        """`num_gpu_blocks` counts the null block, as vLLM's `--num-gpu-blocks-override` does."""
        if num_gpu_blocks < 1:
            raise ValueError("a block pool needs at least the null block")
        self.num_gpu_blocks = num_gpu_blocks
        self.enable_kv_cache_events = enable_kv_cache_events
        self.free_block_queue = FreeKVCacheBlockQueue(num_gpu_blocks)
        self.free_block_queue.popleft_n(1)
        self.ref_counts = [0] * num_gpu_blocks
        self._block_keys: list[BlockKey | None] = [None] * num_gpu_blocks
        # A hash is mostly held by one block, else by several in the order in which they got it. vLLM does not
        # de-duplicate: block tables are append-only, and the first holder answers.
        self._cached: dict[BlockKey, int | dict[int, None]] = {}
        self._events: list[KVCacheEvent] = []
        self._profile = profile

    @property
    def num_free_blocks(self) -> int:
        return self.free_block_queue.num_free_blocks

    @property
    def usage(self) -> float:
        """The share of usable blocks that are in use, 0 to 1."""
        usable = self.num_gpu_blocks - 1
        return 1.0 - self.num_free_blocks / usable if usable else 0.0

    @property
    def num_cached_hashes(self) -> int:
        """The number of different hashes that can be found."""
        return len(self._cached)

    @property
    def cached_blocks(self) -> Mapping[BlockKey, tuple[int, ...]]:
        """Every hash that can be found with the blocks that hold it, the one that answers first (for tests)."""
        return {key: (held,) if isinstance(held, int) else tuple(held) for key, held in self._cached.items()}

    def block_key(self, block: int) -> BlockKey | None:
        """The hash and group of a block, None when it has no hash."""
        return self._block_keys[block]

    def get_cached_block(self, block_hash: bytes, group_id: int) -> int | None:
        """The block that answers for a hash. Looking it up changes nothing."""
        held = self._cached.get((block_hash, group_id))
        if held is None or isinstance(held, int):
            return held
        return next(iter(held))

    def touch(self, blocks: Iterable[int]) -> None:
        """Refers to cached blocks once more; those that were free leave the free queue."""
        refs = self.ref_counts
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            if not refs[block]:
                self.free_block_queue.remove(block)
            refs[block] += 1

    def get_new_blocks(self, count: int) -> list[int]:
        """Takes the first `count` free blocks; those that were cached are lost to the cache now.

        Raises ValueError when fewer are free.
        """
        if count > self.free_block_queue.num_free_blocks:
            raise ValueError(f"{count} blocks were asked for and {self.num_free_blocks} are free")
        blocks = self.free_block_queue.popleft_n(count)
        refs, keys = self.ref_counts, self._block_keys
        for block in blocks:
            refs[block] = 1
            if (key := keys[block]) is not None:
                self._evict(block, key)
        return blocks

    def _evict(self, block: int, key: BlockKey) -> None:
        held = self._cached[key]
        if isinstance(held, int):
            del self._cached[key]
        else:
            del held[block]
            if not held:
                del self._cached[key]
        self._block_keys[block] = None
        if self.enable_kv_cache_events:
            self._events.append(BlockRemoved((key[0],), group_idx=key[1]))

    def evict_blocks(self, blocks: Iterable[int]) -> None:
        """Makes blocks unfindable at once, in use or not; those without a hash are passed over."""
        for block in blocks:
            if (key := self._block_keys[block]) is not None:
                self._evict(block, key)

    def free_blocks(self, ordered_blocks: Iterable[int]) -> None:
        """Lets go of blocks once each; those that nobody refers to any more become free, first to be evicted first."""
        refs, keys = self.ref_counts, self._block_keys
        first, last = [], []
        unhashed_first = self._profile.unhashed_first
        for block in ordered_blocks:
            if block == NULL_BLOCK:
                continue
            refs[block] -= 1
            if not refs[block]:
                if unhashed_first and keys[block] is None:
                    first.append(block)
                else:
                    last.append(block)
        self.free_block_queue.prepend_n(first)
        self.free_block_queue.append_n(last)

    def cache_full_blocks(
        self,
        request: Request,
        blocks: Sequence[int],
        num_cached_blocks: int,
        num_full_blocks: int,
        *,
        block_size: int,
        group_id: int,
        registrable: Sequence[int],
    ) -> None:
        """Makes full blocks of a request findable by their hashes.

        `blocks` is its block table, `registrable` the indices in [num_cached_blocks, num_full_blocks) that get a hash,
        ascending.
        """
        hashes = request.block_hashes
        for index in registrable:
            self._register(blocks[index], (hashes[index], group_id))
        if self.enable_kv_cache_events:
            self._events.append(
                BlockStored(
                    block_hashes=tuple(hashes[index] for index in registrable),
                    parent_block_hash=hashes[num_cached_blocks - 1] if num_cached_blocks else None,
                    token_ids=request.token_ids[num_cached_blocks * block_size : num_full_blocks * block_size],
                    block_size=block_size,
                    extra_keys=tuple(
                        event_extra_keys(
                            extra_keys(request, index * block_size, (index + 1) * block_size, self._profile),
                            self._profile,
                        )
                        for index in registrable
                    ),
                    lora_name=None if request.lora is None else request.lora.name,
                    group_idx=group_id,
                )
            )

    def _register(self, block: int, key: BlockKey) -> None:
        self._block_keys[block] = key
        held = self._cached.get(key)
        if held is None:
            self._cached[key] = block
        elif isinstance(held, int):
            self._cached[key] = {held: None, block: None}
        else:
            held[block] = None

    def reset_prefix_cache(self) -> bool:
        """Forgets all hashes; the free queue keeps its order. Refused (False) while any block is in use."""
        if self.num_free_blocks != self.num_gpu_blocks - 1:
            return False
        self._cached.clear()
        self._block_keys = [None] * self.num_gpu_blocks
        if self.enable_kv_cache_events:
            self._events.append(AllBlocksCleared())
        return True

    def take_events(self) -> list[KVCacheEvent]:
        """The events since the last call, in order."""
        events, self._events = self._events, []
        return events

    def check_invariants(self) -> None:
        """Raises AssertionError when the pool contradicts itself. Costs time in proportion to its size."""
        self.free_block_queue.check_invariants()
        assert NULL_BLOCK not in self.free_block_queue
        assert self._block_keys[NULL_BLOCK] is None and not self.ref_counts[NULL_BLOCK]
        for block in range(1, self.num_gpu_blocks):
            assert self.ref_counts[block] >= 0
            assert (block in self.free_block_queue) == (not self.ref_counts[block])
        holders = {block: key for key, held in self.cached_blocks.items() for block in held}
        assert holders == {block: key for block, key in enumerate(self._block_keys) if key is not None}
