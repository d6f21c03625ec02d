"""Templates that write HTML entities for characters of the request."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from pkv_lint.probes.trials import Trials
from pkv_lint.prompt.origin import Origin
from pkv_lint.turns import Turn

ENTITIES = ("&amp;", "&lt;", "&gt;", "&#39;", "&#34;")
"""What markupsafe writes."""
MAKES_MARKUP = re.compile(r"(?:\||\bfilter)\s*(safe|e|escape|forceescape|xmlattr|urlize)\b")
"""Filters without which no template escapes anything."""


@dataclass(frozen=True, slots=True)
class Escaped:
    """A character that came out as `entity`: one of the request, at `path` (and `span`, where it is part of a string)
    of the body's chat form, or of the template's own text (`path` None).

    `filter` is the one that made markup of some text, `template_line` where it stands, `requests` counts the prompts
    that show the entity without having been sent it.
    """

    turn: Turn
    path: str | None
    span: tuple[int, int] | None
    entity: str
    filter: str
    template_line: int
    requests: int


def find_entities(trials: Trials) -> Escaped | None:
    for turn in trials.shapes:
        source = trials.source(turn)
        makes = MAKES_MARKUP.search(source)
        if makes is None or not any(entity in (turn.prompt.text or "") for entity in ENTITIES):
            continue
        prompt = trials.own(turn)
        given = json.dumps(turn.chat, ensure_ascii=False) + source
        for origin in prompt.origins if prompt is not None else ():
            entity = entity_of(origin, (turn.prompt.text or "")[origin.start : origin.end], given)
            if entity is not None:
                line = source.count("\n", 0, makes.start()) + 1
                span = (origin.offset, origin.offset + 1) if origin.kind == "value" else None
                return Escaped(turn, origin.path, span, entity, makes[1], line, showing(trials, entity))
    return None


def entity_of(origin: Origin, text: str, given: str) -> str | None:
    """The entity that one character was written as. Those that stand in the request or the template (`given`) are
    copied character by character; of text whose way is not known, only entities that nobody gave are meant."""
    if origin.kind == "computed":
        return next((entity for entity in ENTITIES if entity in text and entity not in given), None)
    return text if not origin.linear and text in ENTITIES else None


def showing(trials: Trials, entity: str) -> int:
    return sum(entity in (turn.prompt.text or "") and entity not in turn.line.text for turn in trials.templated) or 1
