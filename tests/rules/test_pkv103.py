"""PKV103: other text that changes in front of cacheable text."""

# ruff: noqa: RUF001 (the letters of other alphabets are meant)

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conversations import Line, alone, codes, conversation, history, lint, loud, prompt, value_at

WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron"]


def word(turn: int) -> str:
    return WORDS[turn % len(WORDS)]


# A line of the system prompt at each turn; what changes stands between the brackets.
VALUES: dict[str, Callable[[int], str]] = {
    "counter": lambda n: f"Steps left: [{40 - 3 * n}]",
    "counter without a key": lambda n: f"([{n + 1}]/20)",
    "budget": lambda n: f"You may still use [{12_000 - 731 * n:,}] tokens.",
    "percentage": lambda n: f"Context used: [{11 + 7 * n}] %",
    "checksum": lambda n: f"x-build: v=2; sum=[{['eb6c6', '04fd1', '9a2b7', 'c3310'][n % 4]}]",
    "branch": lambda n: f"Git branch: [{word(n)}]",
    "status": lambda n: f"Git status: [{n + 1} files changed, {7 * n + 2} insertions]",
    "folder": lambda n: f"Working directory: /home/ana/[{word(n)}]",
    "mood": lambda n: f"The user seems [{['calm', 'annoyed', 'glad', 'tired'][n % 4]}].",
    "focus in json": lambda n: f'{{"focus": "[{word(n)}]", "v": 1}}',
    "in a tag": lambda n: f"<env><shell>[{['bash', 'zsh', 'fish', 'sh'][n % 4]}]</shell></env>",
    "german": lambda n: f"Verbleibende Versuche: [{9 - n}]",
    "french": lambda n: f"Il reste [{30 - n}] essais.",
    "russian": lambda n: f"[{30 - n}] попыток осталось.",
    "chinese": lambda n: f"剩余次数：[{30 - n}]。",
    "weather": lambda n: f"Weather: [{12 + n} °C] and dry",
}


def cut(line: str) -> tuple[str, str]:
    before, _, rest = line.partition("[")
    inner, _, after = rest.partition("]")
    return before + inner + after, inner


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize(("place", "severity"), [(0, "error"), (9, "warning")])
def test_names_a_value_that_changes(name: str, place: int, severity: str) -> None:
    lines = conversation(lambda turn: prompt(cut(VALUES[name](turn))[0], place))
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.severity, finding.path) == ("PKV103", severity, "messages[0].content")
    assert finding.requests_affected == 3
    shown = value_at(lines, finding)
    assert shown in cut(VALUES[name](1))[1] or cut(VALUES[name](1))[1] in shown


