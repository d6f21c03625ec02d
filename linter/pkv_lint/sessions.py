"""Which earlier request could have served this one best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import accumulate, groupby, islice
from typing import Any, Literal

from pkv_lint.changes import Chat, split, text_of, tool_name
from pkv_lint.histories import Alignment, Gist, Gists, History
from pkv_lint.prompt.prefix_tree import common_prefix
from pkv_lint.text_changes import SENTENCE_END, shared_ends
from pkv_lint.turns import Turn

Relation = Literal["continued", "auxiliary", "same session", "other session"]
LOOK_BACK = 8
"""Earlier requests, conversations or heads that are considered."""
PROBES = 24
"""Messages of a request by which the conversation that it belongs to is looked for."""
SIMILAR = 0.5
"""Share of equal text from which on two system prompts count as versions of one."""
LITTLE = 40
"""Characters of a message that may differ where nothing else says that two messages are one."""
FAMILIAR = 3
"""Messages of a history from which on a request of another session can be told to go on from it."""
LARGE = 500
"""Characters from which on one message alone is a history worth keeping for a side request."""


@dataclass(frozen=True, slots=True)
class Reference:
    """An earlier request, and how it is related.

    `continued`: this request goes on from it. `auxiliary`: it has the same history behind another system prompt or
    other tools (a summary, a title). `same session` and `other session`: another conversation with a similar head.
    """

    turn: Turn
    relation: Relation


@dataclass(frozen=True, slots=True)
class Placed:
    """A request with its session and the earlier request to hold it against; None for one that resembles nothing before
    it."""

    turn: Turn
    session: str
    reference: Reference | None


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A request that was placed, with the one that it goes on from. `head` numbers what stands in front of its history:
    equal heads have one number."""

    turn: Turn
    history: History
    head: int
    states: Sequence[int]
    thread: Thread
    parent: Seen | None


@dataclass(slots=True, eq=False)
class Thread:
    """A conversation in a session: requests of which each goes on from the one before. A session can hold several, of
    sub-agents, retries or samples."""

    session: str
    last: Seen | None = None


def placed(turns: Sequence[Turn]) -> list[Placed]:
    """Hold every request of a traffic, in order, against the best one before it."""
    heads, gists = Heads(), Gists()
    asked = [Asked.of(turn, heads.number(turn), gists) for turn in turns]
    sessions = Sessions(heads, asked)
    found = [sessions.place(request) for request in asked]
    return list(side_requests(found, heads))


def side_requests(requests: Sequence[Placed], heads: Heads) -> Iterator[Placed]:
    """The requests, `continued` and `auxiliary` told apart by what came later.

    A request with another head is a side request when the conversation then goes on from the one before it, under the
    old head; it is not when the conversation goes on from the request itself.
    """
    next_heads: dict[int, list[tuple[int, int]]] = {}
    for request in requests:
        if request.reference is not None and request.reference.relation in ("continued", "auxiliary"):
            step = request.turn.index, heads.number(request.turn)
            next_heads.setdefault(request.reference.turn.index, []).append(step)
    for request in requests:
        reference = request.reference
        if reference is not None and reference.relation in ("continued", "auxiliary"):
            own, old = heads.number(request.turn), heads.number(reference.turn)
            if own != old:
                followed = any(head == own for _, head in next_heads.get(request.turn.index, ()))
                left = any(
                    index > request.turn.index and head == old for index, head in next_heads[reference.turn.index]
                )
                reference = settled(reference, request.turn, followed=followed, left=left)
        yield replace(request, reference=reference)


def settled(reference: Reference, turn: Turn, *, followed: bool, left: bool) -> Reference | None:
    """The relation to a request with another head, once it is known whether the conversation went on from the later one
    (`followed`) or from the earlier one under its own head (`left`)."""
    if left:
        return replace(reference, relation="same session" if is_short(split(turn.chat).history) else "auxiliary")
    if followed:
        return replace(reference, relation="continued")
    if reference.relation == "auxiliary" and turn.line.session_id is None:
        # Without a session it may as well be the same conversation tried with another prompt.
        return None
    return reference


def is_short(history: Sequence[Any]) -> bool:
    """Whether a history is one short message: too little to keep for a side request."""
    return len(history) < 2 and sum(len(text_of(message)) for message in history) < LARGE


