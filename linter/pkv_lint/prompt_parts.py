"""A prompt cut up for reading: by block, and by the part of the request that it was printed from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from .prompt.origin import Origin
from .prompt.prompt import Prompt
from .prompt.source import format_path, parse_path


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a prompt: tokens `[first, end)`, their characters `[start, stop)`, and the runs in it."""

    first: int
    end: int
    start: int
    stop: int
    origins: tuple[Origin, ...]


def blocks(prompt: Prompt, size: int) -> Iterator[Part]:
    """The KV-cache blocks of `size` tokens; the last may be shorter (it is never reused)."""
    spans = prompt.token_spans
    for first in range(0, len(prompt.token_ids), size):
        own = [span for span in spans[first : first + size] if span[0] < span[1]]
        start, stop = (own[0][0], max(end for _, end in own)) if own else (0, 0)
        yield Part(first, min(first + size, len(spans)), start, stop, prompt.origins_between(start, stop))


def sections(prompt: Prompt) -> Iterator[Part]:
    """Neighbouring runs that were printed from one part of the request (a message's content, a tool), or from the
    template, taken together. Tokens that lie across two sections count for the first."""
    starts = [start for start, _ in prompt.token_spans]
    token = 0
    for _, runs in groupby(prompt.origins, key=part_of):
        own = tuple(runs)
        first = token
        while token < len(starts) and starts[token] < own[-1].end:
            token += 1
        yield Part(first, token, own[0].start, own[-1].end, own)


def part_of(origin: Origin) -> str:
    """The part of the request that a run belongs to, such as `messages[0].content` or `tools[3]`; for text that is not
    from the request, its kind."""
    if origin.path is None:
        return origin.kind
    steps = parse_path(origin.path)
    if steps[0] == "tools":
        return format_path(steps[:2])
    length = 1
    while length < len(steps) and (length < 3 or isinstance(steps[length], int)):
        length += 1
    return format_path(steps[:length])


def names(origins: Sequence[Origin], body: Mapping[str, Any] | None) -> list[str]:
    """What runs were printed from, in order and each once. The template's own words are left out where there is
    anything else, spans are given where all is from one string."""
    found = {part_of(origin): None for origin in origins}
    if len(found) > 1:
        found.pop("template", None)
    if list(found) == ["template"]:
        return [template_lines(origins)]
    span = value_span([origin for origin in origins if origin.kind != "template"]) if len(found) == 1 else ""
    return [described(name, body) + span for name in found]


def template_lines(origins: Sequence[Origin]) -> str:
    """`template line 3`, `template lines 3-9`, or the name of a special token such as `bos_token`."""
    lines = sorted({int(o.source.where[5:]) for o in origins if o.source.where.startswith("line ")})
    if not lines:
        return f"template {origins[0].source.where}".rstrip()
    return f"template line {lines[0]}" if len(lines) == 1 else f"template lines {lines[0]}-{lines[-1]}"


def value_span(origins: Sequence[Origin]) -> str:
    """` [start:end]` of the decoded string, where the runs show one piece of one string."""
    if len({origin.source for origin in origins}) != 1 or origins[0].kind != "value":
        return ""
    last = origins[-1]
    return f" [{origins[0].offset}:{last.offset + (last.end - last.start if last.linear else 1)}]"


def described(name: str, body: Mapping[str, Any] | None) -> str:
    """A part with what a person knows it by: the role of a message, the name of a tool."""
    value: Any = body
    known = ""
    try:
        for step in parse_path(name):
            value = value[step]
            if isinstance(value, Mapping):
                named = value.get("role") or value.get("name") or (value.get("function") or {}).get("name")
                known = named if isinstance(named, str) else known
    except (LookupError, TypeError, ValueError, AttributeError):
        pass
    return f"{name} ({known})" if known else name
