"""Why a request reused less of the cache than it could have: causes, each with what it cost.

Every request is replayed against an unbounded cache of all requests before it. Where it hits less than the earlier
request it goes back to would have given, the differences between the two are undone one after the other, in prompt
order; what each step wins in hit tokens is what that cause lost. What no difference between the two explains, the
template has done.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from .changes import Change, Chat, Edit, compare, equalised, role
from .nature import Nature, nature_of
from .prompt.errors import RenderError
from .prompt.prefix_tree import PrefixTree, common_prefix
from .prompt.prompt import Prompt
from .prompt.renderer import Renderer
from .sessions import Reference, Relation, Sessions
from .turns import Turn

MESSAGE = re.compile(r"messages\[(\d+)\]")
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
    """One request after the replay: its session, what it hit in tokens of full blocks, what it `shared` with earlier
    requests in tokens (full blocks or not), and why not more. `unread` is what it would have hit, had it looked."""

    turn: Turn
    session: str
    hit: int
    shared: int
    reference: Reference | None
    causes: tuple[Cause, ...]
    unread: int = 0


class Cache:
    """An unbounded prefix cache with vLLM's block rule."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._trees: dict[Hashable, PrefixTree] = {}

    def hit(self, ids: array[int], namespace: Hashable) -> int:
        """Tokens in full blocks that a prompt reuses; its last token is always computed."""
        return self.full_blocks(min(self.shared(ids, namespace), len(ids) - 1))

    def shared(self, ids: array[int], namespace: Hashable) -> int:
        """Tokens that a prompt shares with something held, whole blocks or not."""
        tree = self._trees.get(namespace)
        return tree.match(ids) if tree is not None else 0

    def full_blocks(self, tokens: int) -> int:
        return max(tokens, 0) // self.block_size * self.block_size

    def add(self, ids: array[int], namespace: Hashable) -> None:
        self._trees.setdefault(namespace, PrefixTree()).insert(ids)


def replay(turns: Iterable[Turn], renderer: Renderer, block_size: int) -> Iterator[Replayed]:
    """Replay requests one after the other, in order."""
    cache = Cache(block_size)
    sessions = Sessions()
    for turn in turns:
        hit = cache.hit(turn.ids, turn.namespace)
        shared = cache.shared(turn.ids, turn.namespace)
        session, reference = sessions.add(turn)
        reads = turn.unread_for is None
        causes = tuple(Attribution(turn, reference, hit, cache, renderer).causes()) if reads else ()
        cache.add(turn.cached_after, turn.namespace)
        cache.add(turn.cached_after, turn.model)
        yield Replayed(turn, session, hit if reads else 0, shared, reference, causes, 0 if reads else hit)


def extends(turn: Turn, earlier: Turn) -> bool:
    """Whether the whole earlier prompt stands at the front of this one."""
    return len(earlier.ids) <= len(turn.ids) and common_prefix(earlier.ids, turn.ids) == len(earlier.ids)


