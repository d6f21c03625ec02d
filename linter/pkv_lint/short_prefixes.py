"""Prefixes that requests share, but that fill no block."""

from __future__ import annotations

from collections.abc import Sequence

from pkv_lint.causes import Replayed

LEAST = 32
"""Tokens below which what two prompts have in common may be chance."""
LEAST_TEXT = 24
"""Characters of a request from which on they count as its own text."""


def short_prefixes(replayed: Sequence[Replayed], block_size: int) -> list[Replayed]:
    """Requests that share text of their own with earlier ones, less than a block of it, where nothing else keeps them
    from reusing it."""
    own: dict[bytes, bool] = {}
    found = []
    for item in replayed:
        if item.causes or item.turn.unread_for is not None or not LEAST <= item.shared < block_size:
            continue
        # Following a prompt character by character is dear: once for each prefix.
        prefix = item.turn.ids[: item.shared].tobytes()
        if prefix not in own:
            own[prefix] = shares_text(item)
        if own[prefix]:
            found.append(item)
    return found


def shares_text(item: Replayed) -> bool:
    """Whether the shared tokens show some of the request, and not the template's own text alone."""
    prompt = item.turn.prompt
    if prompt.text is None:
        return True
    shown = prompt.origins_between(0, prompt.token_spans[item.shared - 1][1])
    own = sum(
        origin.end - origin.start
        for origin in shown
        if origin.kind in ("value", "key") and not origin.source.where.endswith(".role")
    )
    return own >= LEAST_TEXT
