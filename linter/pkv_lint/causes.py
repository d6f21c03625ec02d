"""Why a request reused less of the cache than it could have: causes, each with what it cost.

Every request is replayed against an unbounded cache of all requests before it. Where it hits less than the earlier
request it goes back to would have given, the differences between the two are undone one after the other, in prompt
order; what each step wins in hit tokens is what that cause lost. What no difference between the two explains, the
template has done.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pkv_lint.changes import Change, ChangeKind, Chat, equalised, head_changes, role, text_of
from pkv_lint.comparison import compare, compare_heads, merged
from pkv_lint.nature import Nature, nature_of
from pkv_lint.probes.next_turn import common_text, told, value_from
from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.prefix_tree import PrefixTree, common_prefix
from pkv_lint.prompt.prompt import Prompt
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.reasoning import is_faithful, restored, thoughts_in, thoughts_of, without_reasoning
from pkv_lint.sessions import Reference, Relation, placed
from pkv_lint.turns import Turn

MAX_RENDERS = 32
"""Renders spent on one request to tell its causes apart; what is left then is undone at once."""
BEGINNING = 16
"""Characters by which a reply is found in a prompt."""
ONE_STEP: frozenset[ChangeKind] = frozenset(
    {
        "schema_keys",
        "tool_definition",
        "history_edited",
        "history_removed",
        "history_inserted",
        "history_window",
        "history_pruned",
        "history_compacted",
        "reminder",
        "arguments",
        "call_ids",
        "reasoning",
    }
)
"""Changes that are one cause, at however many places of a request they show."""


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
    turns = list(turns)
    salted = any(turn.namespace[1] for turn in turns)
    for place in placed(turns):
        turn, reference = place.turn, place.reference
        hit = cache.hit(turn.ids, turn.namespace)
        shared = cache.shared(turn.ids, turn.namespace)
        reads = turn.unread_for is None
        causes: tuple[Cause, ...] = ()
        if reads and reference is not None:
            causes = tuple(Attribution(turn, reference, hit, cache, renderer).causes())
        cache.add(turn.cached_after, turn.namespace)
        if salted:
            cache.add(turn.cached_after, turn.model)
        yield Replayed(turn, place.session, hit if reads else 0, shared, reference, causes, 0 if reads else hit)


@dataclass(frozen=True, slots=True)
class Step:
    """Something to undo, and what it is."""

    change: Change
    nature: Nature


class Attribution:
    """Takes the differences between a request and an earlier one apart."""

    def __init__(
        self,
        turn: Turn,
        reference: Reference,
        hit: int,
        cache: Cache,
        renderer: Renderer,
    ) -> None:
        self.turn = turn
        self.earlier = reference.turn
        self.relation = reference.relation
        self.hit = hit
        self.cache = cache
        self.renderer = renderer
        self.namespace: Hashable = turn.namespace
        self.undone: list[Change] = []
        self.prompt = turn.prompt  # without what was undone
        self.renders = 0

    def causes(self) -> Iterator[Cause]:
        """In prompt order. A difference that the template does not print, or that costs no block, gives none."""
        elsewhere = self.cache.hit(self.turn.ids, self.turn.model)
        if elsewhere > self.hit:
            change = Change("salt", "cache_salt", self.earlier.namespace[1], self.turn.namespace[1])
            yield self.cause(change, "salt", 0, elsewhere)
            if self.relation != "continued":
                return  # salts that keep users apart: nothing else was to be shared
            self.namespace, self.hit = self.turn.model, elsewhere
        if self.hit >= self.cache.full_blocks(len(self.earlier.cached_after)):
            return
        if self.shared(self.prompt) < len(self.earlier.ids):
            yield from self.differences()
        if self.relation == "continued":
            yield from self.template(self.prompt)

    def cause(self, change: Change, nature: Nature, token: int, hit_without: int) -> Cause:
        return Cause(self.turn, self.earlier, self.relation, change, nature, token, self.hit, hit_without)

    def won(self, change: Change, nature: Nature, token: int, hit_without: int) -> Iterator[Cause]:
        """The cause, if it costs anything."""
        if hit_without > self.hit:
            yield self.cause(change, nature, token, hit_without)
            self.hit = hit_without

    def shared(self, prompt: Prompt) -> int:
        return common_prefix(self.earlier.ids, prompt.token_ids)

    def steps(self) -> list[Step]:
        """What can be undone, in the order in which it usually stands in a prompt."""
        before, after = self.earlier.chat, self.turn.chat
        if self.relation == "auxiliary":
            changes = compare_heads(before, after)
        else:
            changes = compare(before, after) if self.relation == "continued" else head_changes(before, after)
        groups: dict[Hashable, list[Change]] = {}
        for change in changes:
            nature = nature_of(change, self.relation, self.earlier, self.turn)
            key: Hashable = (nature,) if change.kind in ONE_STEP else (nature, len(groups))
            groups.setdefault(key, []).append(change)
        steps = [Step(merged(members), key[0]) for key, members in groups.items()]  # type: ignore[index]
        if self.earlier.now != self.turn.now:
            steps.append(Step(Change("clock", "", str(self.earlier.now), str(self.turn.now)), "clock"))
        return steps

    def differences(self) -> Iterator[Cause]:
        """What the two requests differ in, undone one after the other."""
        steps = self.steps()
        while steps and (token := self.shared(self.prompt)) < len(self.earlier.ids):
            found = self.next_step(steps, token)
            if found is None:
                return
            undone, self.prompt = found
            self.undone += [step.change for step in undone]
            steps = [step for step in steps if step not in undone]
            first = undone[0]
            better = self.cache.hit(self.prompt.token_ids, self.namespace)
            if self.is_usual(first):
                self.hit = max(self.hit, better)
            else:
                yield from self.won(first.change, first.nature, token, better)

    def is_usual(self, step: Step) -> bool:
        """Whether only reasoning from before the last question was left out, of which most templates print nothing, and
        the template is not known."""
        places = [
            edit.steps[1] for edit in step.change.edits if edit.steps[:1] == ("messages",) and len(edit.steps) > 1
        ]
        return step.nature == "reasoning" and all(map(self.is_old, places))

    def is_old(self, place: str | int) -> bool:
        """Whether a message stands in front of the last question and the template is not known."""
        behind = self.turn.chat["messages"][int(place) :]
        return self.renderer.layout == "builtin" and any(role(message) == "user" for message in behind)

    def next_step(self, steps: list[Step], token: int) -> tuple[list[Step], Prompt] | None:
        """The first difference that makes the prompts part later when it is undone, with the prompt then; several where
        none does so by itself."""
        for step in steps:
            if self.renders >= MAX_RENDERS:
                break
            prompt = self.without([step], token)
            if prompt is not None:
                return [step], prompt
        prompt = self.without(steps, token) if len(steps) > 1 else None
        if prompt is None:
            return None
        needed = list(steps)
        for step in reversed(steps if self.renders < MAX_RENDERS else ()):
            fewer = [other for other in needed if other is not step]
            prompt_then = self.without(fewer, token) if fewer else None
            if prompt_then is not None:
                needed, prompt = fewer, prompt_then
        return needed, prompt

    def without(self, steps: Sequence[Step], token: int) -> Prompt | None:
        """The prompt with these differences undone too, if it then parts behind a token."""
        prompt = self.rendered([*self.undone, *(step.change for step in steps)])
        return prompt if prompt is not None and self.shared(prompt) > token else None

    def rendered(self, changes: Sequence[Change]) -> Prompt | None:
        """The prompt without these changes; None where that is no request."""
        if not changes:
            return self.turn.prompt
        self.renders += 1
        clock = any(change.kind == "clock" for change in changes)
        return self.render(equalised(self.turn.chat, changes), self.earlier if clock else self.turn)

    def render(self, chat: Chat, at: Turn) -> Prompt | None:
        try:
            return self.renderer.render(chat, at.now, api="chat")
        except RenderError:
            return None

    def template(self, prompt: Prompt) -> Iterator[Cause]:
        """What is left when the requests are made equal: what the template prints another way, and the reply."""
        token, length = self.shared(prompt), len(self.earlier.ids)
        if token == length or token >= length - self.opening():
            yield from self.reply(prompt)
            return
        better = self.cache.full_blocks(length)
        if better <= self.hit:
            return
        dropped = self.dropped_reasoning(prompt, token)
        if dropped is not None:
            yield from self.won(dropped, "reasoning_dropped", token, better)
            return
        moved = self.moved(token)
        if moved is not None:
            yield from self.won(Change("template", moved), "moved", token, better)

    def opening(self) -> int:
        """How many tokens of the earlier prompt only open the reply."""
        bare = self.render({**self.earlier.chat, "add_generation_prompt": False}, self.earlier)
        return len(self.earlier.ids) - self.shared(bare) if bare is not None else 0

    def dropped_reasoning(self, prompt: Prompt, token: int) -> Change | None:
        """The first message whose reasoning the earlier prompt shows at the break and this one does not."""
        messages = self.earlier.chat["messages"]
        thinking = [at for at, message in enumerate(messages) if thoughts_of(message)]

        def explains(count: int) -> bool:
            """Whether the earlier prompt without the reasoning of so many messages goes on as this one."""
            bare = self.render(without_reasoning(self.earlier.chat, thinking[:count]), self.earlier)
            return bare is not None and common_prefix(bare.token_ids, prompt.token_ids) > token

        if not thinking or not explains(len(thinking)):
            return None
        low, high = 0, len(thinking)
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (low, middle) if explains(middle) else (middle, high)
        at = thinking[high - 1]
        return Change("template", f"messages[{at - self.restored_messages}]", thoughts_of(messages[at]))

    @property
    def undone_chat(self) -> Chat:
        return equalised(self.turn.chat, self.undone)

    @property
    def restored_messages(self) -> int:
        """How many messages were put back by what was undone."""
        return len(self.undone_chat["messages"]) - len(self.turn.chat["messages"])

    def moved(self, token: int) -> str | None:
        """What the template prints near the end of the conversation, told by leaving it out of both requests."""
        for name in ("tools", "documents", "system"):
            chats = [left_out(chat, name) for chat in (self.earlier.chat, self.undone_chat)]
            if chats[0] == self.earlier.chat:
                continue
            then, now = self.render(chats[0], self.earlier), self.render(chats[1], self.turn)
            if then is not None and now is not None and common_prefix(then.token_ids, now.token_ids) > token:
                return "messages[0].content" if name == "system" else name
        return self.moved_text()

    def moved_text(self) -> str | None:
        """The same, told by what stands at the break: some templates print a frame even without tools."""
        then, now = self.earlier.prompt, self.prompt
        if then.text is None or now.text is None:
            return None
        start = common_text(then.text, now.text)
        value = value_from(then, start)
        if value is None or value == value_from(now, start):
            return None
        nature, path = told(self.earlier.chat, value, None)
        return path if nature == "moved" else None

    def reply(self, prompt: Prompt) -> Iterator[Cause]:
        """The earlier prompt is there up to the opening of the reply; whether the reply is as well."""
        chat, place = self.undone_chat, len(self.earlier.chat["messages"])
        if place >= len(chat["messages"]) or role(chat["messages"][place]) != "assistant":
            return
        if self.earlier.line.session_id != self.turn.line.session_id:
            return
        message = chat["messages"][place]
        path = f"messages[{place - self.restored_messages}]"
        whole = self.earlier.cached_after
        token = common_prefix(whole, prompt.token_ids)
        if token == len(whole):
            return
        completion = self.earlier.line.completion or ""
        thought = thoughts_in(completion)
        if thought:
            sent = bool(thoughts_of(message))
            if not sent and self.is_old(place - self.restored_messages):
                return
            if not sent:
                kept = self.render(restored(chat, place, thought), self.turn)
                if kept is not None and common_prefix(whole, kept.token_ids) > token:
                    better = self.cache.hit(kept.token_ids, self.namespace)
                    yield from self.won(Change("reasoning", path, thought), "reasoning_not_replayed", token, better)
                    return
            bare = self.render(without_reasoning(chat, [place]), self.turn) if sent else prompt
            if bare is not None and bare.token_ids == prompt.token_ids:
                change = Change("template" if sent else "reply", path, thought)
                yield from self.won(change, "reasoning_dropped", token, self.cache.full_blocks(len(whole)))
                return
        if token < len(self.earlier.ids):
            better = self.cache.full_blocks(len(self.earlier.ids) + self.reproduced(prompt, token))
            yield from self.won(Change("template", path), "generation_prompt", token, better)
            return
        kind: ChangeKind = "template" if not completion or is_faithful(message, completion) else "reply"
        better = self.cache.full_blocks(len(whole))
        yield from self.won(Change(kind, path, completion, text_of(message)), "generated", token, better)

    def reproduced(self, prompt: Prompt, token: int) -> int:
        """How many generated tokens the prompt shows again behind the break."""
        if not self.earlier.generated or prompt.text is None:
            return 0
        rest = prompt.text[prompt.token_spans[token][0] :]
        begins = (self.earlier.line.completion or "")[:BEGINNING]
        rest = rest[max(rest.find(begins), 0) :]  # behind another opening of the reply
        return common_prefix(self.earlier.generated, self.renderer.encode_completion(rest))


def left_out(chat: Chat, name: str) -> Chat:
    """A body without its tools, documents or system messages."""
    if name == "system":
        messages = [message for message in chat["messages"] if role(message) not in ("system", "developer")]
        return {**chat, "messages": messages}
    return {key: value for key, value in chat.items() if key not in (name, "tool_choice")}