def message(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


PLACES: dict[str, tuple[list[Line], str]] = {
    "part of a content list": (
        conversation(
            lambda n: [
                {
                    "role": "system",
                    "content": [
                        {"type": "text", "text": "Tern."},
                        {"type": "text", "text": prompt(f"Focus: {word(n)}")},
                    ],
                }
            ]
        ),
        "messages[0].content[1].text",
    ),
    "developer message": (
        conversation(lambda n: [message("developer", prompt(f"Focus: {word(n)}", 5))]),
        "messages[0].content",
    ),
    "second system message": (
        conversation(lambda n: [message("system", prompt()), message("system", f"Focus on {word(n)}.")]),
        "messages[1].content",
    ),
    "a system message that comes and goes": (
        conversation(
            lambda n: [message("system", prompt())] + ([message("system", "Be quick.")] if n % 2 else []),
        ),
        "messages[1]",
    ),
    "only from the fortieth turn on": (
        conversation(lambda n: prompt(f"Focus: {word(max(39, n))}"), turns=range(36, 44)),
        "messages[0].content",
    ),
    "requests without sessions": (
        [
            line
            for n in range(4)
            for line in conversation(prompt(f"Focus: {word(n)}"), turns=1, session=None, topic=f"{n} ")
        ],
        "messages[0].content",
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_names_a_value_wherever_it_hides(name: str) -> None:
    lines, path = PLACES[name]
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.path) == ("PKV103", path)


def test_template_arguments_count() -> None:
    template = "{{ mode }}\n{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>"
    lines = conversation(prompt(), chat_template_kwargs=lambda n: {"mode": word(n)})
    (finding,) = loud(lint(lines, chat_template=template))
    assert (finding.code, finding.path, finding.severity) == ("PKV103", "chat_template_kwargs.mode", "error")


def test_two_values_are_two_findings() -> None:
    lines = conversation(lambda n: prompt(f"Focus: {word(n)}\n{'Some rule that stays. ' * 6}\nSteps left: {40 - n}", 4))
    findings = sorted(loud(lint(lines)), key=lambda finding: finding.span or (0, 0))
    assert [(finding.code, value_at(lines, finding)) for finding in findings] == [("PKV103", "birch"), ("PKV103", "39")]


def sessions(system: Callable[[int], str], count: int = 4, turns: int = 2) -> list[Line]:
    return [
        line
        for n in range(count)
        for line in conversation(system(n), turns=turns, session=f"s{n}", topic=f"Case {n}. ")
    ]


# Traffic in which nothing volatile stands in front, and what is to be said instead.
LOOKALIKES: dict[str, tuple[list[Line], list[str]]] = {
    "constant": (conversation(prompt("Steps left: 40")), []),
    "in the last user message": (
        [
            {"request": {"model": "m", "messages": [message("system", prompt()), message("user", f"Focus: {word(n)}")]}}
            for n in range(4)
        ],
        [],
    ),
    "in every user message, and kept": (conversation(prompt(), topic="Focus: amber. "), []),
    "sampling": (
        conversation(prompt(), temperature=lambda n: 0.1 * n, seed=lambda n: n, max_tokens=lambda n: 10 + n, user=word),
        [],
    ),
    "argument that no template prints": (conversation(prompt(), chat_template_kwargs=lambda n: {"mode": word(n)}), []),
    "at the end, before other questions": (sessions(lambda n: prompt(f"Focus: {word(n)}", -1), turns=1), []),
    "one per user": (sessions(lambda n: prompt(f"Focus: {word(n)}")), ["PKV104"]),
    "one per conversation without ids": (
        [line for n in range(4) for line in conversation(prompt(f"Focus: {word(n)}"), session=None, topic=f"{n} ")],
        ["PKV104"],
    ),
    "edited once": (sessions(lambda n: prompt("Be brief." if n < 3 else "Be kind."), count=6), []),
    "other agents": (
        [
            *conversation(prompt("Steps left: 3"), session="a"),
            *conversation("Translate what you are given into French.", session="b", topic="T "),
            *conversation("You write titles of two words.", session="c", topic="S "),
        ],
        [],
    ),
    "two lines and more": (
        conversation(lambda n: prompt("Git status:\n" + "\n".join(f" M {word(n + k)}.py" for k in range(3)))),
        ["PKV105"],
    ),
    "key order": (
        [
            {"session_id": "s", "request": dict(reversed(line["request"].items())) if n % 2 else line["request"]}
            for n, line in enumerate(conversation(prompt()))
        ],
        [],
    ),
    "a retry": (conversation(prompt(), turns=[0, 1, 1, 1, 2]), []),
    "a branch": ([*conversation(prompt()), *conversation(prompt(), turns=[2])], []),
    "one request": (alone({"messages": [message("system", prompt("Steps left: 40")), *history(2)]}), []),
}


@pytest.mark.parametrize("name", LOOKALIKES)
def test_stays_silent_where_nothing_in_front_is_volatile(name: str) -> None:
    lines, instead = LOOKALIKES[name]
    findings = lint(lines)
    assert codes(findings) == instead, [(finding.code, finding.message) for finding in findings]
