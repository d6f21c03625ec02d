"""A rendered prompt, for a person and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from pkv_lint.columns import fitting, padded, terminal_columns, visible, width
from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.origin import Kind, Origin
from pkv_lint.prompt.prompt import Prompt
from pkv_lint.prompt_parts import Part, blocks, names, part_of, sections

COLOURS: Mapping[Kind, str] = {
    "value": "green",
    "key": "blue",
    "syntax": "blue",
    "template": "bright_black",
    "clock": "red",
    "computed": "yellow",
}
LEGEND: Mapping[Kind, str] = {
    "value": "text of the request",
    "key": "its keys and JSON syntax",
    "template": "chat template",
    "clock": "clock",
    "computed": "worked out by the template",
}
FROM_WIDTH = 46


def legend() -> str:
    return "  ".join(click.style(meaning, fg=COLOURS[kind]) for kind, meaning in LEGEND.items())


def text_of(prompt: Prompt) -> str:
    """Raises RenderError where there is no text."""
    if prompt.text is None:
        raise RenderError("the server makes the ids of this prompt without a text (see --show ids)")
    return prompt.text


def coloured(prompt: Prompt) -> str:
    """The prompt as a terminal shows it, coloured by origin. Control characters are only shown."""
    text = text_of(prompt)
    return "".join(styled(text, origin) for origin in prompt.origins)


def styled(text: str, origin: Origin) -> str:
    lines = text[origin.start : origin.end].split("\n")
    return "\n".join(click.style(visible(line), fg=COLOURS[origin.kind]) if line else "" for line in lines)


def block_lines(prompt: Prompt, size: int, body: Mapping[str, Any] | None) -> Iterator[str]:
    """One line per block: its index, its tokens, what they were printed from, and their text."""
    yield row("block", "tokens", "from", "text", bold=True)
    for index, part in enumerate(blocks(prompt, size)):
        yield row(f"{index:,}", tokens_of(part), ", ".join(names(part.origins, body)), excerpt(prompt, part))


def section_lines(prompt: Prompt, body: Mapping[str, Any] | None) -> Iterator[str]:
    """One line per part of the request (or stretch of template text), in the order of the prompt."""
    text_of(prompt)
    yield row("chars", "tokens", "from", "text", bold=True)
    for part in sections(prompt):
        yield row(f"{part.start:,}", tokens_of(part), ", ".join(names(part.origins, body)), excerpt(prompt, part))


def row(index: str, tokens: str, source: str, text: str, *, bold: bool = False) -> str:
    return click.style(f"{index:>7}  {tokens:>13}  {padded(source, FROM_WIDTH)}  ", bold=bold) + text


def tokens_of(part: Part) -> str:
    """First and last token; `-` for text within a token that began in front of it."""
    return f"{part.first:,}-{part.end - 1:,}" if part.end > part.first else "-"


def excerpt(prompt: Prompt, part: Part) -> str:
    """The text of a part in one line that fits the terminal, coloured by origin; of a longer one, both ends."""
    room = max(20, terminal_columns(140) - FROM_WIDTH - 27)
    if prompt.text is None:
        return padded(" ".join(map(str, prompt.token_ids[part.first : part.end])), room).rstrip()
    text = prompt.text[part.start : part.stop]
    if width(text) <= room:
        return pieces(prompt, part.start, part.stop)
    head = part.start + fitting(text, room * 2 // 3)
    tail = part.stop - fitting(text[::-1], room - room * 2 // 3 - 3)
    return f"{pieces(prompt, part.start, head)} … {pieces(prompt, tail, part.stop)}"


def pieces(prompt: Prompt, start: int, stop: int) -> str:
    text = prompt.text or ""
    return "".join(
        click.style(visible(text[origin.start : origin.end]), fg=COLOURS[origin.kind])
        for origin in prompt.origins_between(start, stop)
    )


def as_json(prompt: Prompt, show: str, size: int) -> Any:
    """What a program gets of one prompt: a string, a list of ids, or a list of objects."""
    if show == "ids":
        return prompt.token_ids.tolist()
    if show == "text":
        return text_of(prompt)
    if show == "blocks":
        return [block_object(prompt, index, part) for index, part in enumerate(blocks(prompt, size))]
    text = text_of(prompt)
    return [origin_object(text, origin) for origin in prompt.origins]


def block_object(prompt: Prompt, index: int, part: Part) -> dict[str, Any]:
    return {
        "block": index,
        "first_token": part.first,
        "tokens": part.end - part.first,
        "start": part.start,
        "end": part.stop,
        "origins": list(dict.fromkeys(map(part_of, part.origins))),
        "text": None if prompt.text is None else prompt.text[part.start : part.stop],
    }


def origin_object(text: str, origin: Origin) -> dict[str, Any]:
    return {
        "start": origin.start,
        "end": origin.end,
        "kind": origin.kind,
        "path": origin.path,
        "where": origin.source.where,
        "offset": origin.offset,
        "linear": origin.linear,
        "text": text[origin.start : origin.end],
    }


def headline(prompt: Prompt, size: int) -> str:
    """`1,291 tokens in 81 blocks of 16`, and whether that is approximate."""
    count = len(prompt.token_ids)
    about = "about " if prompt.approximate else ""
    blocks = -(-count // size)
    return f"{about}{count:,} token{'s'[: count != 1]} in {blocks:,} block{'s'[: blocks != 1]} of {size:,}"
