"""PKV101: dates and times in front of cacheable text."""

# ruff: noqa: RUF001 (the letters of other alphabets are meant)

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from .conversations import (
    Line,
    Message,
    alone,
    codes,
    conversation,
    history,
    lint,
    loud,
    prompt,
    renderer,
    single,
    tool,
    value_at,
)

START = datetime(2026, 11, 29, 14, 5, 2)
ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")


def at(turn: int, step: float = 97) -> datetime:
    return START + timedelta(seconds=turn * step)


def epoch(turn: int, step: float = 97) -> int:
    return 1_795_961_102 + int(turn * step)


# A line of the system prompt at each turn; what it shows of the time stands between the brackets.
CLOCKS: dict[str, Callable[[int], str]] = {
    "iso": lambda n: f"Current time: [{at(n):%Y-%m-%d %H:%M:%S}]",
    "iso with T and offset": lambda n: f"now = [{at(n).isoformat()}+02:00]",
    "rfc 2822": lambda n: f"It is [{at(n):%a, %d %b %Y %H:%M:%S} +0000] at the server.",
    "ctime": lambda n: f"Started [{at(n):%a %b %d %H:%M:%S %Y}]",
    "us, twelve hours": lambda n: f"Today is [{at(n):%A, %B %d, %Y at %I:%M:%S %p}].",
    "javascript": lambda n: f"local: [{at(n):%m/%d/%Y, %I:%M:%S\u202f%p}]",
    "compact": lambda n: f"Stamp [{at(n):%Y%m%dT%H%M%SZ}]",
    "file name": lambda n: f"log of [{at(n):%Y-%m-%d_%H-%M-%S}]",
    "german": lambda n: f"Heute ist Sonntag, der [{at(n):%d. November %Y, %H:%M} Uhr].",
    "german with dots": lambda n: f"Stand: [{at(n):%d.%m.%Y} um {at(n):%H.%M} Uhr]",
    "french": lambda n: f"Nous sommes le [{at(n):%d novembre %Y à %Hh%M}].",
    "spanish": lambda n: f"Hoy es [{at(n):%d de noviembre de %Y, %H:%M}].",
    "portuguese": lambda n: f"Agora: [{at(n):%d/%m/%Y às %H:%M}]",
    "italian": lambda n: f"Adesso: [{at(n):%d novembre %Y, alle ore %H:%M}]",
    "dutch": lambda n: f"Nu: [{at(n):%d november %Y om %H:%M} uur]",
    "russian": lambda n: f"Сейчас [{at(n):%d ноября %Y г., %H:%M}].",
    "polish": lambda n: f"Teraz: [{at(n):%d listopada %Y, %H:%M}]",
    "turkish": lambda n: f"Saat: [{at(n):%d Kasım %Y %H:%M}]",
    "chinese": lambda n: f"现在是[{at(n):%Y年%m月%d日 %H时%M分%S秒}]。",
    "japanese": lambda n: f"現在時刻は[{at(n):%Y年%m月%d日 午後%I:%M}]です。",
    "japanese era": lambda n: f"本日 [令和8年11月29日 {at(n):%H時%M分}]",
    "korean": lambda n: f"지금은 [{at(n):%Y년 %m월 %d일 오후 %I시 %M분}]입니다.",
    "arabic digits": lambda n: f"الوقت الآن: [{at(n):%Y-%m-%d %H:%M}]".translate(ARABIC),
    "unix seconds": lambda n: f"[{epoch(n)}]",
    "unix milliseconds": lambda n: f"ctx: [{epoch(n)}417] ready",
    "unix nanoseconds": lambda n: f"t=[{epoch(n)}417000123]",
    "unix with fraction": lambda n: f"seed [{epoch(n)}.417]",
    "hour and minute": lambda n: f"(as of [{at(n):%H:%M}])",
    "in a tag": lambda n: f"<env><when>[{at(n):%d-%b-%Y %H:%M}]</when></env>",
}


