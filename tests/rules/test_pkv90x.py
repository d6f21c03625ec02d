"""PKV901 to PKV904: input that cannot be judged, that a template refuses, or that the server reads otherwise."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from pkv_lint.findings import Finding
from pkv_lint.linting import Report, lint_traffic, load_rules
from pkv_lint.prompt.traffic import read_requests

from .conversations import Line, alone, conversation, history, lint, prompt, renderer, value_at
from .templates import PLAIN, TOOLS, template


def judged(text: str | bytes, **settings: Any) -> Report:
    raw = text if isinstance(text, bytes) else text.encode()
    return lint_traffic(read_requests(io.BytesIO(raw), name="traffic.jsonl"), renderer(**settings))


def broken(text: str | bytes, **settings: Any) -> list[tuple[str, int, str | None]]:
    return [(finding.code, finding.line, finding.path) for finding in judged(text, **settings).unusable]


GOOD = json.dumps({"messages": [{"role": "user", "content": "Hi"}]})
INVALID_JSON = {
    "a bracket too few": GOOD[:-1],
    "a comma too many": '{"messages": [],}',
    "single quotes": "{'messages': []}",
    "a comment": '{"messages": [] /* none */}',
    "text": "hello",
    "no value": '{"messages": }',
    "two values": GOOD + " " + "]",
    "a bad escape": '{"messages": [{"role": "user", "content": "\\x"}]}',
    "a raw line break": '{"messages": [{"role": "user", "content": "a\nb"}]}',
    "cut off": GOOD[: len(GOOD) // 2],
}


@pytest.mark.parametrize("name", INVALID_JSON)
def test_what_is_not_json(name: str) -> None:
    codes = [code for code, _, _ in broken(f"{GOOD}\n{INVALID_JSON[name]}\n{GOOD}")]
    assert codes and set(codes) == {"PKV901"}


def test_bytes_that_are_no_text() -> None:
    assert broken(f"{GOOD}\n".encode() + b'{"messages": "\xff\xfe"}\n')[0][:2] == ("PKV901", 2)


INVALID_REQUESTS: dict[str, tuple[dict[str, Any], str | None]] = {
    "no messages": ({"model": "m"}, "messages"),
    "messages that are no list": ({"messages": "Hi"}, "messages"),
    "no role": ({"messages": [{"content": "Hi"}]}, "messages[0].role"),
    "empty tools": ({"messages": history(0), "tools": []}, "tools"),
    "a number as content": ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    "arguments that are no text": (
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "a", "arguments": {}}}],
                }
            ]
        },
        "messages[0].tool_calls",
    ),
    "an empty salt": ({"messages": history(0), "cache_salt": ""}, "cache_salt"),
    "a choice without tools": ({"messages": history(0), "tool_choice": "required"}, "tool_choice"),
    "stream options without a stream": ({"messages": history(0), "stream_options": {}}, "stream_options"),
    "no prompt": ({"prompt": None}, "prompt"),
    "several prompts": ({"prompt": ["a", "b"]}, "prompt"),
    "a list": ([], None),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("name", INVALID_REQUESTS)
def test_what_the_server_refuses(name: str) -> None:
    body, path = INVALID_REQUESTS[name]
    report = judged(json.dumps(body) if body else '{"request": []}')
    if name == "stream options without a stream":
        assert not report.unusable  # an empty object counts as not given
        return
    (finding,) = report.unusable
    assert (finding.code, finding.severity, finding.blame) == ("PKV902", "error", "input")
    assert path is None or (finding.path or "").startswith(path)


def test_the_other_lines_are_judged() -> None:
    assert len(judged(f"{GOOD}\n{{\n{GOOD}\n{{}}\n{GOOD}").facts.replayed) == 3


USABLE = {
    "blank lines": f"\n{GOOD}\n\n{GOOD}\n",
    "a byte order mark": "\ufeff" + GOOD,
    "an array": f"[{GOOD}, {GOOD}]",
    "several lines": json.dumps(json.loads(GOOD), indent=2),
    "windows line ends": f"{GOOD}\r\n{GOOD}\r\n",
    "unknown fields": json.dumps({**json.loads(GOOD), "functions": [], "foo": None}),
    "a wrapped request": json.dumps({"request": json.loads(GOOD), "session_id": "s"}),
    "a batch line": json.dumps({"custom_id": "1", "url": "/v1/chat/completions", "body": json.loads(GOOD)}),
    "completions": json.dumps({"prompt": "Once"}),
    "ids": json.dumps({"token_ids": [1, 2]}),
    "escaped text": GOOD.replace("Hi", '\\u00e9\\n\\"{'),
}


@pytest.mark.parametrize("name", USABLE)
def test_what_can_be_judged(name: str) -> None:
    assert broken(USABLE[name]) == []


REFUSING = {
    "says so": (template(front="{{ raise_exception('No, thank you.') }}"), "No, thank you."),
    "wants roles to alternate": (
        template(
            front="{% if messages[0].role == messages[1].role %}{{ raise_exception('Alternate, please.') }}{% endif %}"
        ),
        "Alternate, please.",
    ),
    "adds text to a list": (
        template(messages="{% for m in messages %}{{ 'x' + [m] }}{% endfor %}"),
        "can only concatenate",
    ),
    "needs a variable": (template(front="{{ functions + 'x' }}"), "'functions' is undefined"),
    "needs a member": (template(front="{{ messages[0].name.first + 'x' }}"), "has no attribute"),
    "appends to a list": (template(front="{% set x = [] %}{{ x.append(1) }}"), "unsafe"),
    "divides by zero": (template(front="{{ 1 / 0 }}"), "division"),
    "is too long": (template(front="{{ 'x' * 999999999 }}"), ""),
    "is no template": ("{% if %}", ""),
    "needs text": (template(front="{{ messages[-1].content | int + messages[-1].content }}"), ""),
}


@pytest.mark.parametrize("name", REFUSING)
def test_templates_that_refuse(name: str) -> None:
    source, message = REFUSING[name]
    body = {"messages": [{"role": "user", "content": "Hi"}, {"role": "user", "content": "Hello?"}]}
    (finding,) = lint(alone(body), chat_template=source)
    assert (finding.code, finding.severity, finding.blame) == ("PKV903", "error", "template")
    assert message in finding.message and "\n" not in finding.message


def test_one_finding_for_one_reason() -> None:
    source = template(front="{% if tools %}{{ raise_exception('No tools.') }}{% endif %}")
    lines = conversation(prompt(), turns=5, tools=lambda n: TOOLS if n in (1, 3, 4) else None)
    (finding,) = lint(lines, chat_template=source)
    assert (finding.request, finding.requests_affected, finding.message) == (1, 3, "No tools.")


@pytest.mark.parametrize(
    "body",
    [
        {"messages": history(0)},
        {"messages": history(0), "tools": TOOLS},
        {"messages": [{"role": "user", "content": ""}]},
        {"messages": [{"role": "observer", "content": "x"}]},
        {"messages": [{"role": "assistant", "content": None}]},
        {"messages": history(3), "documents": [{"text": "x"}]},
        {"messages": history(0), "chat_template_kwargs": {"enable_thinking": False, "foo": {"a": [1]}}},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "{{ x }}"}]}]},
        {"messages": [{"role": "user", "content": "{% raw %}"}]},
        {"messages": [{"role": "user", "content": "\U0001f600 \x00"}]},
    ],
)
def test_templates_that_do_not_refuse(body: dict[str, Any]) -> None:
    assert [finding.code for finding in lint(alone(body), chat_template=PLAIN) if finding.code == "PKV903"] == []


def calls(*arguments: str) -> list[Line]:
    made = [
        {"id": f"c{n}", "type": "function", "function": {"name": "find_part", "arguments": text}}
        for n, text in enumerate(arguments)
    ]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": "ok"} for n in range(len(made))]
    return alone({"messages": [*history(0), {"role": "assistant", "content": "", "tool_calls": made}, *results]})


def found(lines: list[Line], **settings: Any) -> list[Finding]:
    return [finding for finding in lint(lines, **settings) if finding.code == "PKV904"]


ARGUMENTS = "messages[1].tool_calls[{}].function.arguments"


@pytest.mark.parametrize(
    "text",
    [
        '{"number": "K 114"',
        "{'number': 'K 114'}",
        '{"number": "K 114",}',
        "number=K 114",
        '{"number": "a\nb"}',
        '{"number": "K 114"}{"number": "K 115"}',
        '```json\n{"number": "K 114"}\n```',
        '["K 114"]',
        '"K 114"',
        "114",
        "true",
        "{number: 1}",
        '{"number": undefined}',
    ],
)
def test_arguments_that_are_lost(text: str) -> None:
    lines = calls(text)
    (finding,) = found(lines)
    assert (finding.severity, finding.path) == ("warning", ARGUMENTS.format(0))
    assert value_at(lines, finding) == text


def test_the_call_that_is_broken() -> None:
    (finding,) = found(calls("{}", '{"number": "K 114"}', "{"))
    assert finding.path == ARGUMENTS.format(2)


def test_a_broken_call_is_reported_once() -> None:
    body = calls("{")[0]["request"]
    lines = [{"session_id": "s", "request": {**body, "messages": [*body["messages"], *history(n)]}} for n in range(3)]
    (finding,) = found(lines)
    assert (finding.request, finding.requests_affected) == (0, 3)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "",
        "  \n",
        '{"number": "K 114"}',
        '\n {"number" : 1.50}\t',
        '{"number": null}',
        '{"number": NaN}',
        "null",
        '{"a": {"b": [1, {"c": "}"}]}}',
        '{"text": "a \\"quote\\" and {braces"}',
        '{"number": 1e400, "number": 2}',
        '{"näme": "\\u00e9"}',
    ],
)
def test_arguments_that_are_read(text: str) -> None:
    assert found(calls(text)) == []


def test_calls_of_other_endpoints() -> None:
    item = {"type": "function_call", "call_id": "c", "name": "find_part", "arguments": '{"number": '}
    result = {"type": "function_call_output", "call_id": "c", "output": "ok"}
    (finding,) = found([{"request": {"model": "m", "input": [{"role": "user", "content": "Hi"}, item, result]}}])
    assert finding.path == "input[1].arguments"


def test_the_names_of_findings_made_while_reading() -> None:
    names = {rule.CODE: (rule.NAME, rule.SEVERITY) for rule in load_rules()}
    made = [
        *judged("{").unusable,
        *judged("{}").unusable,
        *judged(GOOD, chat_template="{{ raise_exception('No.') }}").findings,
    ]
    assert [(finding.code, names[finding.code]) for finding in made] == [
        (finding.code, (finding.name, finding.severity)) for finding in made
    ]
    assert [finding.code for finding in made] == ["PKV901", "PKV902", "PKV903"]
