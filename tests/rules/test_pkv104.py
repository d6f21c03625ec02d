"""PKV104: text about one user in front of what all users share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conversations import Line, codes, conversation, lint, loud, prompt, tool, value_at

NAMES = ["Ana Ruiz", "Bo Lind", "Cem Aydin", "Dora Weiss", "Eli Stone"]
CITIES = ["Berlin", "Lyon", "Porto", "Turin", "Gent"]
PLANS = ["Free", "Pro", "Team", "Free", "Pro"]


def sessions(
    system: Callable[[int], str], count: int = 4, turns: int = 3, named: bool = True, **fields: object
) -> list[Line]:
    return [
        line
        for n in range(count)
        for line in conversation(
            system(n), turns=turns, session=f"s{n}" if named else None, topic=f"Case {n}. ", **fields
        )
    ]


USERS: dict[str, Callable[[int], str]] = {
    "name": lambda n: f"You talk to {NAMES[n]}.",
    "name and plan in one line": lambda n: f"User: {NAMES[n]} (plan {PLANS[n]}, {CITIES[n]})",
    "profile of lines": lambda n: f"Name: {NAMES[n]}\nCity: {CITIES[n]}\nPlan: {PLANS[n]}",
    "profile in json": lambda n: f'{{"name": "{NAMES[n]}", "city": "{CITIES[n]}", "age": {31 + 9 * n}}}',
    "customer number": lambda n: f"Customer number {4711 + 713 * n}",
    "language": lambda n: f"Answer in {['German', 'French', 'Portuguese', 'Italian'][n]}.",
    "permissions": lambda n: f"Allowed: {', '.join(['read', 'write', 'pay', 'close'][: n + 1])}",
    "german": lambda n: f"Der Kunde heißt {NAMES[n]} und wohnt in {CITIES[n]}.",
    "japanese": lambda n: f"お客様は{['田中', '鈴木', '佐藤', '高橋'][n]}様です。",
    "arabic": lambda n: f"اسم العميل: {['سلمى', 'كريم', 'ليلى', 'عمر'][n]}",
    "birthday": lambda n: f"Born {['1984-03-02', '1962-11-30', '1991-06-14', '1970-01-21'][n]}",
    "a long description": lambda n: (
        f"{NAMES[n]} writes from {CITIES[n]} and " + f"has asked {n + 2} times about the pump, " * 6
    ),
    "notes of several lines": lambda n: "Known:\n" + "\n".join(f"- {CITIES[n]} fact {k * (n + 3)}" for k in range(4)),
}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("name", USERS)
def test_names_the_text_of_a_user(name: str, named: bool) -> None:
    lines = sessions(lambda n: prompt(USERS[name](n)), named=named)
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.severity, finding.path) == ("PKV104", "warning", "messages[0].content")
    assert finding.requests_affected == 3 and finding.evidence["within_conversation"] == []


def test_points_at_the_name() -> None:
    lines = sessions(lambda n: prompt(f"You talk to {NAMES[n]}."))
    (finding,) = loud(lint(lines))
    assert value_at(lines, finding) == NAMES[1]


def test_places_far_apart_are_one_finding() -> None:
    lines = sessions(lambda n: prompt(f"You talk to {NAMES[n]}.\n{prompt()}\nThe plan is {PLANS[n]}.", 2))
    (finding,) = loud(lint(lines))
    assert finding.code == "PKV104"


def test_costs_only_what_is_shared_behind() -> None:
    lines = sessions(lambda n: prompt(f"You talk to {NAMES[n]}."))
    (finding,) = loud(lint(lines))
    assert 3 * 96 <= finding.tokens_lost <= 3 * 256


SILENT: dict[str, tuple[list[Line], list[str]]] = {
    "the same user": (sessions(lambda n: prompt("You talk to Ana Ruiz.")), []),
    "one session": (conversation(prompt("You talk to Ana Ruiz."), session="s"), []),
    "at the end of the prompt": (sessions(lambda n: prompt(f"You talk to {NAMES[n]}.", -1)), []),
    "two lines at the end": (sessions(lambda n: prompt(f"Name: {NAMES[n]}\nCity: {CITIES[n]}", -1)), []),
    "in the first user message": (
        [
            line
            for n in range(4)
            for line in conversation(prompt(), session=f"s{n}", topic=f"I am {NAMES[n]} from {CITIES[n]}. ")
        ],
        [],
    ),
    "changes in the session": (conversation(lambda n: prompt(f"Focus of this turn: {NAMES[n]}")), ["PKV103"]),
    "an identifier": (
        sessions(lambda n: prompt(f"Session 3f2504e0-4f89-41d3-9a0c-0305e82c330{n}")),
        ["PKV102"],
    ),
    "a start time": (sessions(lambda n: prompt(f"Started 2026-11-29 14:0{n}:07")), ["PKV101"]),
    "unlike agents": (
        [
            *conversation(prompt(), session="a"),
            *conversation("You turn sentences into questions.\nOne line each, no more.", session="b", topic="B "),
            *conversation("Name the animal.\nAnswer with one word.", session="c", topic="C "),
        ],
        [],
    ),
    "edited once": (
        sessions(lambda n: prompt("You talk to guests." if n < 3 else "You talk to members."), count=6),
        [],
    ),
    "own tools, same prompt in front": (
        sessions(lambda n: prompt(), turns=2, tools=[tool("look_up")]),
        [],
    ),
    "only the salt differs": (sessions(lambda n: prompt(), turns=2, cache_salt="tenant"), []),
}


@pytest.mark.parametrize("name", SILENT)
def test_stays_silent_where_users_share_what_they_can(name: str) -> None:
    lines, instead = SILENT[name]
    findings = lint(lines)
    assert codes(findings) == instead, [(finding.code, finding.message) for finding in findings]