def cut(line: str) -> tuple[str, str]:
    """The line without its brackets, and what stood between them."""
    before, _, rest = line.partition("[")
    inner, _, after = rest.partition("]")
    return before + inner + after, inner


@pytest.mark.parametrize("name", CLOCKS)
def test_names_a_clock_in_any_notation(name: str) -> None:
    lines = conversation(lambda turn: prompt(cut(CLOCKS[name](turn))[0]))
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.severity, finding.path) == ("PKV101", "error", "messages[0].content")
    assert (finding.request, finding.requests_affected) == (1, 3)
    shown, stamp = value_at(lines, finding), cut(CLOCKS[name](1))[1]
    assert stamp in shown and len(shown) <= len(stamp) + 12, (shown, stamp)


def now(turn: int) -> str:
    return f"{at(turn):%Y-%m-%d %H:%M:%S}"


PLACES: dict[str, tuple[list[Line], str]] = {
    "part of a content list": (
        conversation(
            lambda n: [
                {
                    "role": "system",
                    "content": [{"type": "text", "text": "You are Tern."}, {"type": "text", "text": prompt(now(n))}],
                }
            ]
        ),
        "messages[0].content[1].text",
    ),
    "developer message": (
        conversation(lambda n: [{"role": "developer", "content": prompt(f"clock {now(n)}", 5)}]),
        "messages[0].content",
    ),
    "second system message": (
        conversation(lambda n: [{"role": "system", "content": prompt()}, {"role": "system", "content": now(n)}]),
        "messages[1].content",
    ),
    "description of a tool": (
        conversation(prompt(), tools=lambda n: [tool("book", f"Books a table. It is {now(n)}."), tool("cancel")]),
        "tools[0].function.description",
    ),
    "deep in a schema": (
        conversation(
            prompt(),
            tools=lambda n: [
                tool("book", when={"type": "object", "properties": {"day": {"description": f"After {now(n)}."}}})
            ],
        ),
        "tools[0].function.parameters.properties.when.properties.day.description",
    ),
    "first user message, written anew each turn": (
        [
            {
                "session_id": "s",
                "request": {
                    "model": "m",
                    "messages": [
                        {"role": "system", "content": prompt()},
                        {"role": "user", "content": f"<env>{now(n)}</env> Fix the build, please."},
                        {"role": "assistant", "content": "I will look at the log of the last run first."},
                        *history(n),
                    ],
                },
            }
            for n in range(4)
        ],
        "messages[1].content",
    ),
    "only from the fortieth turn on": (
        conversation(lambda n: prompt("at " + ("2026-11-29 14:05:02" if n < 40 else now(n))), turns=range(36, 44)),
        "messages[0].content",
    ),
    "no session ids": (conversation(lambda n: prompt(now(n)), session=None), "messages[0].content"),
}


@pytest.mark.parametrize("name", PLACES)
def test_names_a_clock_wherever_it_hides(name: str) -> None:
    lines, path = PLACES[name]
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.path) == ("PKV101", path)
    assert str(value_at(lines, finding)).startswith("2026-11-29 1")


def test_template_arguments_are_read_too() -> None:
    template = "{{ stamp }}\n{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>"
    lines = conversation(prompt(), chat_template_kwargs=lambda n: {"stamp": now(n)})
    (finding,) = loud(lint(lines, chat_template=template))
    assert (finding.code, finding.path) == ("PKV101", "chat_template_kwargs.stamp")
    assert value_at(lines, finding) == now(1)


def test_says_how_often_it_breaks() -> None:
    lines = conversation(lambda n: prompt(now(n)))
    for turn, line in enumerate(lines):
        line["timestamp"] = (START + timedelta(minutes=20 * turn)).isoformat()
    (finding,) = loud(lint(lines))
    assert "changes in every request (to the second, 3.0 breaks per hour)" in finding.message


