"""PKV301: a history that was rewritten, and conversations that only branch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .agents import Change, Run, agent, assistant, call, chat, prose, result, user
from .conversations import Line, Message, codes, lint, loud, value_at

REMINDER = "\n<reminder>Answer in short sentences, and do not run commands before you have read the file.</reminder>"


def newest(change: Callable[[Message], Message]) -> Change:
    """The last message of each request is changed, older ones are sent as they are."""
    return lambda messages, turn: [*messages[:-1], change(messages[-1])]


def from_turn(first: int, change: Callable[[list[Message]], list[Message]]) -> Change:
    return lambda messages, turn: change(messages) if turn >= first else messages


def with_content(place: int, change: Callable[[Any], Any]) -> Callable[[list[Message]], list[Message]]:
    def apply(messages: list[Message]) -> list[Message]:
        return [{**m, "content": change(m["content"])} if at == place else m for at, m in enumerate(messages)]

    return apply


def without(*places: int) -> Callable[[list[Message]], list[Message]]:
    return lambda messages: [m for at, m in enumerate(messages) if at not in places]


def put_in(place: int, message: Message) -> Callable[[list[Message]], list[Message]]:
    return lambda messages: [*messages[:place], message, *messages[place:]]


def add(text: str) -> Callable[[Message], Message]:
    return lambda m: {**m, "content": m["content"] + text}


def old_results_cut(messages: list[Message], turn: int) -> list[Message]:
    """All but the newest results of tools are cut short."""
    results = [at for at, m in enumerate(messages) if m["role"] == "tool"]
    return [
        {**m, "content": m["content"][:60] + " [truncated]"} if at in results[:-2] else m
        for at, m in enumerate(messages)
    ]


def parts(text: str, *more: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": piece} for piece in (text, *more)]


def answers_only(messages: list[Message], turn: int) -> list[Message]:
    """Of the turns before the newest question, only questions and answers are kept."""
    last = max(at for at, m in enumerate(messages) if m["role"] == "user")
    return [m for at, m in enumerate(messages) if at >= last or not (m["role"] == "tool" or m.get("tool_calls"))]


def rolling_summary(messages: list[Message], turn: int) -> list[Message]:
    """All but the last three messages are summarised, anew in each request."""
    if len(messages) < 7:
        return messages
    return [user("Summary of what was said: " + prose(f"sum{turn}", 40)), *messages[-3:]]


def one_call_less(messages: list[Message]) -> list[Message]:
    """Of two calls made at once, the first and its result are dropped."""
    first = next(at for at, m in enumerate(messages) if len(m.get("tool_calls", ())) == 2)
    kept = {**messages[first], "tool_calls": messages[first]["tool_calls"][1:]}
    return [*messages[:first], kept, *messages[first + 2 :]]


def parallel_calls() -> Run:
    one, other = call("one"), call("other", "list_dir")
    messages = [
        user(prose("q")),
        assistant("", one, other),
        result(one, prose("r1", 60)),
        result(other, prose("r2", 60)),
        assistant(prose("a")),
        user(prose("q2")),
        assistant(prose("a2")),
        user(prose("q3")),
    ]
    return Run(messages, [1, 4, 6, 8])


FAULTS: dict[str, tuple[list[Line], str, int]] = {
    "a reminder at the end of the newest question": (chat(4).sent(newest(add(REMINDER))), "messages[1].content", 1),
    "a reminder behind tool results": (agent(2).sent(newest(add(REMINDER))), "messages[1].content", 1),
    "a reminder as a message of its own": (chat(4).sent(lambda m, t: [*m, user(REMINDER)]), "messages[2]", 1),
    "a reminder that says something else each time": (
        chat(4).sent(lambda m, t: [*m, user(f"{REMINDER} {t} files are open.")]),
        "messages[2]",
        1,
    ),
    "a system message at the end": (
        chat(4).sent(lambda m, t: [*m, {"role": "system", "content": REMINDER}]),
        "messages[2]",
        1,
    ),
    "a reminder as a part of its own": (
        chat(4).sent(newest(lambda m: user(parts(m["content"], REMINDER)))),
        "messages[1].content",
        1,
    ),
    "a long reminder behind a short question": (
        Run(
            [user("Go on."), assistant(prose(1)), user("Yes."), assistant(prose(2)), user("And then?")], [1, 3, 5]
        ).sent(newest(add(REMINDER * 4))),
        "messages[1].content",
        1,
    ),
    "one word, forty turns in": (
        chat(42).sent(from_turn(40, with_content(61, lambda text: text.replace(text.split()[3], "ochre", 1)))),
        "messages[62].content",
        40,
    ),
    "old results cut short": (agent(3).sent(old_results_cut), "messages[3].content", 4),
    "old results cleared once": (
        agent(3).sent(from_turn(6, with_content(2, lambda text: "[cleared]"))),
        "messages[3].content",
        6,
    ),
    "a message taken out": (chat(6).sent(from_turn(4, without(5))), "messages[6]", 4),
    "a turn taken out of the middle": (chat(8).sent(from_turn(6, without(6, 7))), "messages[7]", 6),
    "a message put in": (
        chat(6).sent(from_turn(4, put_in(3, user("What you should know: " + prose("memory"))))),
        "messages[4]",
        4,
    ),
    "a system message put into the middle": (
        chat(6).sent(from_turn(4, put_in(2, {"role": "system", "content": prose("note")}))),
        "messages[3]",
        4,
    ),
    "a part of a list taken out": (
        Run([user(parts(prose(1), prose(2))), *chat(4).messages], [1, 2, 4, 6]).sent(
            from_turn(2, with_content(0, lambda content: content[:1]))
        ),
        "messages[1].content",
        2,
    ),
    "a list of parts made a string without its second part": (
        Run(
            [user(parts(prose(1), prose(2))), assistant(prose(3)), user(prose(4)), assistant("x"), user("y")], [1, 3, 5]
        ).sent(from_turn(1, with_content(0, lambda content: content[0]["text"]))),
        "messages[1].content",
        1,
    ),
    "an answer trimmed once it is old": (
        Run(
            [user(prose(1)), assistant(prose(2) + "\n\n"), user(prose(3)), assistant("x"), user("y" * 99)], [1, 3, 5]
        ).sent(from_turn(2, with_content(1, str.strip))),
        "messages[2].content",
        2,
    ),
    "old questions marked": (
        chat(5).sent(
            lambda m, t: [{**x, "content": "(old) " + x["content"]} if at + 2 < len(m) else x for at, x in enumerate(m)]
        ),
        "messages[1].content",
        1,
    ),
    "one of two calls dropped": (parallel_calls().sent(from_turn(2, one_call_less)), "messages[2].tool_calls", 2),
    "another argument": (
        agent(2).sent(
            from_turn(
                4,
                lambda m: json.loads(json.dumps(m).replace("src/", "lib/")),
            )
        ),
        "messages[2].tool_calls[0].function.arguments",
        4,
    ),
    "a role changed": (
        chat(5).sent(from_turn(3, lambda m: [*m[:2], {**m[2], "role": "system"}, *m[3:]])),
        "messages[3]",
        3,
    ),
    "a summary made anew each time": (chat(9).sent(rolling_summary), "messages[1]", 3),
    "without sessions": (
        chat(6).sent(from_turn(4, with_content(3, str.upper)), session=None),
        "messages[4].content",
        4,
    ),
    "reminders, and a title asked for without them": (
        [
            *chat(4).sent(lambda m, t: [*m, user(REMINDER)])[:1],
            *chat(1).sent(system="You write titles of six words."),
            *chat(4).sent(lambda m, t: [*m, user(REMINDER)])[1:],
        ],
        "messages[2]",
        2,
    ),
    "steps of work left out once they are done": (agent(3).sent(answers_only), "messages[2]", 3),
    "the same without sessions": (agent(3).sent(answers_only, session=None), "messages[2]", 3),
    "two questions made one": (
        Run(
            [user(prose(1)), user(prose(2)), assistant(prose(3)), user(prose(4)), assistant("x"), user("z")], [2, 4, 6]
        ).sent(from_turn(1, lambda m: [user(m[0]["content"] + "\n" + m[1]["content"]), *m[2:]])),
        "messages[1]",
        1,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_rewritten_history_is_told(name: str) -> None:
    lines, path, request = FAULTS[name]
    findings = loud(lint(lines))
    assert [finding.code for finding in findings] == ["PKV301"], findings
    assert (findings[0].path or "").startswith(path), findings[0]
    assert findings[0].request == request
    assert findings[0].tokens_lost > 0


def branch(run: Run, keep: int, *rest: Message) -> Run:
    """Another end behind the first messages of a run."""
    return Run([*run.messages[:keep], *rest], [keep + len(rest)])


def interleaved(*runs: list[Line]) -> list[Line]:
    return [line for group in zip(*runs, strict=True) for line in group]


def few_shots(turn: int) -> list[Message]:
    return [message for at in range(4) for message in chat(1, topic=f"shot {(turn * 3 + at) % 9}").messages]


def sums(one: int, other: int) -> Run:
    """A conversation of which only the second request was recorded."""
    messages = [user(f"What is {one} + {one}?"), assistant(f"{2 * one}."), user(f"And {other} + {other}?")]
    return Run([*messages, assistant("")], [3] if one % 2 else [1])


def silent() -> dict[str, list[Line]]:
    talk, work = chat(5), agent(2)
    lines = talk.sent()
    other = agent(2, topic="other").sent(system="You review changes. " + prose("reviewer", 80))
    stopped = Run([*talk.messages[:4], assistant(talk.messages[5]["content"][:30])], [5])
    return {
        "a conversation": lines,
        "an agent": work.sent(),
        "the same request again": [line for line in lines for _ in range(2)],
        "another question instead of the last": [
            *lines[:3],
            *branch(talk, 4, user(prose("instead", 30))).sent(),
            *lines[3:],
        ],
        "a question taken back, two turns later": [
            *lines,
            *branch(talk, 2, user(prose("instead", 30))).sent(),
            *branch(talk, 2, user(prose("instead", 30)), assistant(prose("x")), user(prose("y"))).sent(),
        ],
        "samples with another answer and the same result": [
            *work.sent()[:1],
            *(
                branch(work, 1, assistant(prose(f"sample {n}", 8), call("0.0")), work.messages[2]).sent()[0]
                for n in range(4)
            ),
        ],
        "an answer at once, the second time it was asked": [
            *work.sent()[:2],
            *work.sent()[:1],
            *branch(work, 1, assistant(prose("at once")), user(prose("q"))).sent(),
        ],
        "two samples, one of which calls a tool": [
            *work.sent(n=2)[:2],
            *branch(work, 1, assistant(prose("at once")), user(prose("q"))).sent(),
        ],
        "a sub-agent with the whole history": [
            *lines[:3],
            *branch(talk, 5, user("You are a helper: look at the tests only.")).sent(),
            *branch(talk, 5, user("You are a helper: look at the tests only."), assistant("ok"), user("go")).sent(),
            *lines[3:],
        ],
        "a title asked for at the end": [
            *lines[:2],
            *branch(talk, 4, user("Give this conversation a title of five words.")).sent(),
            *lines[2:3],
            *branch(talk, 6, user("Give this conversation a title of five words.")).sent(),
            *lines[3:],
        ],
        "titles asked for after every question": [
            request
            for turn, line in enumerate(lines)
            for request in (line, *branch(talk, 2 * turn + 1, user("A title, please: five words.")).sent())
        ],
        "titles asked for before every question": [
            request
            for turn, line in enumerate(lines)
            for request in (*branch(talk, 2 * turn + 1, user("A title, please: five words.")).sent(), line)
        ],
        "a sub-agent between": [*lines[:2], *other, *lines[2:]],
        "twelve short conversations between": [
            *lines[:2],
            *(line for n in range(12) for line in chat(2, topic=f"t{n}").sent()),
            *lines[2:],
        ],
        "two conversations in one session, in turns": interleaved(lines, chat(5, topic="b").sent()),
        "two without a session, in turns": interleaved(talk.sent(session=None), chat(5, topic="b").sent(session=None)),
        "two that begin alike": interleaved(
            lines, Run([*talk.messages[:2], *chat(4, topic="b").messages], [1, 3, 5, 7, 9]).sent()
        ),
        "content as a list": talk.sent(lambda m, t: [{**x, "content": parts(x["content"])} if t % 2 else x for x in m]),
        "new ids": agent(2).sent(lambda m, t: json.loads(json.dumps(m).replace('"c', f'"call_{t}_'))),
        "fields that nobody prints": work.sent(
            lambda m, t: [{**x, "refusal": None, "annotations": [], "metadata": {"turn": t}} for x in m]
        ),
        "null for empty text": Run(
            [user(prose(1)), assistant(None, call(1)), result(call(1), prose(2)), assistant("x"), user("y")], [1, 3, 5]
        ).sent(from_turn(2, with_content(1, lambda text: ""))),
        "keys in another order": work.sent(lambda m, t: [dict(sorted(x.items(), reverse=t % 2 == 1)) for x in m]),
        "a request that was lost": [line for at, line in enumerate(chat(9).sent()) if at not in (3, 4)],
        "a reminder that stays": talk.sent(lambda m, t: [add(REMINDER)(x) if x["role"] == "user" else x for x in m]),
        "compacted once": chat(9).sent(
            from_turn(6, lambda m: [user("Summary: " + prose("sum", 60)), assistant("Understood."), *m[8:]])
        ),
        "compacted to a summary alone": chat(9).sent(
            from_turn(
                6, lambda m: [user("Summary: " + prose("sum", 60)), *m[13:]] if len(m) > 13 else [user(prose("sum"))]
            )
        ),
        "questions after examples chosen for each": [
            line for turn in range(6) for line in Run([*few_shots(turn), user(prose(f"q{turn}", 30))], [9]).sent()
        ],
        "the same without a session": [
            line
            for turn in range(6)
            for line in Run([*few_shots(turn), user(prose(f"q{turn}", 30))], [9]).sent(session=None)
        ],
        "texts to translate that begin alike": [
            line
            for text in ("the letter", "the parcel", "the bill")
            for line in Run([user(f"Translate into French, and keep the tone: {text} came today.")], [1]).sent()
        ],
        "an answer that is continued": [
            *lines[:2],
            *stopped.sent(add_generation_prompt=False, continue_final_message=True),
            *lines[2:],
        ],
        "another sample, sent without its question": [
            *Run([*talk.messages[:1], assistant("", call("a")), result(call("a"), prose("r"))], [3]).sent(),
            *Run([*talk.messages[:1], assistant("", call("b")), result(call("b"), prose("r"))], [3]).sent(),
        ],
        "conversations in one session that end alike": [
            line
            for n in range(9)
            for line in Run([user(f"Ticket {n}: " + prose("form", 60)), assistant("Ok."), user("Go on.")], [3]).sent()
        ],
        "short conversations without a session": [
            line for a, b in ((3, 5), (5, 7), (7, 3), (4, 4)) for line in sums(a, b).sent(session=None)
        ],
        "an unfinished session that another goes on with": [
            *talk.sent(session="monday")[:3],
            *talk.sent(session="tuesday")[3:],
        ],
        "one system prompt, many first questions": [
            line for n in range(8) for line in chat(1, topic=f"user {n}").sent(session=f"u{n}")
        ],
    }


SILENT = silent()


@pytest.mark.parametrize("name", SILENT)
def test_what_only_branches_is_left_alone(name: str) -> None:
    assert codes(lint(SILENT[name])) == []


def test_before_and_after_are_shown() -> None:
    lines = FAULTS["a reminder at the end of the newest question"][0]
    finding = loud(lint(lines))[0]
    assert finding.evidence["before"] == REMINDER
    assert finding.evidence["after"] == ""
    assert finding.message == "lost text since the 1st request"
    lines = FAULTS["one word, forty turns in"][0]
    finding = loud(lint(lines))[0]
    assert finding.evidence["after"] == value_at(lines, finding) == "ochre"


def test_one_compaction_is_a_note() -> None:
    (finding,) = lint(SILENT["compacted once"])
    assert (finding.code, finding.severity, finding.request) == ("PKV301", "info", 6)
    assert finding.message == "stands in the place of 8 messages since the 6th request"


def test_many_places_are_one_finding() -> None:
    """Two hundred messages of which eighty results are cut short at once."""
    run = agent(4, 20)
    clear = from_turn(len(run.cuts) - 1, lambda m: [{**x, "content": "[cut]"} if x["role"] == "tool" else x for x in m])
    (finding,) = loud(lint(run.sent(clear)))
    assert (finding.code, finding.requests_affected) == ("PKV301", 1)
    assert "(and 78 more)" in finding.message
