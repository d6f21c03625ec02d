"""Templates that write HTML entities for characters of the request."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..prompt.origin import Origin
from ..turns import Turn
from .trials import Trials

ENTITIES = ("&amp;", "&lt;", "&gt;", "&#39;", "&#34;")
"""What markupsafe writes."""
MAKES_MARKUP = re.compile(r"\|\s*(?:safe|e|escape|forceescape|xmlattr|urlize)\b")
"""Filters without which no template escapes anything."""


@dataclass(frozen=True, slots=True)
class Escaped:
    """A character of the request, at `path` and `span` of the body's chat form, that came out as `entity`.

    `filter` is the one that made markup of some text, `template_line` where it stands.
    """

    turn: Turn
    path: str
    span: tuple[int, int]
    entity: str
    filter: str
    template_line: int


def find_entities(trials: Trials) -> Escaped | None:
    for turn in trials.shapes:
        source = trials.source(turn)
        makes = MAKES_MARKUP.search(source)
        if makes is None or not any(entity in (turn.prompt.text or "") for entity in ENTITIES):
            continue
        prompt = trials.own(turn)
        for origin in prompt.origins if prompt is not None else ():
            entity = (turn.prompt.text or "")[origin.start : origin.end]
            if is_entity(origin, entity):
                name = makes[0].lstrip("| \t\n")
                line = source.count("\n", 0, makes.start()) + 1
                return Escaped(turn, origin.source.where, (origin.offset, origin.offset + 1), entity, name, line)
    return None


def is_entity(origin: Origin, text: str) -> bool:
    """Whether one character of a value was written as an entity. Entities that the request itself holds are copied
    character by character."""
    return origin.kind == "value" and not origin.linear and text in ENTITIES
