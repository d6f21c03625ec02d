"""What besides its tokens decides a block's hash: adapter, images, cache salt, prompt embeddings."""

from __future__ import annotations

import hashlib
from bisect import bisect_right

from pkv_sim.exact.profile import Profile
from pkv_sim.exact.request import Request

ExtraKeys = tuple[object, ...]


def extra_keys(request: Request, start: int, end: int, profile: Profile) -> ExtraKeys | None:
    """The extra keys of the block at token positions [start, end), None when it has none.

    In vLLM's order (`kv_cache_utils.py:generate_block_hash_extra_keys`): LoRA, multimodal items, cache salt (first
    block only), prompt embeddings.
    """
    tagged = profile.tagged_keys
    keys: list[object] = []
    if (lora := request.lora) is not None:
        if profile.lora_key == "name_and_path":
            keys.append(("lora", lora.name, lora.path))
        else:
            keys.append(lora.name if profile.lora_key == "name" else lora.int_id)
    for identifier, offset in _overlapping(request, start, end):
        if profile.mm_key == "identifier":
            keys.append(identifier)
        else:
            # Relative to the block, so negative for an item that began in an earlier one.
            keys.append(("mm", identifier, offset - start) if tagged else (identifier, offset - start))
    if start == 0 and request.cache_salt:
        keys.append(("cache_salt", request.cache_salt) if tagged else request.cache_salt)
    if (rows := request.prompt_embeds) is not None:
        # Blocks behind the prompt hash an empty slice, as vLLM does.
        digest = hashlib.sha256(b"".join(rows[start:end])).digest()
        keys.append(("prompt_embeds", digest) if tagged else digest)
    return tuple(keys) or None


def event_extra_keys(keys: ExtraKeys | None, profile: Profile) -> ExtraKeys | None:
    """Extra keys as KV events publish them: without the tags (`kv_cache_utils.py:to_event_extra_keys`)."""
    if keys is None or not profile.tagged_keys:
        return keys
    return tuple(key[1:] if key[0] == "mm" else key[1] for key in keys if isinstance(key, tuple))


def _overlapping(request: Request, start: int, end: int) -> list[tuple[str, int]]:
    items = request.mm_items
    if not items:
        return []
    # Items do not overlap, so their ends are sorted as their offsets are.
    first = bisect_right(items, start, key=lambda item: item.offset + item.length)
    found = []
    for item in items[first:]:
        if item.offset >= end:
            break
        found.append((item.identifier, item.offset))
    return found
