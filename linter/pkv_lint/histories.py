"""Which messages of an earlier history a later one still has, and whether it goes on from it."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any

from pkv_lint.changes import canonical, role, text_of
from pkv_lint.text_changes import shared_ends

Gist = Hashable
MANY = 1000
"""Messages from which on frequent ones are passed over when histories are compared."""
MOST_PAIRS = 900
"""Pairs of messages that are compared to find out which of a stretch became which."""


class Gists:
    """What messages say, whatever their ids, their reasoning, their images and the notation of their arguments.
    Arguments that come again, as they do in every request of a conversation, are read once."""

    def __init__(self) -> None:
        self._arguments: dict[str, str] = {}

    def of(self, message: Any) -> Gist:
        if not isinstance(message, dict):
            return repr(message)
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or not calls:
            return role(message), text_of(message)
        return role(message), text_of(message), tuple(map(self._of_call, calls))

    def _of_call(self, call: Any) -> Gist:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            return repr(call)
        return str(function.get("name")), self._of_arguments(function.get("arguments"))

    def _of_arguments(self, arguments: Any) -> str:
        if not isinstance(arguments, str):
            return plainly(arguments)
        known = self._arguments.get(arguments)
        if known is None:
            known = self._arguments[arguments] = plainly(arguments)
        return known


def plainly(text: Any) -> str:
    """Arguments of a call, however they are written."""
    try:
        return canonical(parsed(text))
    except RecursionError:
        return str(text)


def parsed(text: Any) -> Any:
    """The JSON value of a text, numbers by their value; what is no JSON text as it is."""
    try:
        return json.loads(text, parse_float=number)
    except (TypeError, ValueError, RecursionError):
        return text


def number(text: str) -> float | int:
    value = float(text)
    return int(value) if value.is_integer() else value


@dataclass(frozen=True, slots=True)
class History:
    """The messages behind the system prompt, with what each of them says."""

    messages: Sequence[Any]
    gists: Sequence[Gist]

    @classmethod
    def of(cls, messages: Sequence[Any], gists: Gists) -> History:
        return cls(messages, list(map(gists.of, messages)))

    def __len__(self) -> int:
        return len(self.messages)

    def speaks(self, at: int) -> bool:
        """Whether the message at a place is the model's."""
        return role(self.messages[at]) == "assistant"

    def works_from(self, at: int) -> bool:
        """Whether nothing but calls and their results stand from a place on."""
        steps = self.messages[at:]
        return (
            len(steps) > 1
            and role(steps[0]) == "assistant"
            and role(steps[-1]) == "tool"
            and all(role(step) == "tool" or (role(step) == "assistant" and step.get("tool_calls")) for step in steps)
        )

    @property
    def newest(self) -> int:
        """Where the input begins that no reply followed yet."""
        at = len(self.messages)
        while at and not self.speaks(at - 1):
            at -= 1
        return at


