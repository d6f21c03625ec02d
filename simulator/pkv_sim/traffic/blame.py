"""What the linter holds against the requests of a traffic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from pkv_lint.causes import Cause, replay
from pkv_lint.facts import Facts
from pkv_lint.findings import Finding
from pkv_lint.linting import load_rules
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.turns import Turn
from pkv_sim.progress import Progress
from pkv_sim.traffic.workload import Blame

UNREAD = "PKV604"
"""The rule about requests that make the server skip the lookup: it looks at one request by itself."""


def blames_of(
    turns: Sequence[Turn], renderer: Renderer, block_size: int, progress: Progress
) -> dict[int, tuple[Blame, ...]]:
    """The findings that cost tokens, by the index of the request in its file, in prompt order. `turns` are in the order
    of arrival."""
    numbered = [replace(turn, index=index) for index, turn in enumerate(turns)]
    replayed = progress(replay(numbered, renderer, block_size), "requests compared:", len(numbered))
    facts = Facts(list(replayed), renderer, block_size)
    unread = any(item.unread for item in facts.replayed)
    if not unread and not facts.groups:
        return {}
    found: dict[int, list[tuple[int, Blame]]] = {}
    for rule in load_rules():
        for finding in rule.check(facts):
            for cause in causes_of(finding, facts):
                reason = "other_namespace" if cause.nature == "salt" else "diverged"
                blame = Blame(finding.code, finding.name, finding.path, reason, cause.tokens_lost)
                found.setdefault(cause.turn.line.index, []).append((cause.token, blame))
            if finding.code == UNREAD:
                for item in facts.replayed:
                    if item.unread:
                        blame = Blame(finding.code, finding.name, item.turn.unread_for, "diverged", item.unread)
                        found.setdefault(item.turn.line.index, []).append((0, blame))
    return {
        index: tuple(blame for _, blame in sorted(blames, key=lambda pair: pair[0])) for index, blames in found.items()
    }


def causes_of(finding: Finding, facts: Facts) -> Iterator[Cause]:
    """The causes that a finding sums up; none for one that is not made of causes."""
    evidence = finding.evidence
    if not finding.tokens_lost or "hit_without" not in evidence:
        return
    first = (finding.request, evidence["token"], evidence["hit"], evidence["hit_without"])
    requests = set(evidence["requests"])
    for group in chain.from_iterable(facts.groups.values()):
        if any((cause.turn.index, cause.token, cause.hit, cause.hit_without) == first for cause in group.causes):
            yield from (cause for cause in group.causes if cause.turn.index in requests)
            return
