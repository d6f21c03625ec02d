"""docs/server.md names every field that is honoured or refused."""

from __future__ import annotations

import re
from pathlib import Path

from pkv_engine.server.bodies import REFUSED, ChatBody, CompletionBody

PAGE = (Path(__file__).parents[3] / "docs" / "server.md").read_text(encoding="utf-8")


def named(start: str, end: str) -> set[str]:
    part = PAGE[PAGE.index(start) : PAGE.index(end)]
    return {name for name in re.findall(r"`(\w+)`", part)}


def test_fields() -> None:
    assert {*ChatBody.model_fields, *CompletionBody.model_fields} - {"prompt"} <= named("Honoured by", "Defaults are")
    assert set(REFUSED) == named("Refused with 400", "Values that change nothing") - {"none", "auto"}
