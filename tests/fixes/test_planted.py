"""Faults planted at random into clean sessions, and fixed: every request reuses what it reused in the clean session."""

from __future__ import annotations

import json
import random
from datetime import UTC
from typing import Any

import pytest
from tests.faults.checking import NOW
from tests.faults.planting import PLANTS
from tests.faults.sessions import clean_session

from pkv_lint.batch import Batch, lint_files
from pkv_lint.fixes.documents import Document, Documents
from pkv_lint.fixes.fixing import fixed
from pkv_lint.linting import load_rules
from pkv_lint.prompt.renderer import Renderer

BLOCK = 16
RENDERER, RULES = Renderer.load(), load_rules()
FIXABLE = (
    *("clock", "identifier", "counter", "notes", "shuffled", "added tool", "removed tool", "schema keys"),
    *("arguments", "result in JSON"),
)


@pytest.mark.parametrize("kind", FIXABLE)
def test_a_planted_fault_is_mended(kind: str) -> None:
    mended = 0
    for seed in range(40):
        rng = random.Random(f"{kind} {seed}")
        bodies = clean_session(rng, rng.randint(3, 6))
        wanted = hits(lint(documents_of(bodies)))
        try:
            sent = PLANTS[kind](rng, bodies).bodies
        except LookupError:
            continue  # this session has no place for it
        got = hits(fixed(lint, documents_of(sent), unsafe=True).batch)
        # Lines that moved into the messages make prompts longer, and are reused as well.
        assert all(hit >= clean - BLOCK for hit, clean in zip(got, wanted, strict=True)), (seed, got, wanted)
        mended += 1
        if mended == 2:
            return
    pytest.fail("there is no session that this fault can be planted into")


def documents_of(bodies: list[dict[str, Any]]) -> Documents:
    text = "\n".join(json.dumps({"session_id": "s", "request": body}) for body in bodies)
    return Documents("stdin", {"stdin": Document.of(text.encode())})


def lint(version: Documents) -> Batch:
    return lint_files(["-"], RULES, lambda line: RENDERER, lambda _: BLOCK, zone=UTC, now=NOW, source=version.source)


def hits(batch: Batch) -> list[int]:
    return [item.hit for report in batch.reports for item in report.facts.replayed]
