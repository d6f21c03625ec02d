"""The cache salt differs between requests that share a prefix.

## What it does

Reports requests that share tokens with earlier ones under another `cache_salt`: an error when salts are used once, or
change inside a conversation; a warning when they look so but the traffic is too short to tell; a note with its cost
when they keep tenants apart. The model (or adapter) that a request names also keeps caches apart; that is no salt.

## Why it matters

The salt is part of the hash of the first block, and every other block's hash builds on it: another salt reuses
nothing.

## Example

    "cache_salt": "9e3779b97f4a7c15"      (new in every request)

## Use instead

    "cache_salt": "tenant-17"

Give one salt per group of users who may share a cache, and keep it.

## Fix safety

A salt keeps users from telling by timing what others sent. Do not share one across a trust boundary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from sys import modules

from pkv_lint.rule_api import Cause, Facts, Finding, Group, Replayed, Severity, counted, for_group, looks_volatile

CODE = "PKV601"
NAME = "cache-salt-churn"
SEVERITY: Severity = "error"
SOURCE_URL = "https://docs.vllm.ai/en/latest/design/prefix_caching/"

FIX = "Use one salt per group of users who may share a cache, and keep it; or none."
FEW = 8
"""Requests below which salts of their own may as well be those of so many tenants."""


def check(facts: Facts) -> Iterator[Finding]:
    rule = modules[__name__]
    salts = Salts(facts.replayed)
    for group in facts.of("salt"):
        churning = [cause for cause in group.causes if salts.churns(cause)]
        if churning:
            message, severity = salts.verdict(churning)
            yield for_group(rule, facts, Group("salt", tuple(churning)), message, FIX, severity=severity)
        keeping = [cause for cause in group.causes if cause not in churning]
        if keeping:
            used = len({cause.turn.namespace[1] for cause in keeping})
            message = f"keeps requests apart that share a prefix ({counted(used, 'other salt')})"
            yield for_group(rule, facts, Group("salt", tuple(keeping)), message, FIX, severity="info")


class Salts:
    """How a traffic uses its salts."""

    def __init__(self, replayed: Sequence[Replayed]) -> None:
        self._replayed = replayed
        self._uses = Counter(salt(item) for item in replayed if salt(item))

    @cached_property
    def _sessions(self) -> Mapping[object, list[Replayed]]:
        sessions: dict[object, list[Replayed]] = {}
        for item in self._replayed:
            if salt(item):
                sessions.setdefault((item.turn.line.tenant, item.session), []).append(item)
        return sessions

    @cached_property
    def changed(self) -> set[int]:
        """Requests whose conversation had another salt before, and never this one."""
        found = set()
        for session in self._sessions.values():
            seen = {salt(session[0])}
            for item in session[1:]:
                if salt(item) not in seen and (item.turn.line.session_id is not None or goes_on(item)):
                    found.add(item.turn.index)
                seen.add(salt(item))
        return found

    @cached_property
    def rotates(self) -> bool:
        """Whether conversations keep a salt for most of their turns (a turn may be asked for again)."""
        turns = 0
        for session in self._sessions.values():
            if any(item.turn.index in self.changed for item in session):
                lengths = {len(item.turn.chat["messages"]) for item in session}
                turns += (len(lengths) if len(lengths) > 1 else len(session)) - 1
        return 2 * len(self.changed) < turns

    @cached_property
    def single_use(self) -> bool:
        """Whether every salt is used once and looks made up for it: not a tenant's name, not by another tenant each."""
        if len(self._uses) < 3 or max(self._uses.values()) > 1:
            return False
        owners = {owner(item) for item in self._replayed if salt(item)}
        if None not in owners:
            return len(owners) < len(self._uses)
        return all(looks_volatile(name) for name in self._uses)

    def churns(self, cause: Cause) -> bool:
        if cause.turn.index in self.changed or self.single_use:
            return True
        # Where salts change with every request, the first ones of other conversations are no tenants either.
        return bool(self.changed) and not self.rotates and self._uses[cause.turn.namespace[1]] == 1

    def verdict(self, causes: Sequence[Cause]) -> tuple[str, Severity]:
        """What salts that churn do, and how bad it is."""
        if self.changed and self.rotates:
            return f"changes inside a conversation, in {counted(len(causes), 'request')}", "warning"
        if max(self._uses.values()) > 1:
            return "changes inside a conversation", SEVERITY
        certain = bool(self.changed) or len(self._uses) >= FEW
        return "is new in every request", SEVERITY if certain else "warning"


def salt(item: Replayed) -> str:
    return item.turn.namespace[1]


def owner(item: Replayed) -> str | None:
    """Whose request it is, where the traffic or the request says so."""
    user = item.turn.chat.get("user")
    return item.turn.line.tenant or (user if isinstance(user, str) else None)


def goes_on(item: Replayed) -> bool:
    """Whether a request has more of a conversation than the one it was held against."""
    reference = item.reference
    return (
        reference is not None
        and reference.relation == "continued"
        and len(item.turn.chat["messages"]) > len(reference.turn.chat["messages"])
    )