@dataclass(frozen=True, slots=True)
class Block:
    """`size` messages from `before` on say what those from `after` on say."""

    before: int
    after: int
    size: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages `[start, end)` of the earlier history in whose place the later one has its `[from_, to)`. `inside`: both
    have the same messages again behind it."""

    start: int
    end: int
    from_: int
    to: int
    inside: bool


class Alignment:
    """Two histories side by side. `moved` messages stand at the end of both, in the later one behind a newer turn: a
    reminder that goes along with the conversation."""

    def __init__(self, before: History, after: History) -> None:
        self.before = before
        self.after = after
        head = common(before.gists, after.gists)
        self.moved = 0
        if head == len(before):
            self.blocks = [Block(0, 0, head)] if head else []
            return
        self.blocks, versions = self._in_place()
        if versions < len(before):
            # What comes again and again in a very long history would cost quadratic time.
            junk = len(before) > MANY
            matcher = SequenceMatcher(None, before.gists[head:], after.gists[head:], autojunk=junk)
            found = [Block(b + head, a + head, size) for b, a, size in matcher.get_matching_blocks() if size]
            found = [Block(0, 0, head), *found] if head else found
            if sum(block.size for block in found) >= versions:
                self.blocks = found
        self._take_out_moved()

    def _in_place(self) -> tuple[list[Block], float]:
        """The messages that are the same at the same place, and how many there are, versions of one counted half and
        results of one call as the same; nothing where other roles stand there. What is equal elsewhere (the same call
        made again) does not confuse them."""
        if len(self.after) < len(self.before):
            return [], 0
        found: list[Block] = []
        versions = 0.0
        for at, (old, new) in enumerate(zip(self.before.messages, self.after.messages, strict=False)):
            if role(old) != role(new):
                return [], 0
            if self.before.gists[at] != self.after.gists[at]:
                versions += 1 if same_call(old, new) else self.alike(at, at) / 2
                continue
            versions += 1
            if found and found[-1].before + found[-1].size == at:
                found[-1] = Block(found[-1].before, found[-1].after, found[-1].size + 1)
            else:
                found.append(Block(at, at, 1))
        return found, versions

    def _take_out_moved(self) -> None:
        last = self.blocks[-1] if self.blocks else None
        if last is None or last.before + last.size < len(self.before) or last.after + last.size < len(self.after):
            return
        if last.before < self.before.newest or last.before == last.after:
            return
        front = self.blocks[-2] if len(self.blocks) > 1 else Block(0, 0, 0)
        gone = range(front.before + front.size, last.before)
        came = range(front.after + front.size, last.after)
        # The reply that came since answers the earlier request: it does not stand behind other new input.
        input_ = next((at - came.start for at in came if self.after.speaks(at)), len(came))
        if input_ <= len(gone) and sum(map(self.after.speaks, came)) > sum(map(self.before.speaks, gone)):
            self.blocks.pop()
            self.moved = last.size

    @property
    def exact(self) -> bool:
        """Whether the later history is the earlier one and what came since."""
        return not self.moved and sum(block.size for block in self.blocks) == len(self.before) == self._head

    @property
    def _head(self) -> int:
        return self.blocks[0].size if self.blocks and self.blocks[0].before == self.blocks[0].after == 0 else 0

    @cached_property
    def stretches(self) -> list[Stretch]:
        """Where they differ, what came since left out."""
        steps = self.dropped_steps
        if steps is not None:
            return [Stretch(steps, len(self.before), steps, steps, inside=False)]
        found = []
        start = from_ = 0
        for block in self.blocks:
            if block.before > start or block.after > from_:
                found.append(Stretch(start, block.before, from_, block.after, inside=True))
            start, from_ = block.before + block.size, block.after + block.size
        end = len(self.before) - self.moved
        if start < end:
            to = self._slot(start, end, from_)
            if to is not None:
                found.append(Stretch(start, end, from_, to, inside=False))
        return found

    @cached_property
    def dropped_steps(self) -> int | None:
        """Where the earlier history goes on with calls and their results, and the later one at once with an answer: a
        client that keeps no steps of work, or another sample of the reply. None where it is not so."""
        at = common(self.before.gists, self.after.gists)
        if not at < len(self.after) - 1 or not self.before.works_from(at) or not self.after.speaks(at):
            return None
        return None if self.after.messages[at].get("tool_calls") or self.after.speaks(at + 1) else at

    def _slot(self, start: int, end: int, from_: int) -> int | None:
        """Where in the later history that ends which replaced the last messages of the earlier one: in front of the
        reply to them. None when no reply follows: then it is another branch of the conversation that ends there."""
        replies = runs(map(self.before.speaks, range(start, end)))
        speaking = False
        for at in range(from_, len(self.after)):
            if self.after.speaks(at) and not speaking:
                if not replies:
                    return at
                replies -= 1
            speaking = self.after.speaks(at)
        return None

    def pairs(self, stretch: Stretch) -> list[tuple[int | None, int | None]]:
        """Which message of a stretch became which, in order; None for one that was removed or put in."""
        old, new = range(stretch.start, stretch.end), range(stretch.from_, stretch.to)
        if [role(self.before.messages[i]) for i in old] == [role(self.after.messages[j]) for j in new]:
            return list(zip(old, new, strict=True))
        if not old or not new or len(old) * len(new) > MOST_PAIRS:
            return [*((i, None) for i in old), *((None, j) for j in new)]
        return list(self._paired(old, new))

    def _paired(self, old: range, new: range) -> Iterator[tuple[int | None, int | None]]:
        """The longest common subsequence of messages that are versions of one."""
        alike = [[self.alike(i, j) for j in new] for i in old]
        most = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
        for i in reversed(range(len(old))):
            for j in reversed(range(len(new))):
                most[i][j] = max(most[i + 1][j], most[i][j + 1], alike[i][j] and most[i + 1][j + 1] + 1)
        i = j = 0
        while i < len(old) or j < len(new):
            if i < len(old) and j < len(new) and alike[i][j] and most[i][j] == most[i + 1][j + 1] + 1:
                yield old[i], new[j]
                i, j = i + 1, j + 1
            elif j == len(new) or (i < len(old) and most[i + 1][j] >= most[i][j + 1]):
                yield old[i], None
                i += 1
            else:
                yield None, new[j]
                j += 1

    def alike(self, i: int, j: int) -> bool:
        return resembles(self.before.messages[i], self.after.messages[j])

    @cached_property
    def kept(self) -> list[tuple[int, int]]:
        """The places (before, after) of messages that are the same, or versions of one."""
        found = [(b.before + n, b.after + n) for b in self.blocks for n in range(b.size)]
        for stretch in self.stretches:
            for i, j in self.pairs(stretch):
                if i is not None and j is not None and self.alike(i, j):
                    found.append((i, j))
        return sorted(found)

    @cached_property
    def goes_on(self) -> bool:
        """Whether the later history is a later state of the same conversation: what was newest in the earlier one is
        still there, a reply follows it (or it was sent again with less in front of it), and so is most of what stands
        in front of it."""
        if self.exact:
            return True
        if not self.kept:
            return False
        last_before, last_after = self.kept[-1]
        if not self._newest_kept:
            return False
        again = (last_before, last_after) == (len(self.before) - 1, len(self.after) - 1)
        if again and not any(self.before.speaks(i) for i, _ in self.kept):
            return False  # the last message alone may be anybody's
        if again and any(stretch.from_ < stretch.to for stretch in self.stretches) and not self._framed:
            return False  # another conversation, or another sample, with the same end
        if not again and not any(map(self.after.speaks, range(last_after + 1, len(self.after)))):
            return False
        return len(self.kept) * 2 >= min(len(self.before), last_after + 1)

    @property
    def _framed(self) -> bool:
        """Whether they begin with the same message and have the same last reply."""
        replies, later = ([at for at in range(len(one)) if one.speaks(at)] for one in (self.before, self.after))
        same = [(b.before + n, b.after + n) for b in self.blocks for n in range(b.size)]
        return self._head > 0 and bool(replies and later) and (replies[-1], later[-1]) in same

    @property
    def likeness(self) -> float:
        """How many messages are the same, versions of one counted half."""
        same = sum(block.size for block in self.blocks)
        return same + (len(self.kept) - same) / 2

    @property
    def ends_alike_only(self) -> bool:
        """Whether they begin another way and end with the same message: mostly two conversations with one closing
        text."""
        return self.before.gists[:1] != self.after.gists[:1] and self.before.gists[-1:] == self.after.gists[-1:]

    @property
    def _newest_kept(self) -> bool:
        newest = min(self.before.newest, len(self.before) - 1)
        if any(i >= newest for i, _ in self.kept):
            return True
        return self.without_nudge is not None and any(i == newest - 1 for i, _ in self.kept)

    @property
    def without_nudge(self) -> int | None:
        """The length of the earlier history without input at its end of which nothing is left, with nothing in its
        place: a nudge that was taken out again. None when there is none."""
        if self.moved:
            return len(self.before) - self.moved
        tail = self.stretches[-1] if self.stretches else None
        return tail.start if tail is not None and not tail.inside and tail.from_ == tail.to else None


def common(one: Sequence[Gist], other: Sequence[Gist]) -> int:
    """How many items two lists have in common in front."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def runs(flags: Iterable[bool]) -> int:
    """How many times in a row something begins to hold."""
    count, held = 0, False
    for flag in flags:
        count += flag and not held
        held = flag
    return count


def same_call(old: Any, new: Any) -> bool:
    """Whether two messages are results of one call."""
    return role(old) == role(new) == "tool" and old.get("tool_call_id") == new.get("tool_call_id") is not None


def resembles(old: Any, new: Any) -> bool:
    """Whether two messages are versions of one: of one role, and the same call's result, or one text in the other, or
    most of the text at its ends the same."""
    if role(old) != role(new):
        return False
    if same_call(old, new):
        return True
    one, other = text_of(old), text_of(new)
    if one and other and (one in other or other in one):
        return True
    return sum(shared_ends(one, other)) * 2 >= max(len(one), len(other))
