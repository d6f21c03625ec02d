"""PKV601 to PKV604: salts, short prefixes, markers, requests that do not read the cache."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from pkv_lint.findings import Finding
from pkv_lint.linting import lint_traffic
from pkv_lint.prompt.traffic import read_requests

from .conversations import Line, alone, conversation, history, lint, prompt, renderer, report, tool
from .test_pkv102 import hexes, uid


def found(code: str, lines: list[Line], **settings: Any) -> list[Finding]:
    return [finding for finding in lint(lines, **settings) if finding.code == code]


def salted(*salts: str | None, turns: int = 1, sessions: bool = True) -> list[Line]:
    """One conversation per salt, all with the same system prompt."""
    lines = []
    for index, salt in enumerate(salts):
        session = f"s{index}" if sessions else None
        lines += conversation(prompt(), turns=turns, session=session, topic=f"{index}: ", cache_salt=salt)
    return lines


def in_turn(*conversations: list[Line]) -> list[Line]:
    """The requests of several conversations, taken in turn."""
    return [line for turn in zip(*conversations, strict=True) for line in turn]


def owned(lines: list[Line], **members: Any) -> list[Line]:
    return [{**line, **{name: value(n) for name, value in members.items()}} for n, line in enumerate(lines)]


CHURNING: dict[str, list[Line]] = {
    "a new salt in every turn": conversation(prompt(), cache_salt=uid),
    "without session ids": conversation(prompt(), session=None, cache_salt=lambda n: hexes(n, 16)),
    "counted": conversation(prompt(), cache_salt=lambda n: f"call-{n}"),
    "the time": conversation(prompt(), cache_salt=lambda n: f"2026-11-29T14:05:{n:02}Z"),
    "epoch milliseconds": conversation(prompt(), cache_salt=lambda n: str(1_795_961_133_000 + 977 * n)),
    "short hex": conversation(prompt(), cache_salt=lambda n: hexes(n, 6)),
    "a word": conversation(prompt(), cache_salt=lambda n: ["ash", "birch", "cedar", "dogwood"][n]),
    "none in the first turn": conversation(prompt(), cache_salt=lambda n: uid(n) if n else None, turns=5),
    "two that take turns": conversation(prompt(), cache_salt=lambda n: f"worker-{n % 2}", turns=3),
    "many conversations": in_turn(
        *(
            conversation(prompt(), session=f"s{m}", topic=f"{m} ", cache_salt=lambda n, m=m: uid(10 * m + n))
            for m in range(3)
        )
    ),
    "retries share one": in_turn(*(conversation(prompt(), cache_salt=lambda n: uid(n)) for _ in range(2))),
    "eight single requests": salted(*(uid(n) for n in range(8))),
    "one owner, a salt each": owned(salted(*(f"v{n}" for n in range(9))), tenant=lambda n: f"tenant-{n % 2}"),
    "from the fortieth turn on": conversation(prompt(), turns=range(37, 44), cache_salt=lambda n: uid(max(39, n))),
}


@pytest.mark.parametrize("name", CHURNING)
def test_salts_that_change(name: str) -> None:
    finding, *others = found("PKV601", CHURNING[name])
    assert (finding.severity, finding.path) == ("error", "cache_salt")
    assert finding.tokens_lost > 0 and all(other.severity == "info" for other in others)


def test_a_few_single_requests_may_be_tenants() -> None:
    (finding,) = found("PKV601", salted(*(uid(n) for n in range(4))))
    assert (finding.severity, finding.requests_affected) == ("warning", 3)


def test_a_salt_that_is_replaced_once() -> None:
    lines = conversation(prompt(), turns=8, cache_salt=lambda n: "march" if n < 4 else "april")
    (finding,) = found("PKV601", lines)
    assert (finding.severity, finding.request, finding.requests_affected) == ("warning", 4, 1)


def test_the_cost_is_what_one_salt_would_have_hit() -> None:
    lines = conversation(prompt(), cache_salt=uid)
    (finding,) = found("PKV601", lines)
    assert finding.requests_affected == 3
    constant = report(conversation(prompt(), cache_salt="one"))
    assert finding.tokens_lost == constant.cached_tokens > 0


KEPT_APART: dict[str, list[Line]] = {
    "a salt per tenant": salted("acme", "globex", "initech"),
    "a salt per tenant, several turns": salted("acme", "globex", turns=3),
    "taken in turn": in_turn(
        *(conversation(prompt(), session=f"s{m}", topic=f"{m} ", cache_salt=f"tenant-{m}") for m in range(3))
    ),
    "hashes of tenants": salted(*(hexes(n, 64) for n in range(3)), turns=2),
    "the same conversation for two tenants": in_turn(
        *(conversation(prompt(), session=None, cache_salt=f"tenant-{m}") for m in range(2))
    ),
    "several sessions per tenant": salted("a", "b", "a", "b", "c", "c"),
    "some without": salted("acme", None, "acme", None),
    "one tenant each, random salts": owned(salted(*(uid(n) for n in range(9))), tenant=lambda n: f"tenant-{n}"),
    "users named in the requests": [
        {"request": {**line["request"], "user": f"user-{n}"}}
        for n, line in enumerate(salted(*(uid(n) for n in range(9))))
    ],
    "named like tenants": salted(*(f"tenant-{n}" for n in range(12))),
    "two only": salted(uid(1), uid(2)),
    "a session id for each tenant's first": [
        *owned(conversation(prompt(), session="1", cache_salt="a"), tenant=lambda n: "a"),
        *owned(conversation(prompt(), session="1", topic="b ", cache_salt="b"), tenant=lambda n: "b"),
    ],
}


@pytest.mark.parametrize("name", KEPT_APART)
def test_salts_of_tenants_are_a_note_with_their_cost(name: str) -> None:
    findings = found("PKV601", KEPT_APART[name])
    assert [finding.severity for finding in findings] == ["info"]
    assert findings[0].tokens_lost > 0 and findings[0].path == "cache_salt"


SALTS_LEFT_ALONE: dict[str, list[Line]] = {
    "one salt": conversation(prompt(), cache_salt="acme"),
    "none": conversation(prompt()),
    "another model each": [
        {"request": {**line["request"], "model": f"adapter-{n}"}} for n, line in enumerate(conversation(prompt()))
    ],
    "nothing in common": [
        {
            "request": {
                "model": "m",
                "messages": [{"role": "user", "content": f"{uid(n)} {prompt()}"}],
                "cache_salt": uid(n),
            }
        }
        for n in range(4)
    ],
    "a single request": conversation(prompt(), turns=1, cache_salt=uid),
    "a salt by another name": conversation(prompt(), metadata=lambda n: {"cache_salt": uid(n)}),
    "a salt of a tool": conversation(prompt(), tools=[tool("season", cache_salt={"type": "string"})]),
    "another conversation's key": conversation(prompt(), prompt_cache_key=uid),
    "other request ids": conversation(prompt(), request_id=uid),
    "users": conversation(prompt(), user=uid),
}


@pytest.mark.parametrize("name", SALTS_LEFT_ALONE)
def test_no_salt_is_blamed(name: str) -> None:
    assert found("PKV601", SALTS_LEFT_ALONE[name]) == []


def short(lines: list[Line], block_size: int = 784, **settings: Any) -> list[Finding]:
    text = "\n".join(map(json.dumps, lines))
    lines_read = read_requests(io.BytesIO(text.encode()), name="traffic.jsonl")
    findings = lint_traffic(lines_read, renderer(**settings), block_size=block_size).findings
    return [finding for finding in findings if finding.code == "PKV602"]


SHORT: dict[str, tuple[list[Line], int]] = {
    "sessions with one system prompt": (salted(None, None, None), 784),
    "one conversation": (conversation(prompt()), 784),
    "blocks of 256": (salted(None, None), 256),
    "blocks of 512": (conversation(prompt(), turns=3), 512),
    "without session ids": (salted(None, None, sessions=False), 784),
    "the same tools only": (
        [
            line
            for n in range(2)
            for line in conversation([], turns=1, session=f"s{n}", topic=f"{n} ", tools=[tool("a"), tool("b")])
        ],
        784,
    ),
    "the same first message": (
        [
            line
            for n in range(2)
            for line in conversation([{"role": "user", "content": prompt()}], turns=1, session=f"s{n}", topic=f"{n} ")
        ],
        784,
    ),
    "one salt": (salted("a", "a"), 784),
    "ids": ([{"token_ids": [*range(300, 400), 500 + n]} for n in range(3)], 784),
    "completions": ([{"request": {"prompt": f"{prompt()}\n{n}"}} for n in range(3)], 784),
}


@pytest.mark.parametrize("name", SHORT)
def test_a_prefix_below_a_block(name: str) -> None:
    lines, size = SHORT[name]
    (finding,) = short(lines, size)
    assert (finding.severity, finding.blame, finding.path, finding.tokens_lost) == ("info", "engine", None, 0)
    assert finding.request == 1 and finding.requests_affected == len(lines) - 1
    assert 32 <= finding.evidence["shared"] < size


SYSTEM_ONLY = (
    "{{ 'You stand in for a model that is much larger than you, and you know it. ' * 4 }}{{ messages[-1].content }}"
)
NOT_SHORT: dict[str, tuple[list[Line], int, dict[str, Any]]] = {
    "small blocks": (conversation(prompt()), 16, {}),
    "nothing shared": (
        [{"request": {"messages": [{"role": "user", "content": f"{uid(n)} {prompt()}"}]}} for n in range(3)],
        784,
        {},
    ),
    "a few tokens": (
        [{"request": {"messages": [{"role": "user", "content": f"Tell me about {n}"}]}} for n in range(3)],
        784,
        {},
    ),
    "one request": (conversation(prompt(), turns=1), 784, {}),
    "the template's own text": (
        [{"request": {"messages": [{"role": "user", "content": f"{n} {n}"}]}} for n in range(3)],
        784,
        {"chat_template": SYSTEM_ONLY},
    ),
    "other salts": (salted("a", "b", "c"), 784, {}),
    "other models": (
        [{"request": {**line["request"], "model": f"m{n}"}} for n, line in enumerate(salted(None, None, None))],
        784,
        {},
    ),
    "a time in front": (
        [
            {
                "request": {
                    "messages": [
                        {"role": "system", "content": prompt(f"Now: 14:05:{n:02}", 6) + prompt() * 6},
                        *history(0),
                    ]
                }
            }
            for n in range(3)
        ],
        784,
        {},
    ),
    "requests that do not read": (conversation(prompt(), prompt_logprobs=1), 784, {}),
    "whole blocks": (conversation(prompt() * 8), 784, {}),
}


@pytest.mark.parametrize("name", NOT_SHORT)
def test_no_prefix_below_a_block(name: str) -> None:
    lines, size, settings = NOT_SHORT[name]
    assert short(lines, size, **settings) == []


MARK = {"type": "ephemeral"}


def part(**fields: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": "Which belt fits?", **fields}]


def user(content: Any) -> list[Line]:
    return alone({"messages": [{"role": "user", "content": content}]})


MARKED: dict[str, tuple[list[Line], str]] = {
    "a part": (user(part(cache_control=MARK)), "messages[0].content[0].cache_control"),
    "a message": (
        alone({"messages": [{"role": "user", "content": "Hi", "cache_control": MARK}]}),
        "messages[0].cache_control",
    ),
    "a tool": (
        alone({"messages": history(0), "tools": [{**tool("a"), "cache_control": MARK}]}),
        "tools[0].cache_control",
    ),
    "a function": (
        alone(
            {
                "messages": history(0),
                "tools": [{"type": "function", "function": {**tool("a")["function"], "cache_control": MARK}}],
            }
        ),
        "tools[0].function.cache_control",
    ),
    "the body": (alone({"messages": history(0), "cache_control": MARK}), "cache_control"),
    "with a time to live": (
        user(part(cache_control={"type": "ephemeral", "ttl": "1h"})),
        "messages[0].content[0].cache_control",
    ),
    "in camel case": (user(part(cacheControl=MARK)), "messages[0].content[0].cacheControl"),
    "a cache point": (
        user([*part(), {"type": "text", "text": "", "cachePoint": {"type": "default"}}]),
        "messages[0].content[1].cachePoint",
    ),
    "options of a provider": (
        user(part(providerOptions={"anthropic": {"cacheControl": MARK}})),
        "messages[0].content[0].providerOptions.anthropic.cacheControl",
    ),
    "the system prompt of Messages": (
        alone({"system": part(cache_control=MARK), "messages": history(0), "max_tokens": 9}),
        "system[0].cache_control",
    ),
    "a tool of Messages": (
        alone(
            {
                "system": "Hi",
                "tools": [{"name": "a", "input_schema": {"type": "object"}, "cache_control": MARK}],
                "messages": history(0),
                "max_tokens": 9,
            }
        ),
        "tools[0].cache_control",
    ),
    "an item of Responses": (
        alone({"input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi", "cache_control": MARK}]}]}),
        "input[0].content[0].cache_control",
    ),
}


@pytest.mark.parametrize("name", MARKED)
def test_markers(name: str) -> None:
    lines, path = MARKED[name]
    (finding,) = found("PKV603", lines)
    assert (finding.severity, finding.path) == ("info", path)
    assert finding.column > 1


def test_one_finding_for_all_markers() -> None:
    lines = [line for n in range(3) for line in user(part(cache_control=MARK) + part())] + user("Hi")
    (finding,) = found("PKV603", lines)
    assert finding.requests_affected == 3


NOT_MARKED: dict[str, list[Line]] = {
    "text about markers": user('Put "cache_control": {"type": "ephemeral"} there.'),
    "a property of a schema": alone({"messages": history(0), "tools": [tool("a", cache_control={"type": "string"})]}),
    "arguments of a call": alone(
        {
            "messages": [
                *history(0),
                {
                    "role": "assistant",
                    "tool_calls": [
                        {
                            "id": "c",
                            "type": "function",
                            "function": {"name": "a", "arguments": '{"cache_control": {"type": "x"}}'},
                        }
                    ],
                },
            ]
        }
    ),
    "input of a call": alone(
        {
            "system": "Hi",
            "max_tokens": 9,
            "messages": [
                *history(0),
                {
                    "role": "assistant",
                    "content": [
                        {"type": "tool_use", "id": "c", "name": "a", "input": {"cache_control": {"type": "x"}}}
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "ok"}]},
            ],
        }
    ),
    "null": user(part(cache_control=None)),
    "a header": alone({"messages": history(0), "metadata": {"cache_control": "no-store"}}),
    "metadata": alone({"messages": history(0), "metadata": {"cache_control": {"type": "ephemeral"}}}),
    "arguments of the template": alone(
        {"messages": history(0), "chat_template_kwargs": {"cache_control": {"type": "x"}}}
    ),
    "another name": user(part(caching={"type": "ephemeral"})),
    "a flag": user(part(cache_control=True)),
    "a key for routing": alone({"messages": history(0), "prompt_cache_key": "a", "prompt_cache_retention": "24h"}),
    "nothing": conversation(prompt()),
}


@pytest.mark.parametrize("name", NOT_MARKED)
def test_no_markers(name: str) -> None:
    assert found("PKV603", NOT_MARKED[name]) == []


UNREAD: dict[str, tuple[dict[str, Any], str]] = {
    "one": ({"prompt_logprobs": 1}, "prompt_logprobs"),
    "none at all": ({"prompt_logprobs": 0}, "prompt_logprobs"),
    "all": ({"prompt_logprobs": -1}, "prompt_logprobs"),
    "twenty": ({"prompt_logprobs": 20, "logprobs": True, "top_logprobs": 2}, "prompt_logprobs"),
    "a number with a point": ({"prompt_logprobs": 1.0}, "prompt_logprobs"),
    "beside echo": ({"prompt_logprobs": 1, "echo": True}, "prompt_logprobs"),
    "echo": ({"echo": True}, "echo"),
    "echo with log probabilities": ({"echo": True, "logprobs": True, "top_logprobs": 3}, "echo"),
    "echo as text": ({"echo": "true"}, "echo"),
    "with a salt": ({"prompt_logprobs": 2, "cache_salt": "a"}, "prompt_logprobs"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_requests_that_do_not_read_the_cache(name: str) -> None:
    fields, path = UNREAD[name]
    (finding,) = found("PKV604", conversation(prompt(), **fields))
    assert (finding.severity, finding.path, finding.requests_affected) == ("warning", path, 4)
    usual = report(conversation(prompt(), cache_salt=fields.get("cache_salt")))
    assert finding.tokens_lost == usual.cached_tokens > 0
    assert report(conversation(prompt(), **fields)).cached_tokens == 0


def test_completions_that_do_not_read_the_cache() -> None:
    for fields, path in (({"prompt_logprobs": 1}, "prompt_logprobs"), ({"echo": True, "logprobs": 0}, "echo")):
        (finding,) = found("PKV604", [{"request": {"prompt": f"{prompt()} {n}", **fields}} for n in range(3)])
        assert finding.path == path and finding.tokens_lost > 0


def test_only_some_requests_do_not_read_it() -> None:
    lines = conversation(prompt(), prompt_logprobs=lambda n: 1 if n == 2 else None)
    (finding,) = found("PKV604", lines)
    assert (finding.request, finding.requests_affected) == (2, 1)
    assert finding.tokens_lost == report(conversation(prompt())).facts.replayed[2].hit
    assert report(lines).facts.replayed[3].hit > 0  # it is written all the same


MESSAGES_API = {"model": "m", "system": "Hi", "messages": history(0), "max_tokens": 9}
READ: dict[str, list[Line]] = {
    "log probabilities of the reply": conversation(prompt(), logprobs=True, top_logprobs=5),
    "null": conversation(prompt(), prompt_logprobs=None) + alone({"messages": history(0), "prompt_logprobs": None}),
    "no echo": conversation(prompt(), echo=False),
    "echo of text alone": [{"request": {"prompt": f"{prompt()} {n}", "echo": True}} for n in range(3)],
    "an unknown field of Responses": [{"request": {"input": "Hi", "prompt_logprobs": 1}}],
    "an unknown field of Messages": [{"request": {**MESSAGES_API, "prompt_logprobs": 1, "echo": True}}],
    "metadata": conversation(prompt(), metadata={"prompt_logprobs": "1"}),
    "arguments of the template": conversation(prompt(), chat_template_kwargs={"prompt_logprobs": 1}),
    "a tool's parameter": conversation(prompt(), tools=[tool("score", prompt_logprobs={"type": "integer"})]),
    "ids": [{"token_ids": [*range(300, 400)]}],
}


@pytest.mark.parametrize("name", READ)
def test_requests_that_read_the_cache(name: str) -> None:
    assert found("PKV604", READ[name]) == []
