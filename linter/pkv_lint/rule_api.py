"""What a rule may use: the facts it is given and the finding it makes of them.

A rule is a module with the constants `CODE`, `NAME`, `SEVERITY` and `SOURCE_URL`, a docstring that is its documentation
page, and a generator `check(facts) -> Iterator[Finding]`. A package offers rules through the entry point group
`pkv.rules`: a callable without arguments that returns them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from pkv_lint.causes import Cause, Replayed
from pkv_lint.facts import Facts
from pkv_lint.findings import Blame, Finding, Severity, counted, nth
from pkv_lint.groups import Group
from pkv_lint.nature import located
from pkv_lint.patterns import identifiers, timestamps
from pkv_lint.probes import Broken, Clock
from pkv_lint.repeated import Repeated
from pkv_lint.suspects import Pattern
from pkv_lint.turns import Turn

__all__ = [
    "Blame",
    "Broken",
    "Cause",
    "Clock",
    "Facts",
    "Finding",
    "Group",
    "Pattern",
    "Repeated",
    "Replayed",
    "Rule",
    "Severity",
    "Turn",
    "changing",
    "counted",
    "for_group",
    "for_next_turn",
    "for_pattern",
    "for_repeated",
    "for_turn",
    "listed",
    "looks_volatile",
    "nth",
]


class Rule(Protocol):
    """A rule module."""

    CODE: str
    NAME: str
    SEVERITY: Severity
    SOURCE_URL: str
    __doc__: str | None

    def check(self, facts: Facts) -> Iterator[Finding]: ...


def for_group(
    rule: Rule | Any,
    facts: Facts,
    group: Group,
    message: str,
    fix: str,
    *,
    severity: Severity | None = None,
    blame: Blame = "client",
) -> Finding:
    """The finding for one cause in all the requests it hits; the first of them is shown."""
    cause = group.first
    span = located(cause.change, cause.turn.chat, group.nature)
    place = facts.place(cause.turn, cause.change.path or None, span)
    requests = group.requests
    return Finding(
        code=rule.CODE,
        name=rule.NAME,
        severity=severity or rule.SEVERITY,
        message=message,
        file=place.file,
        line=place.line,
        column=place.column,
        request=cause.turn.index,
        path=place.path,
        span=place.span,
        requests_affected=len(requests),
        tokens_lost=group.tokens_lost,
        blame=blame,
        evidence={
            "before": cause.change.before,
            "after": cause.change.after,
            "names": group.names,
            "earlier_request": cause.earlier.index,
            "relation": cause.relation,
            "token": cause.token,
            "prompt_tokens": len(cause.turn.ids),
            "hit": cause.hit,
            "hit_without": cause.hit_without,
            "requests": requests,
            "within_conversation": group.within_conversation,
        },
        fix=fix,
    )


def changing(facts: Facts, group: Group) -> str:
    """How often something changes, told apart by whether it does so within conversations or from one to the next."""
    requests, within = group.requests, group.within_conversation
    if len(within) == len(requests):
        if len(requests) > 1 and len(requests) >= len(facts.replayed) - 1:
            return "changes in every request"
        return f"changes within a conversation, in {counted(len(requests), 'request')}"
    between = len(requests) - len(within)
    if not within:
        return f"differs from one conversation to the next, in {counted(between, 'request')}"
    return f"changes in {counted(len(requests), 'request')}, {between} of them the first of a conversation"


def listed(names: Sequence[str], shown: int = 6) -> str:
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more:,} more" if more > 0 else "")


def for_pattern(
    rule: Rule | Any, facts: Facts, pattern: Pattern, message: str, fix: str, severity: Severity
) -> Finding:
    """The finding for volatile-looking text that no other request shows constant or changing."""
    place = facts.place(pattern.turn, pattern.path, (pattern.match.start, pattern.match.end))
    return Finding(
        code=rule.CODE,
        name=rule.NAME,
        severity=severity,
        message=message,
        file=place.file,
        line=place.line,
        column=place.column,
        request=pattern.turn.index,
        path=place.path,
        span=place.span,
        requests_affected=len(pattern.requests),
        tokens_lost=0,
        blame="client",
        evidence={"after": pattern.text, "tokens_behind": pattern.behind, "prompt_tokens": len(pattern.turn.ids)},
        fix=fix,
    )


def for_repeated(rule: Rule | Any, facts: Facts, repeated: Repeated, message: str, fix: str) -> Finding:
    """The finding for text that stands too far behind; `tokens_lost` is what moving it would win."""
    place = facts.place(repeated.turn, repeated.path, repeated.span)
    return Finding(
        code=rule.CODE,
        name=rule.NAME,
        severity=rule.SEVERITY,
        message=message,
        file=place.file,
        line=place.line,
        column=place.column,
        request=repeated.turn.index,
        path=place.path,
        span=place.span,
        requests_affected=len(repeated.requests),
        tokens_lost=repeated.won,
        blame="client",
        evidence={
            "repeated_tokens": repeated.tokens,
            "prompt_tokens": len(repeated.turn.ids),
            "requests": list(repeated.requests),
        },
        fix=fix,
    )


def for_turn(
    rule: Rule | Any,
    facts: Facts,
    turn: Turn,
    path: str | None,
    message: str,
    fix: str,
    *,
    severity: Severity | None = None,
    blame: Blame = "client",
    span: tuple[int, int] | None = None,
    as_sent: bool = False,
    requests: int = 1,
    tokens_lost: int = 0,
    evidence: Mapping[str, Any] | None = None,
) -> Finding:
    """The finding for something that one request shows by itself. `path` and `span` are places in the chat form of the
    body, or in the body itself (`as_sent`)."""
    place = facts.place(turn, path, span, as_sent=as_sent)
    return Finding(
        code=rule.CODE,
        name=rule.NAME,
        severity=severity or rule.SEVERITY,
        message=message,
        file=place.file,
        line=place.line,
        column=place.column,
        request=turn.index,
        path=place.path,
        span=place.span,
        requests_affected=requests,
        tokens_lost=tokens_lost,
        blame=blame,
        evidence={"prompt_tokens": len(turn.ids), **(evidence or {})},
        fix=fix,
    )


def for_next_turn(
    rule: Rule | Any, facts: Facts, broken: Broken, message: str, fix: str, *, severity: Severity | None = None
) -> Finding:
    """The finding for a prompt that the next turn will not begin with. It has not happened: a warning at most, and a
    note where it costs less than a block."""
    about = "about " if facts.approximate else ""
    of = f"{broken.tokens:,} of the {len(broken.turn.ids):,} tokens of this prompt"
    return for_turn(
        rule,
        facts,
        broken.turn,
        broken.path,
        f"{message}: {about}{of} are computed again in the next turn",
        fix,
        severity=severity or ("warning" if broken.tokens >= facts.block_size else "info"),
        blame="template",
        evidence={"tokens_next_turn": broken.tokens},
    )


def looks_volatile(text: str) -> bool:
    """Whether a text is nothing but a date, a time or an identifier."""
    return any(
        match.start == 0 and match.end == len(text)
        for search in (identifiers, timestamps)
        for match in search(text, 0, len(text))
    )
