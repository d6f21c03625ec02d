"""Which earlier request could have served this one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from .changes import Chat, canonical, continues, gist, split, text_of
from .text_changes import shared_ends
from .turns import Turn

Relation = Literal["continued", "auxiliary", "same session", "other session"]
LOOK_BACK = 8
"""Earlier requests of a session (and heads of other sessions) that are considered."""
ENDS = 5
"""Messages at the end of a request by which a later one finds its session."""
SIMILAR = 0.5
"""Share of equal text from which on two system prompts count as versions of one."""


@dataclass(frozen=True, slots=True)
class Reference:
    """An earlier request, and how it is related.

    `continued`: this request goes on from it. `auxiliary`: it has the same history behind another system prompt or other
    tools (a summary, a title). `same session` and `other session`: another conversation with a similar head.
    """

    turn: Turn
    relation: Relation


class Sessions:
    """Follows the conversations of a traffic in the order of its requests.

    A line's `session_id` decides; lines without one join the conversation that they continue.
    """

    def __init__(self) -> None:
        self._turns: dict[str, list[Turn]] = {}
        self._heads: dict[str, Turn] = {}
        self._saying: dict[str, list[str]] = {}

    def add(self, turn: Turn) -> tuple[str, Reference | None]:
        """Take the next request. Returns its session and the earlier request to hold it against, None for a first one
        that resembles nothing before it."""
        session = turn.line.session_id
        if session is None:
            session = self._joined(turn)
        earlier = self._turns.setdefault(session, [])
        reference = in_session(turn, earlier) or self._elsewhere(turn)
        earlier.append(turn)
        head = head_of(turn.chat)
        self._heads.pop(head, None)
        self._heads[head] = turn
        return session, reference

    def _joined(self, turn: Turn) -> str:
        """The session without a name that a request goes on from, else a new one.

        Sessions are found by what their last request said first and last, so that a long traffic costs no more per
        request than a short one.
        """
        history = split(turn.chat).history
        ends = [gist(message) for message in (*history[:1], *history[1:][-ENDS:])]
        candidates = dict.fromkeys(session for said in ends for session in reversed(self._saying.get(said, [])))
        joined = next((name for name in candidates if self._goes_on(name, history)), f"#{turn.index}")
        for said in ends:
            sessions = self._saying.setdefault(said, [])
            if joined not in sessions:
                sessions.append(joined)
                del sessions[:-LOOK_BACK]
        return joined

    def _goes_on(self, session: str, history: list[Any]) -> bool:
        return continues(split(self._turns[session][-1].chat).history, history)

    def _elsewhere(self, turn: Turn) -> Reference | None:
        head = head_of(turn.chat)
        if head in self._heads:
            return Reference(self._heads[head], "other session")
        best, most = None, SIMILAR
        for candidate in list(reversed(self._heads.values()))[:LOOK_BACK]:
            likeness = similarity(candidate.chat, turn.chat)
            if likeness > most:
                best, most = candidate, likeness
        return Reference(best, "other session") if best else None


def in_session(turn: Turn, earlier: list[Turn]) -> Reference | None:
    """The last request of the session that this one goes on from, else the last with a similar head."""
    history = split(turn.chat).history
    auxiliary = None
    for candidate in recent(earlier):
        if not continues(split(candidate.chat).history, history):
            continue
        if same_head(candidate.chat, turn.chat):
            return Reference(candidate, "continued")
        auxiliary = auxiliary or Reference(candidate, "auxiliary")
    if auxiliary is not None:
        return auxiliary
    for candidate in recent(earlier):
        if similarity(candidate.chat, turn.chat) > SIMILAR:
            return Reference(candidate, "same session")
    return None


def same_head(before: Chat, after: Chat) -> bool:
    """Whether two requests have versions of one system prompt."""
    old, new = split(before).system, split(after).system
    return old == new or similarity(before, after) > SIMILAR


def recent(turns: list[Turn]) -> Iterator[Turn]:
    return reversed(turns[-LOOK_BACK:])


def head_of(chat: Chat) -> str:
    """What stands in front of every history: system messages, tools and template arguments."""
    return canonical([split(chat).system, chat.get("tools"), chat.get("chat_template_kwargs")])


def similarity(before: Chat, after: Chat) -> float:
    """How much of the system text two requests share, 0 to 1; without system text, whether the tools are alike."""
    old, new = ("\n".join(map(text_of, split(chat).system)) for chat in (before, after))
    if not old and not new:
        return 1.0 if canonical(before.get("tools")) == canonical(after.get("tools")) else 0.6
    ends = sum(shared_ends(old, new))
    share = ends / max(len(old), len(new))
    if share > SIMILAR:
        return share
    return SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False).ratio()
