"""Why a request reused less of the cache than it could have: causes, each with what it cost.

Every request is replayed against an unbounded cache of all requests before it. Where it hits less than the earlier
request it goes back to would have given, the differences between the two are undone one after the other, in prompt
order; what each step wins in hit tokens is what that cause lost.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .changes import Change, Chat, compare, equalised
from .nature import Nature, nature_of
from .prompt.errors import RenderError
from .prompt.prefix_tree import PrefixTree, common_prefix
from .prompt.prompt import Prompt
from .prompt.renderer import Renderer
from .sessions import Reference, Relation, Sessions
from .turns import Turn

MAX_STEPS = 64
"""Renders spent on one request to tell its causes apart."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One change and what it cost one request.

    `earlier` is the request it was compared with. `token` is the first token of the prompt that differs, `hit` what was
    reused (or would have been, the causes in front of this one undone), `hit_without` what would have been without the
    change; both in tokens of full blocks.
    """

    turn: Turn
    earlier: Turn
    relation: Relation
    change: Change
    nature: Nature
    token: int
    hit: int
    hit_without: int

    @property
    def tokens_lost(self) -> int:
        return self.hit_without - self.hit


@dataclass(frozen=True, slots=True)
class Replayed:
    """One request after the replay: its session, what it hit in tokens of full blocks, and why not more."""

    turn: Turn
    session: str
    hit: int
    reference: Reference | None
    causes: tuple[Cause, ...]


class Cache:
    """An unbounded prefix cache with vLLM's block rule."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._trees: dict[tuple[str, str], PrefixTree] = {}

    def hit(self, ids: array[int], namespace: tuple[str, str]) -> int:
        """Tokens in full blocks that a prompt reuses; its last token is always computed."""
        tree = self._trees.get(namespace)
        if tree is None or not ids:
            return 0
        return min(tree.match(ids), len(ids) - 1) // self.block_size * self.block_size

    def add(self, turn: Turn) -> None:
        self._trees.setdefault(turn.namespace, PrefixTree()).insert(turn.cached_after)


def replay(turns: Iterable[Turn], renderer: Renderer, block_size: int) -> Iterator[Replayed]:
    """Replay requests one after the other, in order."""
    cache = Cache(block_size)
    sessions = Sessions()
    for turn in turns:
        hit = cache.hit(turn.ids, turn.namespace)
        session, reference = sessions.add(turn)
        causes: tuple[Cause, ...] = ()
        if reference is not None and not extends(turn, reference.turn):
            causes = tuple(Attribution(turn, reference, hit, cache, renderer).causes())
        cache.add(turn)
        yield Replayed(turn, session, hit, reference, causes)


def extends(turn: Turn, earlier: Turn) -> bool:
    """Whether the whole earlier prompt stands at the front of this one."""
    return len(earlier.ids) <= len(turn.ids) and common_prefix(earlier.ids, turn.ids) == len(earlier.ids)


class Attribution:
    """Takes the differences between a request and an earlier one apart."""

    def __init__(self, turn: Turn, reference: Reference, hit: int, cache: Cache, renderer: Renderer) -> None:
        self.turn = turn
        self.reference = reference
        self.hit = hit
        self.cache = cache
        self.renderer = renderer

    def causes(self) -> Iterator[Cause]:
        """In prompt order. A difference that the template does not print, or that costs no block, gives none."""
        earlier = self.reference.turn
        open_changes = compare(earlier.chat, self.turn.chat)
        undone: list[Change] = []
        prompt, hit = self.turn.prompt, self.hit
        steps = 0
        while open_changes and steps < MAX_STEPS:
            shared = common_prefix(earlier.ids, prompt.token_ids)
            if shared == len(earlier.ids):
                return
            for change in open_changes:
                steps += 1
                without = self.rendered([*undone, change])
                if without is not None and common_prefix(earlier.ids, without.token_ids) > shared:
                    break
            else:
                return
            better = max(hit, self.cache.hit(without.token_ids, self.turn.namespace))
            if better > hit:
                nature = nature_of(change, self.reference.relation, earlier, self.turn)
                yield Cause(self.turn, earlier, self.reference.relation, change, nature, shared, hit, better)
            undone.append(change)
            open_changes.remove(change)
            prompt, hit = without, better

    def rendered(self, changes: Sequence[Change]) -> Prompt | None:
        chat: Chat = equalised(self.turn.chat, changes)
        try:
            return self.renderer.render(chat, self.turn.now, api="chat")
        except RenderError:
            return None
