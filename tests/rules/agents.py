"""Conversations and agent runs whose history a client can spoil: the messages of a run, and how much of it each request
sends."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .conversations import Line, Message, prompt, tool

WORDS = (
    "anchor basin copper delta ember fabric garnet hollow island jasper kettle lantern marble needle "
    "orchard pebble quarry ribbon saddle timber umber velvet willow yarrow zephyr beacon cinder drift "
    "eddy fathom gravel harbour inlet juniper knot lichen meadow nettle oxbow plover quill rudder sedge "
    "thistle upland vesper wharf "
)
TOOLS = [tool("grep_repo"), tool("list_dir"), tool("read_file"), tool("run_command")]
Change = Callable[[list[Message], int], list[Message]]


def prose(seed: object, words: int = 45) -> str:
    rng = random.Random(str(seed))
    return " ".join(rng.choices(WORDS.split(), k=words)).capitalize() + "."


def user(text: Any) -> Message:
    return {"role": "user", "content": text}


def assistant(text: Any, *calls: Message, **more: Any) -> Message:
    return {"role": "assistant", "content": text, **({"tool_calls": list(calls)} if calls else {}), **more}


def call(seed: object, name: str = "read_file") -> Message:
    number = random.Random(f"id {seed}").randrange(10**8, 10**9)
    arguments = {"path": f"src/{prose(seed, 1)[:-1].lower()}.py", "limit": number % 97, "note": prose(seed, 6)}
    return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def result(made: Message, text: str) -> Message:
    return {"role": "tool", "tool_call_id": made["id"], "content": text}


@dataclass(frozen=True)
class Run:
    """`messages` without a system prompt; request i sends the first `cuts[i]` of them."""

    messages: list[Message]
    cuts: list[int]

    def sent(
        self,
        change: Change | None = None,
        *,
        session: str | None = "s",
        system: str | None = None,
        tools: Sequence[Any] | None = None,
        completions: Callable[[Message], str] | None = None,
        **fields: Any,
    ) -> list[Line]:
        """The requests; `change` is what a client makes of the messages of one (its number comes with them).
        `completions` writes a reply as the model would have generated it."""
        lines = []
        front = [] if system == "" else [{"role": "system", "content": system or prompt()}]
        for turn, cut in enumerate(self.cuts):
            messages = copy.deepcopy(self.messages[:cut])
            if change is not None:
                messages = change(messages, turn)
            body = {"model": "m", "messages": [*front, *messages], **fields}
            if tools:
                body["tools"] = list(tools)
            line: Line = {"request": body} if session is None else {"session_id": session, "request": body}
            if completions is not None and cut < len(self.messages):
                line["completion"] = completions(self.messages[cut])
            lines.append(line)
        return lines


def chat(turns: int, topic: str = "") -> Run:
    """Questions and answers."""
    messages: list[Message] = []
    cuts = []
    for turn in range(turns):
        messages.append(user(prose(f"{topic}u{turn}", 30)))
        cuts.append(len(messages))
        messages.append(assistant(prose(f"{topic}a{turn}")))
    return Run(messages, cuts)


def agent(turns: int, steps: int = 2, *, reasoning: bool = False, topic: str = "") -> Run:
    """Questions, each answered after some calls of tools."""
    messages: list[Message] = []
    cuts = []
    for turn in range(turns):
        messages.append(user(prose(f"{topic}u{turn}", 30)))
        for step in range(steps):
            cuts.append(len(messages))
            seed = f"{topic}{turn}.{step}"
            thought = {"reasoning_content": prose(f"r{seed}", 30)} if reasoning else {}
            made = call(seed)
            messages.append(assistant(prose(f"t{seed}", 8), made, **thought))
            messages.append(result(made, prose(f"o{seed}", 60)))
        cuts.append(len(messages))
        thought = {"reasoning_content": prose(f"R{topic}{turn}", 30)} if reasoning else {}
        messages.append(assistant(prose(f"{topic}a{turn}"), **thought))
    return Run(messages, cuts)
