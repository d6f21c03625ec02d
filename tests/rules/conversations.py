"""Small traffic to lint: conversations whose every part can be made to change from turn to turn."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from pkv_lint.findings import Finding
from pkv_lint.linting import Report, lint_traffic
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.traffic import read_requests

Line = dict[str, Any]
Message = dict[str, Any]

RULES = """1. Read the question twice before you look anything up.
2. Prefer the tools to your memory whenever both could answer.
3. Say plainly when something cannot be found out.
4. Never promise a refund that the policy does not give.
5. Keep answers short unless the user asks for detail.
6. Quote the part of the manual that an answer rests on.
7. Ask back when a question can be read in two ways.
8. Do not repeat what the user already knows.
9. Write numbers with their units.
10. Close with the next step that the user can take."""
QUESTIONS = "How do I start?|And after that?|Which part comes first?|Is that safe?|What does it cost?|Who can help me?"


@cache
def renderer(chat_template: str | None = None, vllm_args: str | None = None) -> Renderer:
    """The built-in layout, or the built-in vocabulary under another template."""
    return Renderer.load(chat_template=chat_template, vllm_args=vllm_args)


def question(turn: int) -> str:
    questions = QUESTIONS.split("|")
    return f"{questions[turn % len(questions)]} ({turn})"


def history(turn: int, topic: str = "") -> list[Message]:
    """The messages of a turn (0 is the first) without the system prompt."""
    messages: list[Message] = []
    for past in range(turn):
        messages.append({"role": "user", "content": topic + question(past)})
        messages.append({"role": "assistant", "content": f"Take step {past} of the manual, then tell me what you see."})
    return [*messages, {"role": "user", "content": topic + question(turn)}]


def prompt(line: str = "", place: int = 1) -> str:
    """A system prompt of some 180 tokens with a line of its own in it (0: the first one, -1: the last)."""
    lines = ["You are Tern, and you help the people who use our machines.", *RULES.split("\n")]
    if line:
        lines.insert(place if place >= 0 else len(lines), line)
    return "\n".join(lines)


def conversation(
    system: Callable[[int], str | list[Message]] | str,
    *,
    turns: int | Iterable[int] = 4,
    session: str | None = "s1",
    topic: str = "",
    **fields: Any,
) -> list[Line]:
    """The requests of one conversation. `system` is its system prompt (or all messages in front of the history),
    `fields` are further fields of the body; each may be a function of the turn."""
    lines = []
    for turn in range(turns) if isinstance(turns, int) else turns:
        front = system(turn) if callable(system) else system
        front = [{"role": "system", "content": front}] if isinstance(front, str) else front
        body = {"model": "m", "messages": [*front, *history(turn, topic)]}
        for name, value in fields.items():
            value = value(turn) if callable(value) else value
            if value is not None:
                body[name] = value
        lines.append({"request": body} if session is None else {"session_id": session, "request": body})
    return lines


def alone(body: dict[str, Any]) -> list[Line]:
    return [{"request": {"model": "m", **body}}]


def single(line: str, place: int = 1, **fields: Any) -> list[Line]:
    """One request with a line in its system prompt."""
    return alone({"messages": [{"role": "system", "content": prompt(line, place)}, *history(2)], **fields})


def tool(name: str, description: str = "", /, **properties: Any) -> dict[str, Any]:
    given = properties or {"path": {"type": "string", "description": "Where to look."}, "limit": {"type": "integer"}}
    parameters = {"type": "object", "properties": given, "required": list(given)}
    return {
        "type": "function",
        "function": {"name": name, "description": description or f"Does {name}.", "parameters": parameters},
    }


def report(lines: Sequence[Line], **settings: Any) -> Report:
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    result = lint_traffic(read_requests(io.BytesIO(text.encode()), name="traffic.jsonl"), renderer(**settings))
    assert not result.unusable, result.unusable
    return result


def lint(lines: Sequence[Line], **settings: Any) -> list[Finding]:
    """All findings of all rules."""
    return list(report(lines, **settings).findings)


def loud(findings: Iterable[Finding]) -> list[Finding]:
    """What a user has to look at: warnings and errors."""
    return [finding for finding in findings if finding.at_least("warning")]


def codes(findings: Iterable[Finding]) -> list[str]:
    return [finding.code for finding in loud(findings)]


def value_at(lines: Sequence[Line], finding: Finding) -> Any:
    """What a finding points at: the characters of its span, or the whole value."""
    from pkv_lint.prompt.source import parse_path

    assert finding.request is not None and finding.path is not None
    value: Any = lines[finding.request]["request"]
    for step in parse_path(finding.path):
        value = value[step]
    return value[slice(*finding.span)] if finding.span else value
