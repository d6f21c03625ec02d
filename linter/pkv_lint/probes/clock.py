"""Templates that print the time of the server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pkv_lint.changes import role
from pkv_lint.probes.next_turn import gone_on
from pkv_lint.probes.trials import Chat, Trials, with_argument
from pkv_lint.prompt.origin import Origin
from pkv_lint.prompt.prompt import Prompt
from pkv_lint.turns import Turn

Granularity = Literal["fraction", "second", "minute", "hour", "day", "week", "month", "year"]

NOON = datetime(2026, 6, 15, 6, 30, 30, 500_000)
"""A Monday. No step below carries into the next larger unit."""
LATER = datetime(2027, 7, 24, 19, 41, 41, 250_000)
"""A Saturday that differs in every unit."""
STEPS: tuple[tuple[Granularity, timedelta], ...] = (
    ("fraction", timedelta(milliseconds=1)),
    ("second", timedelta(seconds=1)),
    ("minute", timedelta(minutes=1)),
    ("hour", timedelta(hours=1)),
    ("hour", timedelta(hours=12)),
    ("day", timedelta(days=1)),
    ("week", timedelta(days=7)),
    ("month", timedelta(days=31)),
    ("year", timedelta(days=366)),
)
ABOUT_TIME = re.compile("date|time|today|now|clock|day")
PINNED = "26 Jul 2024"
TESTED = re.compile(r"strftime_now\s+is\s+(?:not\s+)?defined")


@dataclass(frozen=True, slots=True)
class Clock:
    """A prompt that shows the time.

    `text` is what was printed ("" where that cannot be told), `granularity` its finest unit, `template_line` the line
    of the template that printed it (None: no template did). `variable` is the template argument that replaces it,
    `setting` the server's; `only_by_default` says that a system message of one's own does. `assumed` says that the
    template asks whether there is a clock (`strftime_now`) and prints a constant, or nothing, without one.
    """

    turn: Turn
    text: str
    granularity: Granularity
    template_line: int | None = None
    variable: str | None = None
    setting: str | None = None
    only_by_default: bool = False
    assumed: bool = False


def find_clock(trials: Trials) -> Clock | None:
    """The clock of the first request that shows one in front of something it sends."""
    if trials.named and trials.renderer.mode == "harmony":
        return clock_of_encoder(trials)
    for turn in trials.shapes:
        if "strftime_now" in trials.variables(turn):
            found = clock_in(trials, turn, turn.chat) or clock_in(trials, turn, gone_on(turn.chat))
            if found is not None:
                return found
    return None


def clock_of_encoder(trials: Trials) -> Clock | None:
    """gpt-oss prompts carry the date unless the server was given one."""
    turn = next((turn for turn in trials.turns if turn.chat["messages"]), None)
    if turn is None or not differs(trials, turn.chat, LATER):
        return None
    return Clock(turn, "", granularity(trials, turn.chat), setting="VLLM_SYSTEM_START_DATE")


def clock_in(trials: Trials, turn: Turn, chat: Chat | None) -> Clock | None:
    if chat is None or not differs(trials, chat, LATER):
        return None
    prompt = trials.own(turn) if chat is turn.chat else trials.render(chat, turn.now)
    if prompt is None:
        return None
    printed = next((origin for origin in prompt.origins if origin.kind == "clock"), None)
    if printed is not None and not any(o.kind == "value" and o.start >= printed.end for o in prompt.origins):
        return None
    names = sorted(name for name in trials.variables(turn) if ABOUT_TIME.search(name) and name != "strftime_now")
    own_system = with_system(chat)
    return Clock(
        turn,
        text_at(prompt, printed),
        granularity(trials, chat),
        template_line=line_near(prompt.origins, printed),
        variable=next((name for name in names if not differs(trials, with_argument(chat, name, PINNED), LATER)), None),
        only_by_default=own_system is not None and not differs(trials, own_system, LATER),
        assumed=TESTED.search(trials.source(turn)) is not None,
    )


def differs(trials: Trials, chat: Chat, then: datetime) -> bool:
    """Whether a prompt is another one at another time."""
    one, other = trials.render(chat, NOON), trials.render(chat, then)
    return one is not None and other is not None and (one.text != other.text or one.token_ids != other.token_ids)


def granularity(trials: Trials, chat: Chat) -> Granularity:
    return next((unit for unit, step in STEPS if differs(trials, chat, NOON + step)), "year")


def with_system(chat: Chat) -> Chat | None:
    """The request with a system message of its own; None where it has one."""
    messages: list[Any] = chat["messages"]
    if any(role(message) in ("system", "developer") for message in messages):
        return None
    return {**chat, "messages": [{"role": "system", "content": "You are helpful."}, *messages]}


def text_at(prompt: Prompt, printed: Origin | None) -> str:
    """What the clock printed, where it did so in several pieces all of them up to the last on the same line."""
    if printed is None or prompt.text is None:
        return ""
    end = prompt.text.find("\n", printed.start)
    last = [o for o in prompt.origins if o.kind == "clock" and printed.start <= o.start < (end if end >= 0 else o.end)]
    return prompt.text[printed.start : last[-1].end]


def line_near(origins: Sequence[Origin], printed: Origin | None) -> int | None:
    """The line of the template that printed next to the clock, in front of it if it did."""
    if printed is None:
        return None
    lines = [origin for origin in origins if origin.kind == "template" and origin.source.where.startswith("line ")]
    near = min(
        lines,
        key=lambda origin: (max(printed.start - origin.end, origin.start - printed.end), origin.start > printed.start),
        default=None,
    )
    return int(near.source.where.removeprefix("line ")) if near is not None else None
