"""PKV102: identifiers in front of cacheable text."""

# ruff: noqa: RUF001 (the letters of other alphabets are meant)

from __future__ import annotations

import base64
import random
import uuid
from collections.abc import Callable

import pytest

from .conversations import Line, alone, codes, conversation, history, lint, loud, prompt, single, tool, value_at

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def dice(turn: int, salt: int = 0) -> random.Random:
    return random.Random(turn * 1000 + salt)


def hexes(turn: int, length: int) -> str:
    return f"{dice(turn).getrandbits(4 * length):0{length}x}"


def uid(turn: int) -> str:
    return str(uuid.UUID(int=dice(turn).getrandbits(128), version=4))


def letters(turn: int, length: int) -> str:
    return "".join(
        dice(turn).choice("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789") for _ in range(1)
    ) + "".join(
        dice(turn, index).choice("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789")
        for index in range(1, length)
    )


def base(turn: int, size: int) -> str:
    return base64.b64encode(dice(turn).randbytes(size)).decode()


# A line of the system prompt at each turn; the identifier stands between the brackets.
IDENTIFIERS: dict[str, Callable[[int], str]] = {
    "uuid": lambda n: f"Request id: [{uid(n)}]",
    "uuid without a key": lambda n: f"([{uid(n)}])",
    "uuid in capitals": lambda n: f"CALL [{uid(n).upper()}]",
    "uuid without dashes": lambda n: f"x [{uid(n).replace('-', '')}] y",
    "ulid": lambda n: f"Run [01{''.join(dice(n, i).choice(CROCKFORD) for i in range(24))}]",
    "jwt": lambda n: f"Bearer [eyJhbGciOiJIUzI1NiJ9.eyJ{letters(n, 20)}.{letters(n, 30)}]",
    "traceparent": lambda n: f"traceparent: [00-{hexes(n, 32)}-{hexes(n + 9, 16)}-01]",
    "amazon trace": lambda n: f"X-Amzn-Trace-Id: Root=[1-{hexes(n, 8)}-{hexes(n, 24)}]",
    "sha256": lambda n: f"state sha256 [{hexes(n, 64)}]",
    "sha1": lambda n: f"digest=[{hexes(n, 40)}]",
    "short hex behind a key": lambda n: f"session=[{hexes(n, 6)}]",
    "short hex in json": lambda n: f'{{"rid": "[{hexes(n, 5)}]", "v": 2}}',
    "digits behind an id": lambda n: f"x-request-id: [{dice(n).randrange(10**7, 10**8)}]",
    "service prefix": lambda n: f"thread [thread_{letters(n, 22)}]",
    "completion id": lambda n: f"previous: [chatcmpl-{letters(n, 26)}]",
    "nanoid": lambda n: f"ctx [{letters(n, 21)}]",
    "base64 nonce": lambda n: f"nonce: [{base(n, 16)}]",
    "german key": lambda n: f"Sitzungs-ID: [{hexes(n, 8)}]",
    "french key": lambda n: f"Identifiant de session : [{hexes(n, 8)}]",
    "spanish key": lambda n: f"ID de sesión: [{hexes(n, 7)}]",
    "russian key": lambda n: f"ID запроса: [{dice(n).randrange(10**8, 10**9)}]",
    "chinese key": lambda n: f"会话ID：[{hexes(n, 8)}]",
    "japanese key": lambda n: f"リクエスト番号: [{dice(n).randrange(10**6, 10**7)}]",
    "korean key": lambda n: f"세션 ID: [{hexes(n, 8)}]",
    "temporary folder": lambda n: f"Scratch: build/[run-{hexes(n, 12)}]/work",
    "in a tag": lambda n: f"<meta><conversation_id>[{hexes(n, 10)}]</conversation_id></meta>",
    "conversation of a chat": lambda n: f"Conversation [{hexes(n, 12)}] with a user.",
}


def cut(line: str) -> tuple[str, str]:
    before, _, rest = line.partition("[")
    inner, _, after = rest.partition("]")
    return before + inner + after, inner


@pytest.mark.parametrize("name", IDENTIFIERS)
def test_names_an_identifier_in_any_notation(name: str) -> None:
    lines = conversation(lambda turn: prompt(cut(IDENTIFIERS[name](turn))[0]))
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.severity, finding.path) == ("PKV102", "error", "messages[0].content")
    assert (finding.request, finding.requests_affected) == (1, 3)
    assert value_at(lines, finding) == cut(IDENTIFIERS[name](1))[1]