def test_says_how_often_a_day_where_it_is_seldom() -> None:
    lines = conversation(lambda n: prompt(f"Rendered 2026-11-2{n} 10:00:0{n}"))
    lines = [{"timestamp": n * 86400.0, **line} for n, line in enumerate(lines)]
    (finding,) = loud(lint(lines))
    assert "(to the second, 1.0 breaks per day)" in finding.message


def test_an_amount_of_money_is_no_date() -> None:
    (finding,) = loud(lint(conversation(lambda n: prompt(f"Budget: ${10 + n}.0{n + 4}. Spend less."))))
    assert finding.code == "PKV103"


def test_sessions_and_turns_are_told_apart() -> None:
    starts = {name: START + timedelta(minutes=7 * index) for index, name in enumerate("abcd")}
    lines = [
        line
        for name, start in starts.items()
        for line in conversation(prompt(f"Session started {start:%Y-%m-%d %H:%M}"), turns=3, session=name, topic=name)
    ]
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.requests_affected) == ("PKV101", 3)
    assert "from one conversation to the next" in finding.message and finding.evidence["within_conversation"] == []


@pytest.mark.parametrize("named", [True, False])
def test_a_date_that_changes_once_is_a_note(named: bool) -> None:
    lines = [
        line
        for session in "abc"
        for line in conversation(
            lambda n: prompt(f"Today is 2026-11-{28 if n < 2 else 29}."),
            session=session if named else None,
            topic=f"{session}: ",
        )
    ]
    (finding,) = [finding for finding in lint(lines) if finding.code == "PKV101"]
    assert finding.severity == "info"


def test_a_date_that_changes_in_every_turn_is_an_error() -> None:
    (finding,) = loud(lint(conversation(lambda n: prompt(f"Today is 2026-11-{20 + n}."))))
    assert (finding.code, finding.severity) == ("PKV101", "error")


SUSPECTS = {
    "Current time: 2026-11-29 14:05:33": ("warning", "2026-11-29 14:05:33"),
    "[2026-11-29T14:05:33Z] agent started": ("warning", "2026-11-29T14:05:33Z"),
    "Es ist jetzt 14:05 Uhr am 29.11.2026.": ("warning", "14:05 Uhr am 29.11.2026"),
    "Heure actuelle : 14h05": ("warning", "14h05"),
    "现在时间：2026年11月29日 14时05分": ("warning", "2026年11月29日 14时05分"),
    "ts=1795961133": ("warning", "1795961133"),
    "time: 14:05": ("warning", "14:05"),
    "Today is Sunday, 29 November 2026.": ("info", "Sunday, 29 November 2026"),
    "Date: 2026-11-29": ("info", "2026-11-29"),
}


@pytest.mark.parametrize("line", SUSPECTS)
def test_one_request_alone_is_judged_by_its_look(line: str) -> None:
    lines = single(line)
    (finding,) = [finding for finding in lint(lines) if finding.code == "PKV101"]
    severity, shown = SUSPECTS[line]
    assert (finding.severity, finding.path) == (severity, "messages[0].content")
    assert value_at(lines, finding) == shown


def asked_at(turn: int) -> list[Message]:
    return [{"role": "user", "content": f"({now(turn)}) Go on."}, {"role": "assistant", "content": "Done."}]


