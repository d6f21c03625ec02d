"""Requests that belong together because something was compared between them."""

from __future__ import annotations

from collections.abc import Iterable

from pkv_lint.turns import Turn


def families(pairs: Iterable[tuple[Turn, Turn]]) -> list[list[Turn]]:
    """The connected requests, in the order of the traffic."""
    family: dict[int, set[int]] = {}
    turns: dict[int, Turn] = {}
    for one, other in pairs:
        turns |= {one.index: one, other.index: other}
        joined = family.get(one.index, {one.index}) | family.get(other.index, {other.index})
        for index in joined:
            family[index] = joined
    distinct = {min(members): members for members in family.values()}
    return [[turns[index] for index in sorted(members)] for _, members in sorted(distinct.items())]
