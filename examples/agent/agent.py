"""A support agent with one mistake: the time stands at the top of its prompt, so nothing behind it is ever reused.

It talks to any server with Chat Completions; what it says does not matter here, what it sends does.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import httpx

HANDBOOK = """You help guests of Larch Lodge, a mountain hotel with 42 rooms, a restaurant and a ski school.

# How you work
Look everything up with the tools; never answer from memory. Say in one sentence what you are about to change and
what it costs before you change it. Answer in the guest's language and in at most five sentences. If a guest asks
for something that the house rules do not allow, name the rule and offer what comes nearest.

# Rooms
Doubles face the valley and cost 140 a night in summer and 190 in winter, breakfast included. Family rooms have two
bedrooms and cost 220 and 290. Single rooms face the forest and cost 90 and 120. Children under six stay free of
charge in their parents' room, children under fourteen pay half. Dogs are welcome on the ground floor for 15 a night
and stay out of the restaurant. Rooms are ready at three in the afternoon and are left by eleven; a later check-out
is free until noon where nobody follows, and costs half a night until six.

# Changes and cancellations
A stay can be moved free of charge until seven days before it begins, later for 30 per room. Cancelled until
fourteen days before, a stay costs nothing; until three days before, one night; later, half of all nights. Groups of
five rooms and more agree on terms of their own and are passed on to the reception.

# Restaurant
Breakfast is served from seven to half past ten, dinner from six to nine. Half board costs 38 a day for adults and
19 for children. Tables for guests of the house are kept until a quarter past the time that they are booked for.
Allergies are noted with the booking and told to the kitchen by noon of the same day.

# Ski school
Courses run from Monday to Friday, ten to noon and two to four. Beginners meet at the practice slope, others at the
valley station. Five days cost 210, a single day 55; equipment costs 28 a day. Lessons are held in snow and light
wind, and paid back where the lifts stand still. Children are taken from the age of four.

# Getting here
The shuttle meets the trains of ten past eleven, ten past two and twenty past five; it is free, and seats are to be
booked. Snow chains are needed on the last three kilometres from November to April. The car park is free, charging
costs 0.45 per kilowatt hour.
"""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {argument: {"type": "string", "description": about} for argument, about in arguments},
                "required": [argument for argument, _ in arguments],
            },
        },
    }
    for name, description, arguments in (
        ("find_booking", "Find a stay by its number or by the guest's name.", [("query", "number or name")]),
        (
            "free_rooms",
            "Rooms that are free.",
            [("arrival", "ISO date"), ("departure", "ISO date"), ("kind", "of room")],
        ),
        ("change_booking", "Move or cancel a stay.", [("number", "of the stay"), ("change", "what to change")]),
        ("book_table", "Book a table.", [("number", "of the stay"), ("time", "ISO 8601"), ("guests", "how many")]),
        ("book_course", "Book a ski course.", [("number", "of the stay"), ("name", "of the pupil"), ("days", "which")]),
    )
]

GUESTS = {
    "LL-2071": [
        "Hello, I have booked two doubles from the 12th. Can we come a day earlier?",
        "Good. We are bringing our dog, is that all right?",
        "And we would like a table for four on the first evening, at seven.",
        "My daughter is eight. Which ski course would suit her?",
        "Please book her for five days, with equipment.",
        "When does the shuttle leave from the station?",
    ],
    "LL-2093": [
        "Is a family room free over new year?",
        "What would half board cost for the four of us, for six days?",
        "One of us must not eat nuts. Whom do I tell?",
        "If it snows so much that the lifts stand still, do we get our course fees back?",
        "Fine, then please book it.",
        "Can we leave our car charging overnight?",
    ],
}


def system_prompt(now: datetime, *, fixed: bool) -> str:
    return HANDBOOK if fixed else f"It is {now:%A, %d %B %Y, %H:%M:%S}.\n\n{HANDBOOK}"


def user_message(text: str, now: datetime, *, fixed: bool) -> str:
    """The fix: the time comes last, and stays where it was said when the conversation goes on."""
    return f"{text}\n\n(It is {now:%A, %d %B %Y, %H:%M:%S}.)" if fixed else text


def conversation(
    client: httpx.Client, model: str, questions: list[str], clock: Iterator[datetime], *, fixed: bool
) -> None:
    """Answer a guest's questions one after the other."""
    history: list[dict[str, Any]] = []
    for question in questions:
        now = next(clock)
        history.append({"role": "user", "content": user_message(question, now, fixed=fixed)})
        messages = [{"role": "system", "content": system_prompt(now, fixed=fixed)}, *history]
        body = {"model": model, "messages": messages, "tools": TOOLS, "max_tokens": 24, "temperature": 0}
        reply = client.post("/v1/chat/completions", json=body).raise_for_status().json()
        history.append({"role": "assistant", "content": reply["choices"][0]["message"]["content"]})


def run(base_url: str, model: str, *, fixed: bool) -> None:
    """Answer all guests. The clock is made up, so that every run sends the same."""
    clock = (datetime(2026, 12, 2, 9, 0) + timedelta(seconds=23 * step) for step in range(1000))
    with httpx.Client(base_url=base_url, timeout=120) as client:
        for questions in GUESTS.values():
            conversation(client, model, questions, clock, fixed=fixed)