class Heads:
    """Numbers what stands in front of histories: system messages, tools and template arguments."""

    def __init__(self) -> None:
        self._known: dict[Hashable, list[tuple[int, Chat]]] = {}
        self._numbers: dict[int, int] = {}
        self._versions: dict[tuple[int, int], bool] = {}

    def number(self, turn: Turn) -> int:
        if turn.index not in self._numbers:
            self._numbers[turn.index] = self._find(turn.chat)
        return self._numbers[turn.index]

    def _find(self, chat: Chat) -> int:
        tools = chat.get("tools")
        names = tuple(map(tool_name, tools)) if isinstance(tools, list) else ()
        known = self._known.setdefault((tuple(map(text_of, split(chat).system)), names), [])
        for number, other in known:
            if same_head(other, chat):
                return number
        number = len(self._numbers)
        known.append((number, chat))
        return number

    def versions(self, one: Seen, other: Turn) -> bool:
        """Whether two requests have versions of one system prompt."""
        pair = one.head, self.number(other)
        if pair[0] == pair[1]:
            return True
        if pair not in self._versions:
            old, new = one.turn.chat, other.chat
            self._versions[pair] = split(old).system == split(new).system or similarity(old, new) > SIMILAR
        return self._versions[pair]


class Sessions:
    """Follows the conversations of a traffic in the order of its requests.

    A line's `session_id` decides; lines without one join the conversation that they continue. A cost per message, not
    per request seen: conversations are found by what was said in them.
    """

    def __init__(self, heads: Heads, asked: Iterable[Asked]) -> None:
        """`asked` is everything that will be placed: some relations only show later."""
        self.heads = heads
        self._sessions: dict[tuple[str, str], list[Seen]] = {}
        self._threads: dict[tuple[str, str], list[Thread]] = {}
        self._ended: dict[tuple[str, int], list[Seen]] = {}
        self._sent = {(request.turn.line.session_id, request.states[-1]) for request in asked if request.states}
        self._asked_for: Counter[tuple[str | None, int]] = Counter()
        self._replies: dict[tuple[str | None, int], set[Gist]] = {}
        self._gone_on = {request.states[0] for request in asked if len(request.states) > 1}
        self._unanswered: dict[tuple[str, int], list[Seen]] = {}
        self._said: dict[tuple[str, Gist], list[Thread]] = {}
        self._last_with: dict[tuple[tuple[str, str], int], Turn] = {}

    def place(self, asked: Asked) -> Placed:
        """Take the next request."""
        turn, name = asked.turn, asked.turn.line.session_id
        found = self._parent(asked, self._in_session(asked)) if asked.states else None
        if found is None and asked.states and name is not None and (turn.model, name) not in self._sessions:
            found = self._parent_elsewhere(asked)
        session = name if name is not None else found.seen.thread.session if found else f"#{turn.index}"
        earlier = self._sessions.setdefault((turn.model, session), [])
        if found is not None:
            reference: Reference | None = Reference(found.seen.turn, found.relation)
        else:
            reference = self._similar(asked, earlier) or self._elsewhere(asked)
        self._remember(asked, session, earlier, found)
        return Placed(turn, session, reference)

    def _remember(self, asked: Asked, session: str, earlier: list[Seen], found: Found | None) -> None:
        turn, history = asked.turn, asked.history
        parent = found.seen if found and found.relation == "continued" else None
        threads = self._threads.setdefault((turn.model, session), [])
        if parent is not None and parent.thread.last is parent and parent.thread.session == session:
            thread = parent.thread
            threads.remove(thread)
        else:
            thread = Thread(session)
        threads.append(thread)
        seen = Seen(turn, history, asked.head, asked.states, thread, parent)
        if thread.last is None or len(history) != len(thread.last.history) or not (found and found.exact):
            thread.last = seen  # a request that is only sent again is not a newer state
        earlier.append(seen)
        if asked.states:
            keep(self._ended.setdefault((turn.model, asked.states[-1]), []), seen)
        if len(asked.states) == 1 and turn.line.session_id is None and asked.states[0] not in self._gone_on:
            keep(self._unanswered.setdefault((turn.model, asked.head), []), seen)
        # What the request before said is remembered already.
        known = len(parent.history) if found and parent and found.exact and parent.thread is thread else 0
        for said in history.gists[known:]:
            keep(self._said.setdefault((turn.model, said), []), thread)
        self._count_replies(asked, known)
        self._last_with.pop((turn.namespace, asked.head), None)
        self._last_with[turn.namespace, asked.head] = turn

    def _count_replies(self, asked: Asked, known: int) -> None:
        """How many replies to a history were asked for, and which came back in later ones."""
        session, wanted = asked.turn.line.session_id, asked.turn.chat.get("n")
        if asked.states:
            self._asked_for[session, asked.states[-1]] += wanted if isinstance(wanted, int) and wanted > 1 else 1
        for at in range(max(known, 1), len(asked.states)):
            if asked.history.speaks(at):
                self._replies.setdefault((session, asked.states[at - 1]), set()).add(asked.history.gists[at])

    @staticmethod
    def _in_session(asked: Asked) -> Allowed:
        name = asked.turn.line.session_id
        if name is not None:
            return lambda seen: seen.thread.session == name
        if len(asked.history) == 1 and is_short(asked.history.messages):
            # The same short question under another head may be anybody's.
            return lambda seen: seen.turn.line.session_id is None and seen.head == asked.head
        return lambda seen: seen.turn.line.session_id is None

    def _parent(self, asked: Asked, allowed: Allowed) -> Found | None:
        """The request that this one goes on from; one with a version of its head before others."""
        exact, side = self._begun_as(asked, allowed)
        if exact is not None and one_step(asked.history, len(exact.history)):
            worked = self._worked_on(exact, asked)
            return Found(worked, "continued") if worked else Found(exact, "continued", exact=True)
        best = self._nearest(asked, allowed, exact)
        if best is not None and self.heads.versions(best, asked.turn):
            return Found(best, "continued")
        if exact is not None:
            return Found(exact, "continued", exact=True)
        side = side or best
        if side is None or (is_short(side.history.messages) and len(asked.history) == 1):
            return None
        return Found(side, "auxiliary")

    def _worked_on(self, exact: Seen, asked: Asked) -> Seen | None:
        """The last step of the work whose answer a request has, when its client left the steps out: the first request
        of that work got one reply, which made the first call, so the answer is no reply to it."""
        last = exact.thread.last
        if last is None or last is exact or Alignment(last.history, asked.history).dropped_steps != len(exact.history):
            return None
        key = exact.turn.line.session_id, exact.states[-1]
        replies = self._replies[key]
        known = asked.history.gists[len(exact.history)] in replies
        return None if known or len(replies) < self._asked_for[key] else last

    def _parent_elsewhere(self, asked: Asked) -> Found | None:
        """A conversation that goes on in another session: only a long one with the very same head counts."""
        found = self._parent(asked, lambda seen: seen.head == asked.head and len(seen.history) >= FAMILIAR)
        return found if found and found.relation == "continued" else None

    def _begun_as(self, asked: Asked, allowed: Allowed) -> tuple[Seen | None, Seen | None]:
        """The request with the longest history that is the beginning of this one, with a version of its head; and one
        with another head where its history is longer."""
        side = None
        for state in reversed(asked.states):
            ended = [seen for seen in self._ended.get((asked.turn.model, state), ()) if allowed(seen)]
            same = [seen for seen in reversed(ended) if self.heads.versions(seen, asked.turn)]
            if len(same) > 1:
                # Of several samples, the one whose reply this is.
                same = [max(same, key=lambda seen: (seen.head == asked.head, reused(seen.turn, asked.turn)))]
            if same:
                return same[0], side
            side = side or (ended[-1] if ended else None)
        return None, side

    def _nearest(self, asked: Asked, allowed: Allowed, exact: Seen | None) -> Seen | None:
        """The request whose history this one has most of: the last of its conversation, or the one before a side
        request that ended it."""
        turn, history = asked.turn, asked.history
        threads: list[Thread] = []
        for said in dict.fromkeys([*reversed(history.gists[-PROBES:]), history.gists[0]]):
            threads += reversed(self._said.get((turn.model, said), []))
        if turn.line.session_id is not None:
            threads += reversed(self._threads.get((turn.model, turn.line.session_id), [])[-LOOK_BACK:])
        last = [thread.last for thread in list(dict.fromkeys(threads))[:LOOK_BACK]]
        states = [state for one in last if one for state in (one, one.parent) if state]
        best, most = None, (exact is not None, float(len(exact.history) if exact else 0), 0.0)
        for seen in dict.fromkeys((*states, *self._first_versions(asked))):
            if seen is exact or not len(seen.history) or not allowed(seen):
                continue
            alignment = Alignment(seen.history, history)
            if not alignment.goes_on or self._is_aside(seen, asked, alignment):
                continue
            named = turn.line.session_id is not None and seen.thread.session == turn.line.session_id
            if not named and alignment.ends_alike_only:
                continue
            if not named and not alignment.blocks and not a_little_edited(seen.history, history):
                continue
            likeness = alignment.likeness
            rank = self.heads.versions(seen, turn), likeness, likeness - len(seen.history)
            if rank > most:
                best, most = seen, rank
        return best

    def _first_versions(self, asked: Asked) -> list[Seen]:
        """Without sessions: first requests that nothing went on with, for one whose own first request was not sent."""
        if asked.turn.line.session_id is not None or (None, asked.states[0]) in self._sent:
            return []
        return self._unanswered.get((asked.turn.model, asked.head), [])

    def _is_aside(self, seen: Seen, asked: Asked, alignment: Alignment) -> bool:
        """Whether two requests ask for something aside of one conversation: what the earlier one had at its end is
        gone, and the conversation was sent without such an end both times, so the reply between answers that."""
        length = alignment.without_nudge
        if not length:
            return False
        session, end = seen.turn.line.session_id, len(seen.history) - length
        own = asked.states[-end - 1] if end < len(asked.states) else None
        return (session, seen.states[length - 1]) in self._sent and (session, own) in self._sent

    def _similar(self, asked: Asked, earlier: list[Seen]) -> Reference | None:
        """Another conversation of the session, with a similar head."""
        for seen in reversed(earlier[-LOOK_BACK:]):
            if seen.head == asked.head or similarity(seen.turn.chat, asked.turn.chat) > SIMILAR:
                return Reference(seen.turn, "same session")
        return None

    def _elsewhere(self, asked: Asked) -> Reference | None:
        """A request with a similar head; one that shares the cache before those under another salt."""
        turn = asked.turn
        same = self._last_with.get((turn.namespace, asked.head))
        if same is not None:
            return Reference(same, "other session")
        recent = [other for other in reversed(self._last_with.values()) if other.model == turn.model]
        recent.sort(key=lambda other: other.namespace != turn.namespace)
        for _, others in groupby(recent, key=lambda other: other.namespace != turn.namespace):
            likeness = [(similarity(other.chat, turn.chat), other) for other in islice(others, LOOK_BACK)]
            most, best = max(likeness, key=lambda pair: pair[0])
            if most > SIMILAR:
                return Reference(best, "other session")
        return None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to place. `states` are one number per message for the history up to it: equal histories have equal
    ones."""

    turn: Turn
    head: int
    history: History
    states: list[int]

    @classmethod
    def of(cls, turn: Turn, head: int, gists: Gists) -> Asked:
        history = History.of(split(turn.chat).history, gists)
        states = list(accumulate(history.gists, lambda state, gist: hash((state, gist)), initial=0))
        return cls(turn, head, history, states[1:])


@dataclass(frozen=True, slots=True)
class Found:
    """The best earlier request; `exact` when this one's history begins with all of its."""

    seen: Seen
    relation: Relation
    exact: bool = False


