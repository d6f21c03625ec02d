"""Several faults at once, and conversations that take turns: one finding for each cause."""

from __future__ import annotations

import random

import pytest

from . import test_pkv20x, test_pkv101, test_pkv102, test_pkv103, test_pkv105
from .conversations import Line, codes, conversation, lint, prompt, value_at

TEXTS = {
    "PKV101": (test_pkv101.CLOCKS, test_pkv101.cut),
    "PKV102": (test_pkv102.IDENTIFIERS, test_pkv102.cut),
    "PKV103": (test_pkv103.VALUES, test_pkv103.cut),
    "PKV105": (test_pkv105.CONTEXTS, lambda text: (text, text)),
}
TOOLS = {
    None: None,
    "PKV201": lambda turn: test_pkv20x.shuffled(turn + 1),
    "PKV203": lambda turn: test_pkv20x.kit()[: 4 + turn % 2],
    "PKV204": test_pkv20x.edited(test_pkv20x.DEFINITIONS["description"][0], 0),
    "PKV205": test_pkv20x.edited(test_pkv20x.KEYS["all keys reversed"], 0),
}


def paragraph(word: str) -> str:
    return "\n".join(f"{n}. {word} the line of rule {n} in mind when you answer about parts." for n in range(20, 26))


@pytest.mark.parametrize("seed", range(24))
def test_every_fault_of_a_conversation_is_found(seed: int) -> None:
    rng = random.Random(seed)
    texts = [(code, rng.choice(list(TEXTS[code][0]))) for code in rng.sample(list(TEXTS), 2)]
    places = sorted(rng.sample(range(1, 11), 2))
    tools = rng.choice(list(TOOLS))

    def system(turn: int) -> str:
        lines = prompt().split("\n")
        for (code, name), place, word in zip(texts[::-1], places[::-1], ("Keep", "Hold"), strict=True):
            forms, cut = TEXTS[code]
            lines[place:place] = [cut(forms[name](turn))[0], paragraph(word)]
        return "\n".join(lines)

    expected = [code for code, _ in texts] + ([tools] if tools else [])
    assert sorted(codes(lint(conversation(system, tools=TOOLS[tools])))) == sorted(expected)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("code", TEXTS)
def test_conversations_that_take_turns_share_a_finding(code: str, named: bool) -> None:
    forms, cut = TEXTS[code]
    for name in list(forms)[::4]:
        rng = random.Random(name)
        order = [session for session in range(4) for _ in range(3)]
        rng.shuffle(order)
        lines: list[Line] = []
        for step, session in enumerate(order):
            turn = order[:step].count(session)
            lines += conversation(
                prompt(cut(forms[name](step))[0], 4),
                turns=[turn],
                session=f"s{session}" if named else None,
                topic=f"Case {session}. ",
            )
        assert codes(lint(lines)) == [code], name


@pytest.mark.parametrize("line", ["Now {time}, user {name}.", "user={name} time={time}", "Hello {name}! It is {time}."])
def test_a_name_and_a_clock_in_one_line_are_two_faults(line: str) -> None:
    lines: list[Line] = []
    for step, name in enumerate(["Anna Berg", "Ben", "Cleo Diaz"]):
        for turn in range(3):
            system = prompt(line.format(name=name, time=f"2026-11-29 14:{step:02d}:{turn:02d}"), 4)
            lines += conversation(system, turns=[turn], session=f"s{step}", topic=f"Case {name}. ")
    found = lint(lines)
    assert sorted(codes(found)) == ["PKV101", "PKV104"]
    per_user = next(finding for finding in found if finding.code == "PKV104")
    assert "Ben" in value_at(lines, per_user)