BIRTHDAYS = ["1984-03-02", "1999-11-30", "1971-06-14", "1990-01-21", "1962-08-08"]
# Traffic that only looks as if a clock were in it, and what is to be said instead.
LOOKALIKES: dict[str, tuple[list[Line], list[str]]] = {
    "frozen clock": (conversation(prompt("Current time: 2026-11-29 14:05:33")), []),
    "clock in the last user message": (
        [
            {
                "session_id": "s",
                "request": {
                    "model": "m",
                    "messages": [
                        {"role": "system", "content": prompt()},
                        *(message for past in range(n) for message in asked_at(past)),
                        asked_at(n)[0],
                    ],
                },
            }
            for n in range(4)
        ],
        [],
    ),
    "opening hours": (single("We are open from 9:00 to 17:30, on Sundays until 14:00."), []),
    "date of a policy": (single("This policy is effective 2024-05-15 15:00 EST."), []),
    "example in a tool": (
        single("", tools=[tool("book", "Takes ISO 8601, e.g. 2024-05-01T14:00:00Z."), tool("call")]),
        [],
    ),
    "default in a tool": (
        single("", tools=[tool("book", 'Time such as "14:00".', t={"default": "2024-05-01 14:00:00"})]),
        [],
    ),
    "numbers as large as Unix times": (single("Limits: 1690000000 and 1700000000, at most 1700000000123."), []),
    "nothing behind it": (alone({"messages": [{"role": "user", "content": "It is 2026-11-29 14:05:33 now."}]}), []),
    "behind all rules, before the question": (
        alone({"messages": [{"role": "system", "content": prompt("It is 14:05 now.", -1)}, *history(0)]}),
        [],
    ),
    "knowledge cutoff": (single("Knowledge cutoff: 2024-06-01. Released 2024-11-20."), []),
    "port": (conversation(lambda n: prompt(f"Server at localhost:{8080 + n}.")), ["PKV103"]),
    "version": (conversation(lambda n: prompt(f"Client v2.14.{5 + n}.")), ["PKV103"]),
    "address": (conversation(lambda n: prompt(f"Host 10.12.14.{20 + n}.")), ["PKV103"]),
    "place in a file": (conversation(lambda n: prompt(f"Cursor at main.py:12:{30 + n}.")), ["PKV103"]),
    "ten digits that jump": (
        conversation(lambda n: prompt(f"Ticket no. {[1712345678, 1500000001, 1998765432, 1623456789][n]}.")),
        ["PKV103"],
    ),
    "birthdays of users": (
        [
            line
            for n, day in enumerate(BIRTHDAYS)
            for line in conversation(prompt(f"The user was born on {day}."), turns=2, session=f"s{n}", topic=f"{n}")
        ],
        ["PKV104"],
    ),
    "the model's name": (
        conversation(lambda n: prompt(f"Model: gpt-4o-2024-{['08-06', '11-20'][n % 2]}.")),
        ["PKV103"],
    ),
    "times in the history": (
        conversation(prompt(), topic="(asked on 2026-11-29 at 14:05:33) "),
        [],
    ),
    "two requests of unlike systems": (
        [*single("Now: 2026-11-29 14:05:33"), *single("Now: 2026-11-29 14:05:33")],
        [],
    ),
}


@pytest.mark.parametrize("name", LOOKALIKES)
def test_stays_silent_on_what_only_looks_like_a_clock(name: str) -> None:
    lines, instead = LOOKALIKES[name]
    findings = lint(lines)
    assert codes(findings) == instead, [(finding.code, finding.message) for finding in findings]
    assert "PKV101" not in [finding.code for finding in findings if finding.severity != "info"]


def test_the_cost_is_what_a_frozen_clock_would_win() -> None:
    """Against a replay of its own: token by token, with the clock of the request before."""
    lines = conversation(lambda n: prompt(now(n)), turns=6)
    frozen = conversation(lambda n: prompt(now(max(0, n - 1))), turns=6)
    ids = [list(renderer().render(line["request"]).token_ids) for line in lines]
    undone = [list(renderer().render(line["request"]).token_ids) for line in frozen]

    def hit(prompt_ids: list[int], earlier: list[list[int]]) -> int:
        shared = [
            next((i for i, (a, b) in enumerate(zip(prompt_ids, one, strict=False)) if a != b), len(one))
            for one in earlier
        ]
        return min(max(shared, default=0), len(prompt_ids) - 1) // 16 * 16

    lost = sum(hit(undone[n], ids[:n]) - hit(ids[n], ids[:n]) for n in range(1, 6))
    (finding,) = loud(lint(lines))
    assert finding.tokens_lost == lost > 0