Allowed = Callable[[Seen], bool]


def keep(items: list[Any], item: Any) -> None:
    """Put an item at the end, once, and forget the oldest of many."""
    if any(other is item for other in items):
        items[:] = [other for other in items if other is not item]
    items.append(item)
    del items[:-LOOK_BACK]


def a_little_edited(before: History, after: History) -> bool:
    """Whether two first messages are one for sure: a little of a long text changed, or something was put behind it or
    taken away there."""
    old, new = text_of(before.messages[0]), text_of(after.messages[0])
    shorter, longer = sorted((old, new), key=len)
    if len(shorter) < 2 * LITTLE:
        return False
    return shorter in longer or len(longer) - sum(shared_ends(old, new)) <= LITTLE


def one_step(history: History, length: int) -> bool:
    """Whether one reply and new input at most stand behind the first messages."""
    at = length
    while at < len(history) and history.speaks(at):
        at += 1
    return not any(map(history.speaks, range(at, len(history))))


def reused(earlier: Turn, turn: Turn) -> int:
    return common_prefix(earlier.cached_after, turn.ids)


def same_head(before: Chat, after: Chat) -> bool:
    return split(before).system == split(after).system and all(
        before.get(name) == after.get(name) for name in ("tools", "chat_template_kwargs")
    )


def similarity(before: Chat, after: Chat) -> float:
    """How much of the system text two requests share, 0 to 1; without system text, whether the tools are alike."""
    old, new = ("\n".join(map(text_of, split(chat).system)) for chat in (before, after))
    if not old and not new:
        return 1.0 if before.get("tools") == after.get("tools") else 0.6
    ends = sum(shared_ends(old, new))
    share = ends / max(len(old), len(new))
    if share > SIMILAR:
        return share
    for parts in (str.splitlines, SENTENCE_END.split):
        matcher = SequenceMatcher(None, parts(old), parts(new), autojunk=False)
        share = matcher.quick_ratio()  # at least `ratio()`
        if share > SIMILAR:
            share = matcher.ratio()
        if share > SIMILAR:
            break  # else every line may have changed a little
    return share
