"""A prompt cut up for reading: by block, and by the part of the request that it was printed from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pkv_lint.prompt.origin import Origin
from pkv_lint.prompt.prompt import Prompt
from pkv_lint.prompt.source import format_path, parse_path

ROLE = re.compile(r"(?:messages|input)\[\d+\]\.role")


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
    """Neighbouring runs that were printed from one part of the request, or by the template, taken together. Tokens that
    lie across two sections count for the first; a run without a token of its own goes with what is in front of it."""
    starts = [start for start, _ in prompt.token_spans]
    token = 0
    held: Part | None = None
    for _, runs in groupby(prompt.origins, key=lambda origin: "template" if is_frame(origin) else part_of(origin)):
        own = tuple(runs)
        first = token
        while token < len(starts) and starts[token] < own[-1].end:
            token += 1
        if held is not None and token == first:
            held = Part(held.first, held.end, held.start, own[-1].end, (*held.origins, *own))
            continue
        if held is not None:
            yield held
        held = Part(first, token, own[0].start, own[-1].end, own)
    if held is not None:
        yield held


def is_frame(origin: Origin) -> bool:
    """Whether a run only holds the parts together: text of the template, and the role of a message."""
    return origin.kind == "template" or (origin.kind == "value" and ROLE.fullmatch(origin.source.where) is not None)


def part_of(origin: Origin) -> str:
    """The part of the request that a run belongs to, such as `messages[0].content` or `tools[3]`; for text that is not
    from the request, its kind."""
    if origin.path is None:
        return origin.kind
    steps = parse_path(origin.path)
    if steps[:1] == ("tools",):
        return format_path(steps[:2])
    length = 1
    while length < len(steps) and (length < 3 or isinstance(steps[length], int)):
        length += 1
    return format_path(steps[:length])


def names(origins: Sequence[Origin], body: Mapping[str, Any] | None) -> list[str]:
    """What runs were printed from, in order and each once; with the span where all is from one string. What only frames
    the parts is named where there is nothing else."""
    held = [origin for origin in origins if not is_frame(origin)]
    if not held:
        roles = [part_of(origin) for origin in origins if origin.kind == "value"]
        return [*template_lines(origins), *dict.fromkeys(roles)]
    found = list(dict.fromkeys(map(part_of, held)))
    if len({origin.source for origin in held}) == 1 and held[0].source.where == found[0]:
        return [f"{described(found[0], body)} {span(held)}"]
    return [described(name, body) for name in found]


def template_lines(origins: Sequence[Origin]) -> list[str]:
    """`template line 3`, `template lines 3-9`, or special tokens by name, such as `template bos_token`; empty for runs
    that are not from the template."""
    places = [origin.source.where for origin in origins if origin.kind == "template"]
    lines = sorted(int(place[5:]) for place in places if place.startswith("line "))
    if not lines:
        return [f"template {place}" for place in dict.fromkeys(places)]
    return [f"template line {lines[0]}" if lines[0] == lines[-1] else f"template lines {lines[0]}-{lines[-1]}"]


def span(origins: Sequence[Origin]) -> str:
    """`[start:end]` of the decoded string that the runs show a piece of."""
    last = origins[-1]
    return f"[{origins[0].offset}:{last.offset + (last.end - last.start if last.linear else 1)}]"


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
