"""PKV105: retrieved text that is written anew in front of the history."""

# ruff: noqa: RUF001 (the letters of other alphabets are meant)

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from .conversations import Line, codes, conversation, lint, loud, prompt, value_at

NOTES = [
    "prefers answers in German",
    "complained about a loose rain cover",
    "pays by invoice at the end of the month",
    "asked twice about child seats",
    "rents the family bike on most weekends",
    "lives close to the harbour",
    "returned a helmet in May",
    "wants to be called before noon",
    "has a voucher from the spring fair",
    "speaks French with the shop in Lyon",
    "owns two folding bikes",
    "asked for the price of a trailer",
]
WORDS = ["the", "pump", "valve", "turns", "slowly", "while", "old", "oil", "rests", "under", "a", "green", "lid"]


def some(turn: int, count: int = 4) -> list[str]:
    return random.Random(turn).sample(NOTES, count)


def sentence(turn: int, words: int) -> str:
    rng = random.Random(turn)
    return " ".join(rng.choice(WORDS) for _ in range(words))


CONTEXTS: dict[str, Callable[[int], str]] = {
    "bullets": lambda n: "What you know:\n" + "\n".join(f"- {note}" for note in some(n)),
    "bullets, more and fewer": lambda n: "What you know:\n" + "\n".join(f"* {note}" for note in some(n, 3 + n % 4)),
    "numbered": lambda n: "Results:\n" + "\n".join(f"[{k}] {note}" for k, note in enumerate(some(n), 1)),
    "paragraphs": lambda n: "Documents:\n" + "\n\n".join(sentence(10 * n + k, 24) for k in range(3)),
    "one long line": lambda n: f"Summary so far: {sentence(n, 40)}.",
    "tags": lambda n: (
        "<docs>\n" + "\n".join(f"<doc id={k}>{sentence(9 * n + k, 18)}</doc>" for k in range(3)) + "\n</docs>"
    ),
    "table": lambda n: (
        "| order | state |\n" + "\n".join(f"| {n * 37 + k} | {sentence(7 * n + k, 3)} |" for k in range(5))
    ),
    "json": lambda n: "memory = [\n" + ",\n".join(f'  "{note}"' for note in some(n)) + "\n]",
    "dated notes": lambda n: (
        "Log:\n" + "\n".join(f"- [2026-1{k % 3}-0{1 + (n + k) % 9}] {note}" for k, note in enumerate(some(n)))
    ),
    "files": lambda n: "Open files:\n" + "\n".join(f"  src/{note.split(' ')[-1]}_{n}.py" for note in some(n)),
    "none at first": lambda n: "What you know:\n" + "\n".join(f"- {note}" for note in (some(n) if n else [])),
    "chinese": lambda n: (
        "资料："
        + "".join(random.Random(n).sample(list("泵阀盖油灯线轮轴钉板管壳漆胶布纸石木铁铜银金水火土风雨雪冰"), 28))
    ),
    "code": lambda n: "```\n" + "\n".join(f"def {w}_{n}(): return {n * 3}" for w in ("open", "shut", "turn")) + "\n```",
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_names_retrieved_text(name: str) -> None:
    lines = conversation(lambda n: prompt(CONTEXTS[name](n), 6))
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.severity, finding.path) == ("PKV105", "error", "messages[0].content")
    assert finding.requests_affected == 3
    assert str(value_at(lines, finding)).strip() in CONTEXTS[name](1)


def notes(turn: int) -> str:
    return "\n".join(f"- {note}" for note in some(turn))


PLACES: dict[str, tuple[list[Line], str]] = {
    "second system message": (
        conversation(lambda n: [{"role": "system", "content": prompt()}, {"role": "system", "content": notes(n)}]),
        "messages[1].content",
    ),
    "developer message": (
        conversation(lambda n: [{"role": "developer", "content": prompt(notes(n), 4)}]),
        "messages[0].content",
    ),
    "a message that is only sometimes there": (
        conversation(
            lambda n: (
                [{"role": "system", "content": prompt()}] + ([{"role": "system", "content": notes(n)}] if n % 2 else [])
            )
        ),
        "messages[1]",
    ),
    "part of a content list": (
        conversation(
            lambda n: [
                {"role": "system", "content": [{"type": "text", "text": prompt()}, {"type": "text", "text": notes(n)}]}
            ]
        ),
        "messages[0].content[1].text",
    ),
    "only from the fortieth turn on": (
        conversation(lambda n: prompt(notes(max(39, n))), turns=range(36, 44)),
        "messages[0].content",
    ),
    "no session ids": (conversation(lambda n: prompt(notes(n)), session=None), "messages[0].content"),
    "behind all rules": (conversation(lambda n: prompt(notes(n), -1)), "messages[0].content"),
}


@pytest.mark.parametrize("name", PLACES)
def test_names_retrieved_text_wherever_it_hides(name: str) -> None:
    lines, path = PLACES[name]
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.path) == ("PKV105", path)


def test_documents_of_the_request_count() -> None:
    template = (
        "{% for d in documents %}{{ d.text }}\n{% endfor %}"
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>"
    )
    lines = conversation(prompt(), documents=lambda n: [{"title": "t", "text": note} for note in some(n)])
    (finding,) = loud(lint(lines, chat_template=template))
    assert (finding.code, finding.path) == ("PKV105", "documents")


def with_notes(turn: int, kept: bool) -> Line:
    messages: list[dict[str, str]] = [{"role": "system", "content": prompt()}]
    for past in range(turn + 1):
        known = f"(known:\n{notes(past)})\n" if kept or past == turn else ""
        messages.append({"role": "user", "content": f"{known}Question {past}?"})
        messages.append({"role": "assistant", "content": f"Answer {past}."})
    return {"session_id": "s", "request": {"model": "m", "messages": messages[:-1]}}


SILENT: dict[str, tuple[list[Line], list[str]]] = {
    "constant notes": (conversation(prompt(notes(1))), []),
    "notes in the user messages, kept": ([with_notes(n, kept=True) for n in range(4)], []),
    "notes in the last user message, taken out again": ([with_notes(n, kept=False) for n in range(4)], ["PKV301"]),
    "one short line": (conversation(lambda n: prompt(f"Topic: {some(n)[0]}")), ["PKV103"]),
    "one word": (conversation(lambda n: prompt(f"Topic: {some(n)[0].split(' ')[-1]}")), ["PKV103"]),
    "notes of the user": (
        [
            line
            for n in range(4)
            for line in conversation(prompt(f"Known:\n{notes(n)}"), turns=2, session=f"s{n}", topic=f"{n} ")
        ],
        ["PKV104"],
    ),
    "times only": (
        conversation(lambda n: prompt("".join(f"Zone {z}: 2026-11-29 1{z}:0{n}:33\n" for z in range(4)).strip())),
        ["PKV101"],
    ),
    "single questions with documents at the end": (
        [
            line
            for n in range(4)
            for line in conversation(prompt(notes(n), -1), turns=1, session=None, topic=f"Case {n}: ")
        ],
        [],
    ),
    "another conversation in the session": (
        [*conversation(prompt()), *conversation("Summarise what follows in two lines.", turns=1, topic="T ")],
        [],
    ),
    "a long last message": (conversation(prompt(), topic=f"{sentence(3, 60)} "), []),
}


@pytest.mark.parametrize("name", SILENT)
def test_stays_silent_where_no_context_is_rewritten(name: str) -> None:
    lines, instead = SILENT[name]
    findings = lint(lines)
    assert sorted(set(codes(findings))) == instead, [(finding.code, finding.message) for finding in findings]
