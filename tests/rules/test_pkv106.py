"""PKV106: shared text behind the point where requests part."""

from __future__ import annotations

import random
from typing import Any

import pytest

from .conversations import Line, lint, loud, prompt, tool, value_at

WORDS = [
    "pump",
    "valve",
    "cover",
    "screw",
    "oil",
    "filter",
    "press",
    "turn",
    "slowly",
    "until",
    "light",
    "stops",
    "the",
    "a",
]


def text(seed: int, lines: int = 24, words: int = 11) -> str:
    """Some lines that no other seed gives."""
    rng = random.Random(seed)
    return "\n".join(f"{seed}.{line} " + " ".join(rng.choice(WORDS) for _ in range(words)) for line in range(lines))


MANUAL = text(1)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def system(content: str = "") -> dict[str, Any]:
    return {"role": "system", "content": content or prompt()}


def request(*messages: dict[str, Any], session: str | None = None, **fields: Any) -> Line:
    line: Line = {"request": {"model": "m", "messages": list(messages), **fields}}
    return line if session is None else {"session_id": session, **line}


def question(n: int) -> str:
    return f"Case {n}: which screw do I have to turn?"


EXAMPLES = [
    user(f"Example: {text(50, 3)}"),
    assistant("Yes."),
    user(f"Example: {text(51, 3)}"),
    assistant("No."),
    user(text(52, 3)),
]

FOUND: dict[str, list[Line]] = {
    "manual behind the question": [request(system(), user(f"{question(n)}\n\n{MANUAL}")) for n in range(4)],
    "manual in a message of its own": [
        request(system(), user(question(n)), user(MANUAL), session=f"s{n}") for n in range(4)
    ],
    "manual in a part of its own": [
        request(system(), user([{"type": "text", "text": question(n)}, {"type": "text", "text": MANUAL}]))
        for n in range(4)
    ],
    "no system prompt": [request(user(f"{question(n)}\n{MANUAL}")) for n in range(4)],
    "between question and closing words": [
        request(system(), user(f"{question(n)}\n{MANUAL}\nThank you, {n}!")) for n in range(4)
    ],
    "two manuals in turn": [request(system(), user(f"{question(n)}\n{text(1 + n % 2)}")) for n in range(6)],
    "sent again with every turn": [
        request(
            system(),
            *(message for past in range(n) for message in (user(f"{question(past)}\n{MANUAL}"), assistant("Turn it."))),
            user(f"{question(n)}\n{MANUAL}"),
            session="s",
        )
        for n in range(4)
    ],
    "examples behind the history": [
        request(system(), user(question(n)), assistant(f"Take number {n}."), *EXAMPLES, user("And now?"))
        for n in range(4)
    ],
    "with sessions": [request(system(), user(f"{question(n)}\n\n{MANUAL}"), session=f"s{n}") for n in range(4)],
    "with tools in front": [
        request(system(), user(f"{question(n)}\n\n{MANUAL}"), tools=[tool("look_up"), tool("order")]) for n in range(4)
    ],
    "a system message behind the history": [
        request(
            system(),
            user(question(n)),
            assistant(text(200 + n, 2)),
            system(MANUAL),
            user(f"Go on, {n}."),
            session=f"s{n}",
        )
        for n in range(4)
    ],
}


@pytest.mark.parametrize("name", FOUND)
def test_names_shared_text_that_stands_too_far_behind(name: str) -> None:
    lines = FOUND[name]
    findings = lint(lines)
    assert not loud(findings), [(finding.code, finding.message) for finding in findings]
    (finding,) = [finding for finding in findings if finding.code == "PKV106"]
    assert finding.severity == "info" and finding.tokens_lost > 128
    first = lines[0]["request"]["messages"]
    assert (
        str(value_at(lines, finding)) in str([message["content"] for message in first]).replace("\\n", "\n")
        or "turn" in name
    )


def test_points_at_the_text_and_counts_what_moving_it_wins() -> None:
    lines = FOUND["manual behind the question"]
    (finding,) = [finding for finding in lint(lines) if finding.code == "PKV106"]
    assert (finding.request, finding.path, finding.requests_affected) == (1, "messages[1].content", 3)
    assert value_at(lines, finding) == MANUAL
    moved = [request(system(), user(f"{MANUAL}\n\n{question(n)}")) for n in range(4)]
    assert not [finding for finding in lint(moved) if finding.code == "PKV106"]
    assert abs(finding.tokens_lost - (cached(moved) - cached(lines))) <= 3 * 16


def cached(lines: list[Line]) -> int:
    from .conversations import report

    return report(lines).cached_tokens


SILENT: dict[str, list[Line]] = {
    "manual in front of the question": [request(system(), user(f"{MANUAL}\n\n{question(n)}")) for n in range(4)],
    "manual in the system prompt": [request(system(prompt(MANUAL)), user(question(n))) for n in range(4)],
    "a history that goes on": [
        request(
            system(),
            user(f"{question(0)}\n{MANUAL}"),
            *(message for past in range(n) for message in (assistant("Turn it."), user(f"And then, {past}?"))),
            session="s",
        )
        for n in range(4)
    ],
    "other manuals": [request(system(), user(f"{question(n)}\n{text(10 + n)}")) for n in range(4)],
    "a short text": [request(system(), user(f"{question(n)}\n{text(1, 4)}")) for n in range(4)],
    "results of a tool": [
        request(
            system(),
            user(question(n)),
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": MANUAL},
            tools=[tool("look_up")],
        )
        for n in range(4)
    ],
    "replies of the model": [
        request(system(), user(question(n)), assistant(MANUAL), user("Shorter, please.")) for n in range(4)
    ],
    "one request": [request(system(), user(f"{question(0)}\n{MANUAL}\n{question(0)}\n{MANUAL}"))],
    "the same request again": [request(system(), user(f"{question(0)}\n{MANUAL}")) for _ in range(4)],
    "behind a clock": [
        request(system(prompt(f"Now: 2026-11-29 14:0{n}:33")), user(f"{question(n)}\n{MANUAL}"), session="s")
        for n in range(4)
    ],
    "under unlike systems": [
        request(
            system(["Translate.", prompt(), "Count the words of it.\nOne number.", "List all\nnouns"][n]), user(MANUAL)
        )
        for n in range(4)
    ],
    "lines that many texts have": [
        request(
            system(),
            user(f"{question(n)}\n" + "\n".join(f"{text(100 + 9 * n + k, 2)}\n## Next part" for k in range(8))),
        )
        for n in range(4)
    ],
}


@pytest.mark.parametrize("name", SILENT)
def test_stays_silent_where_nothing_would_be_won(name: str) -> None:
    findings = [finding for finding in lint(SILENT[name]) if finding.code == "PKV106"]
    assert not findings, findings
