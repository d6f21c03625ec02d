"""Lint a planted traffic and hold the findings against what was planted, the cost against a naive replay."""

from __future__ import annotations

import io
import json
from array import array
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from pkv_lint.findings import Finding
from pkv_lint.linting import lint_traffic
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.traffic import read_requests

from .planting import Planted

NOW = datetime(2026, 5, 11, 12, 0, 0)


@dataclass(frozen=True)
class Verdict:
    """What went wrong, empty when all is right."""

    blamed: str
    cost: str
    noise: str


@cache
def loaded(template: str) -> Renderer:
    return Renderer.load(chat_template=template)


def findings_of(bodies: list[dict[str, object]], renderer: Renderer, block_size: int) -> list[Finding]:
    text = "\n".join(json.dumps({"session_id": "s", "request": body}) for body in bodies)
    report = lint_traffic(read_requests(io.BytesIO(text.encode())), renderer, block_size=block_size, now=NOW)
    assert not report.unusable, report.unusable
    return [finding for finding in report.findings if finding.at_least("warning")]


def check(planted: Planted, renderer: Renderer, block_size: int) -> Verdict:
    if planted.template is not None:
        renderer = loaded(planted.template)
    findings = findings_of(planted.bodies, renderer, block_size)
    expected = naive_cost(planted, renderer, block_size)
    right = [f for f in findings if f.code in planted.codes and (f.path or "").startswith(planted.path)]
    if expected == 0:
        return Verdict("", "", "" if not findings else f"{codes(findings)} where nothing is lost")
    blamed = "" if right else f"{codes(findings)} instead of {planted.codes} at {planted.path}"
    lost = sum(finding.tokens_lost for finding in right)
    cost = "" if not right or lost == expected else f"tokens_lost {lost}, a naive replay says {expected}"
    others = [finding for finding in findings if finding not in right]
    return Verdict(blamed, cost, f"also {codes(others)}" if right and others else "")


def codes(findings: list[Finding]) -> str:
    return ", ".join(f"{f.code} at {f.path} ({f.tokens_lost})" for f in findings) or "nothing"


def naive_cost(planted: Planted, renderer: Renderer, block_size: int) -> int:
    """What the fault lost, by comparing each prompt with all earlier ones token by token."""
    seen: list[array[int]] = []
    lost = 0
    for sent, undone in zip(planted.bodies, planted.undone, strict=True):
        ids = renderer.render(sent, NOW).token_ids
        if undone is not None:
            without = renderer.render(undone, NOW).token_ids
            lost += max(0, naive_hit(without, seen, block_size) - naive_hit(ids, seen, block_size))
        seen.append(ids)
    return lost


def naive_hit(ids: array[int], seen: list[array[int]], block_size: int) -> int:
    best = 0
    for other in seen:
        count = 0
        for one, two in zip(ids, other, strict=False):
            if one != two:
                break
            count += 1
        best = max(best, count)
    return min(best, len(ids) - 1) // block_size * block_size