class Attribution:
    """Takes the differences between a request and an earlier one apart."""

    def __init__(self, turn: Turn, reference: Reference | None, hit: int, cache: Cache, renderer: Renderer) -> None:
        self.turn = turn
        self.reference = reference
        self.hit = hit
        self.cache = cache
        self.renderer = renderer

    def causes(self) -> Iterator[Cause]:
        """In prompt order. A difference that the template does not print, or that costs no block, gives none."""
        if self.reference is None:
            return
        earlier = self.reference.turn
        elsewhere = self.cache.hit(self.turn.ids, self.turn.model)
        if elsewhere > self.hit:
            change = Change("salt", "cache_salt", earlier.namespace[1], self.turn.namespace[1])
            yield self.cause(change, "salt", 0, self.hit, elsewhere)
        elif extends(self.turn, earlier):
            yield from self.behind_the_prompt(earlier)
        else:
            yield from self.inside_the_prompt(earlier)

    def cause(self, change: Change, nature: Nature, token: int, hit: int, hit_without: int) -> Cause:
        assert self.reference is not None
        return Cause(self.turn, self.reference.turn, self.reference.relation, change, nature, token, hit, hit_without)

    def inside_the_prompt(self, earlier: Turn) -> Iterator[Cause]:
        assert self.reference is not None
        relation = self.reference.relation
        open_changes = compare(earlier.chat, self.turn.chat)
        undone: list[Change] = []
        prompt, hit = self.turn.prompt, self.hit
        steps = 0
        while steps < MAX_STEPS:
            shared = common_prefix(earlier.ids, prompt.token_ids)
            if shared == len(earlier.ids):
                return
            for change in open_changes:
                steps += 1
                without = self.rendered([*undone, change])
                if without is not None and common_prefix(earlier.ids, without.token_ids) > shared:
                    break
            else:
                break
            better = max(hit, self.cache.hit(without.token_ids, self.turn.namespace))
            if better > hit:
                yield self.cause(change, nature_of(change, relation, earlier, self.turn), shared, hit, better)
            undone.append(change)
            open_changes.remove(change)
            prompt, hit = without, better
        if relation == "continued":
            yield from self.by_the_template(earlier, undone, prompt, shared, hit)

    def by_the_template(
        self, earlier: Turn, undone: Sequence[Change], prompt: Prompt, shared: int, hit: int
    ) -> Iterator[Cause]:
        """What is left when the requests are made equal: the clock, and what the template prints another way."""
        if earlier.now != self.turn.now:
            then = self.rendered(undone, earlier.now)
            if then is not None and common_prefix(earlier.ids, then.token_ids) > shared:
                better = self.cache.hit(then.token_ids, self.turn.namespace)
                if better > hit:
                    change = Change("clock", "", str(earlier.now), str(self.turn.now))
                    yield self.cause(change, "clock", shared, hit, better)
                prompt, hit = then, max(hit, better)
                shared = common_prefix(earlier.ids, prompt.token_ids)
        if shared == len(earlier.ids):
            return
        opening = self.generation_prompt(earlier)
        if opening is not None and shared >= len(earlier.ids) - opening:
            better = self.cache.full_blocks(len(earlier.ids) + self.reproduced(earlier, prompt, shared))
            nature: Nature = "generation_prompt"
            change = Change("template", f"messages[{len(earlier.chat['messages'])}]")
        else:
            better = self.cache.full_blocks(len(earlier.ids))
            difference = printed_otherwise(earlier, prompt, shared)
            if difference is None:
                return
            nature, change = difference
        if better > hit:
            yield self.cause(change, nature, shared, hit, better)

    def behind_the_prompt(self, earlier: Turn) -> Iterator[Cause]:
        """The earlier prompt is reused whole; whether its reply is as well."""
        place = len(earlier.chat["messages"])
        messages = self.turn.chat["messages"]
        if not earlier.generated or place >= len(messages) or role(messages[place]) != "assistant":
            return
        better = self.cache.full_blocks(min(len(earlier.cached_after), len(self.turn.ids) - 1))
        if better <= self.hit:
            return
        shared = common_prefix(earlier.cached_after, self.turn.ids)
        if shared == len(earlier.cached_after):
            return
        nature: Nature = "generated"
        thought = reasoning_of(earlier.line.completion)
        if thought and not messages[place].get("reasoning_content") and not messages[place].get("reasoning"):
            steps = ("messages", place, "reasoning_content")
            restored = Change("reasoning", f"messages[{place}]", thought, edits=(Edit(steps, thought),))
            kept = self.rendered([restored])
            if kept is not None and common_prefix(earlier.cached_after, kept.token_ids) > shared:
                nature = "reasoning_not_replayed"
        yield self.cause(Change("reply", f"messages[{place}]"), nature, shared, self.hit, better)

    def generation_prompt(self, earlier: Turn) -> int | None:
        """How many tokens of the earlier prompt only open the reply; None where it cannot be told."""
        bare = {**earlier.chat, "add_generation_prompt": False}
        try:
            prompt = self.renderer.render(bare, earlier.now, api="chat")
        except RenderError:
            return None
        return len(earlier.ids) - common_prefix(earlier.ids, prompt.token_ids)

    def reproduced(self, earlier: Turn, prompt: Prompt, shared: int) -> int:
        """How many generated tokens the prompt shows again behind the break."""
        if not earlier.generated or prompt.text is None:
            return 0
        start = prompt.token_spans[shared][0]
        rest = self.renderer.encode_completion(prompt.text[start:])
        return common_prefix(earlier.generated, rest)

    def rendered(self, changes: Sequence[Change], now: datetime | None = None) -> Prompt | None:
        chat: Chat = equalised(self.turn.chat, changes)
        try:
            return self.renderer.render(chat, now or self.turn.now, api="chat")
        except RenderError:
            return None


def printed_otherwise(earlier: Turn, prompt: Prompt, shared: int) -> tuple[Nature, Change] | None:
    """What the earlier prompt shows at the break that this one, made of the same values, does not show there."""
    then = value_at(earlier.prompt, shared)
    now = value_at(prompt, shared)
    if then is None or then == now:
        return None
    place = MESSAGE.match(then)
    change = Change("template", place[0] if place else then.partition(".")[0].partition("[")[0], then, now or "")
    if then.startswith("tools") or (place and int(place[1]) == 0):
        return "moved", change
    if place and (then.endswith((".reasoning", ".reasoning_content")) or now is None or not now.startswith(place[0])):
        return "reasoning_dropped", change
    if place and now is not None and now.startswith(place[0]):
        return "reasoning_dropped", change
    return None


def value_at(prompt: Prompt, token: int) -> str | None:
    """The path of the first value of the request printed at or behind a token."""
    if token >= len(prompt.token_ids) or prompt.text is None:
        return None
    start = prompt.token_spans[token][0]
    return next((o.source.where for o in prompt.origins if o.kind == "value" and o.end > start), None)


def reasoning_of(completion: str | None) -> str:
    """The thoughts in front of `</think>`, as the models of this form write them."""
    head, found, _ = (completion or "").partition("</think>")
    return head.removeprefix("<think>").strip("\n") if found else ""