PLACES: dict[str, tuple[list[Line], str]] = {
    "part of a content list": (
        conversation(
            lambda n: [
                {
                    "role": "system",
                    "content": [{"type": "text", "text": "Tern."}, {"type": "text", "text": prompt(uid(n))}],
                }
            ]
        ),
        "messages[0].content[1].text",
    ),
    "developer message": (
        conversation(lambda n: [{"role": "developer", "content": prompt(f"trace {uid(n)}", 5)}]),
        "messages[0].content",
    ),
    "description of a tool": (
        conversation(prompt(), tools=lambda n: [tool("book"), tool("call", f"Pass session {uid(n)}.")]),
        "tools[1].function.description",
    ),
    "constant of a schema": (
        conversation(prompt(), tools=lambda n: [tool("book", session={"type": "string", "const": uid(n)})]),
        "tools[0].function.parameters.properties.session.const",
    ),
    "first user message, written anew each turn": (
        [
            {
                "session_id": "s",
                "request": {
                    "model": "m",
                    "messages": [
                        {"role": "system", "content": prompt()},
                        {"role": "user", "content": f"[{uid(n)}] Fix the build, please."},
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
        conversation(lambda n: prompt(f"Request {uid(max(39, n))}"), turns=range(36, 44)),
        "messages[0].content",
    ),
    "once a session": (
        [line for n in range(4) for line in conversation(prompt(uid(n)), turns=2, session=f"s{n}", topic=f"{n} ")],
        "messages[0].content",
    ),
    "no session ids": (conversation(lambda n: prompt(uid(n)), session=None), "messages[0].content"),
}


@pytest.mark.parametrize("name", PLACES)
def test_names_an_identifier_wherever_it_hides(name: str) -> None:
    lines, path = PLACES[name]
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.severity, finding.path) == ("PKV102", "error", path)
    assert len(str(value_at(lines, finding))) == 36


SUSPECTS = [
    "Request id: {uid}",
    "({uid})",
    "trace {hex32}, session 9f8a2b7c",
    "Session: {hex12}",
    "run_8f3k2x91ab",
    "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF12",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "correlation-id=4711-8815-22",
    "Sitzungs-ID: 8f3k2x91",
    "请求ID：98f2a1c4",
]


@pytest.mark.parametrize("line", SUSPECTS)
def test_one_request_alone_is_judged_by_its_look(line: str) -> None:
    lines = single(line.format(uid=uid(1), hex12=hexes(1, 12), hex32=hexes(1, 32)))
    (finding,) = loud(lint(lines))
    assert (finding.code, finding.severity, finding.path) == ("PKV102", "warning", "messages[0].content")


COMMIT = "9fceb02d0ae598e95dc970b74767f19372d61af8"
# Traffic that only looks as if an identifier were in it, and what is to be said instead.
LOOKALIKES: dict[str, tuple[list[Line], list[str]]] = {
    "constant uuid": (conversation(prompt(f"Workspace {uid(7)}")), []),
    "constant commit": (conversation(prompt(f"Built from {COMMIT}.")), []),
    "commit in one request": (single(f"Built from commit {COMMIT}."), []),
    "digest of an image in one request": (single(f"image: app@sha256:{hexes(3, 64)}"), []),
    "version of a model": (single("You run on claude-3-5-sonnet-20241022 or gpt-4o-2024-08-06."), []),
    "example uuid": (single("Ids look like 123e4567-e89b-12d3-a456-426614174000."), []),
    "empty uuid": (single("Use 00000000-0000-0000-0000-000000000000 for none."), []),
    "example in a tool": (single("", tools=[tool("get", f"By id, e.g. {uid(3)}."), tool("put")]), []),
    "link with an id": (single(f"See https://example.com/pages/{uid(3)} for help."), []),
    "at the end of the prompt": (
        alone({"messages": [{"role": "system", "content": prompt(f"Request {uid(3)}", -1)}, *history(0)]}),
        [],
    ),
    "in the last user message": (
        [
            {
                "session_id": f"s{n}",
                "request": {
                    "model": "m",
                    "messages": [
                        {"role": "system", "content": prompt()},
                        {"role": "user", "content": f"{uid(n)}: start?"},
                    ],
                },
            }
            for n in range(4)
        ],
        [],
    ),
    "outside of the prompt": (conversation(prompt(), user=uid, metadata=lambda n: {"request_id": uid(n)}), []),
    "counter": (conversation(lambda n: prompt(f"Request {n + 1} of this session.")), ["PKV103"]),
    "number of a customer": (
        [
            line
            for n in range(4)
            for line in conversation(prompt(f"Customer no. {4711 + 97 * n}."), turns=2, session=f"s{n}", topic=f"{n} ")
        ],
        ["PKV104"],
    ),
    "branch": (
        conversation(lambda n: prompt(f"On branch feature/{['login', 'logout', 'signup', 'reset'][n]}-2.")),
        ["PKV103"],
    ),
    "checksum of five digits": (conversation(lambda n: prompt(f"sum={hexes(n, 5)}")), ["PKV103"]),
    "folder of a project": (
        conversation(lambda n: prompt(f"Folder: /home/ana/projects/{['tern', 'plover', 'dunlin', 'knot'][n]}2/src")),
        ["PKV103"],
    ),
    "step of a plan": (conversation(lambda n: prompt(f"You are at step {n + 3}.")), ["PKV103"]),
    "names that no template prints": (
        conversation(
            lambda n: [{"role": "system", "content": prompt(), "name": f"sys_{hexes(n, 8)}"}],
        ),
        [],
    ),
}


@pytest.mark.parametrize("name", LOOKALIKES)
def test_stays_silent_on_what_only_looks_like_an_identifier(name: str) -> None:
    lines, instead = LOOKALIKES[name]
    findings = lint(lines)
    assert codes(findings) == instead, [(finding.code, finding.message) for finding in findings]
    assert "PKV102" not in [finding.code for finding in findings]


@pytest.mark.parametrize("line", ["[trace=<{}> at=({})]", "[now=({1}) trace=<{0}>]"])
def test_a_clock_in_the_same_line_is_a_fault_of_its_own(line: str) -> None:
    lines = conversation(lambda n: prompt(line.format(hexes(n, 16), f"2026-07-0{n + 1}T1{n}:22:3{n}Z")))
    findings = loud(lint(lines))
    assert sorted(codes(findings)) == ["PKV101", "PKV102"]
    found = {finding.code: value_at(lines, finding) for finding in findings}
    assert found == {"PKV101": "2026-07-02T11:22:31Z", "PKV102": hexes(1, 16)}
