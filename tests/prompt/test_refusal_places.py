"""Where a refused request is wrong: in the body as it was sent, by the type that was meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.cli import main as lint
from pkv_lint.prompt.errors import InputError, RenderError
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.sent_paths import sent_path
from pkv_lint.prompt.traced import trace_value
from pkv_lint.render_cli import main as render

HALF = "\ud800"
LONG = "Current time: 2026-11-29 14:05:33\n" + "You are a clerk. " * 60


def message(role: str = "user", **members: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, **members}]}


def part(**members: Any) -> dict[str, Any]:
    return message(content=[members])


def call(**members: Any) -> dict[str, Any]:
    return message("assistant", tool_calls=[{"id": "a", "type": "function", **members}])


def refusal(body: dict[str, Any], chat_template: str | None = None) -> RenderError:
    with pytest.raises(RenderError) as caught:
        Renderer.load(chat_template=chat_template).render(body)
    return caught.value


@pytest.mark.parametrize(
    ("body", "path", "said"),
    [
        (part(type="text", text=5), "messages[0].content[0].text", "a valid string"),
        (part(type="text"), "messages[0].content[0].text", "Field required"),
        (part(type="image_url", image_url=5), "messages[0].content[0].image_url", "a valid dictionary"),
        (part(type="image_url", image_url={"url": 5}), "messages[0].content[0].image_url.url", "a valid string"),
        (part(type="nonsense", text="x"), "messages[0].content[0].type", "one of 'text', 'image_url', "),
        (message("tool", content="x", tool_call_id=5), "messages[0].tool_call_id", "a valid string"),
        (message(5, content="x"), "messages[0].role", "a valid string"),  # type: ignore[arg-type]
        (
            message("assistant", content=[{"type": "refusal", "refusal": 3}]),
            "messages[0].content[0].refusal",
            "a valid string",
        ),
        (
            call(function={"name": "f", "arguments": {}}),
            "messages[0].tool_calls[0].function.arguments",
            "a valid string",
        ),
        (call(function={"name": "f"}), "messages[0].tool_calls[0].function.arguments", "Field required"),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else "",
)
def test_the_member_of_a_union_that_was_meant(body: dict[str, Any], path: str, said: str) -> None:
    error = refusal(body)
    assert error.path == path and said in error.message


MESSAGES = {"model": "x", "max_tokens": 5, "system": "Be brief.", "messages": [{"role": "user", "content": "hi"}]}
RESPONSES = {"model": "x", "instructions": "Be brief.", "input": [{"role": "user", "content": "hi"}]}
URL = "http://example.com/a.png"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (message(content=f"a{HALF}"), "messages[0].content"),
        (part(type="text", text=HALF), "messages[0].content[0].text"),
        ({**MESSAGES, "system": HALF}, "system"),
        ({**MESSAGES, "messages": [{"role": "user", "content": HALF}]}, "messages[0].content"),
        ({**RESPONSES, "instructions": HALF}, "instructions"),
        ({**RESPONSES, "input": HALF}, "input"),
        (
            {
                **MESSAGES,
                "messages": [
                    {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": URL}}]},
                ],
            },
            "messages[0].content[0].source.url",
        ),
        (
            {**RESPONSES, "input": [{"role": "user", "content": [{"type": "input_image", "image_url": URL}]}]},
            "input[0].content[0].image_url",
        ),
        ({**MESSAGES, "temperature": "hot"}, "temperature"),
    ],
    ids=lambda value: ascii(value)[-60:],
)
def test_the_body_as_it_was_sent(body: dict[str, Any], path: str) -> None:
    assert refusal(body, "{% for m in messages %}{{ m.content }}{% endfor %}").path == path


def test_what_a_conversion_made_is_placed_around_it() -> None:
    chat = Renderer.load().chat_body(trace_value(MESSAGES, ""), "messages")
    assert sent_path(chat, "messages[1].content", (0, 1)) == ("messages[0].content", (0, 1))
    assert sent_path(chat, "messages[1].content.none") == ("messages[0].content", None)
    assert sent_path(chat, "messages[1]") == ("messages[0]", None)
    assert sent_path(chat, "nowhere") is None
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in "ab"]
    chat = Renderer.load().chat_body(trace_value({**MESSAGES, "tools": tools}, ""), "messages")
    assert sent_path(chat, "tools") == ("tools", None)
    assert sent_path(chat, "tools[1]") == ("tools[1]", None)
    assert sent_path(chat, "tools[1].function.parameters") == ("tools[1].input_schema", None)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({**MESSAGES, "system": LONG}, "system"),
        ({**MESSAGES, "system": [{"type": "text", "text": "a"}, {"type": "text", "text": LONG}]}, "system[1].text"),
        ({**RESPONSES, "instructions": LONG}, "instructions"),
        ({**RESPONSES, "instructions": LONG, "input": "hi"}, "instructions"),
        ({"model": "x", "input": [{"role": "system", "content": LONG}, *RESPONSES["input"]]}, "input[0].content"),
    ],
    ids=lambda value: ascii(value)[-60:],
)
def test_volatile_text_of_single_requests(
    body: dict[str, Any], path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(body))
    assert lint([str(file), "--format", "json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["code"], finding["path"], finding["span"]) == ("PKV101", path, [14, 33])
    assert finding["evidence"]["tokens_behind"] > 300


BROKEN = "{{ messages }}\n{% if x %}\n{% endfor %}\n"


@pytest.mark.parametrize("command", [lint, render])
@pytest.mark.parametrize("where", ["file", "directory"])
def test_a_template_that_does_not_parse_is_said_once(
    command: Any, where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = tmp_path / "chat_template.jinja"
    template.write_text(BROKEN)
    vocabulary = Path(__file__).parent.parent.parent / "linter/pkv_lint/prompt/builtin/tokenizer.json"
    (tmp_path / "tokenizer.json").write_bytes(vocabulary.read_bytes())
    file = tmp_path / "traffic.jsonl"
    file.write_text((json.dumps(message(content="hi")) + "\n") * 3)
    named = ["--chat-template", str(template)] if where == "file" else ["--model", str(tmp_path)]
    assert command([str(file), *named]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert f": {template}:3: the chat template does not parse: Encountered unknown tag 'endfor'." in err


def test_a_template_that_a_request_brings_is_a_matter_of_the_request() -> None:
    error = refusal({**message(content="hi"), "chat_template": BROKEN})
    assert error.from_template and error.template_line == 3
    renderer = Renderer.load(chat_template=BROKEN)  # the text itself, no file
    with pytest.raises(RenderError):
        renderer.render(message(content="hi"))
    assert not issubclass(InputError, RenderError)


def test_every_error_of_a_traffic_names_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "traffic.jsonl"
    file.write_text('{"messages": 5}\nnot json\n' + json.dumps(message(content="hi")) + "\n")
    assert render([str(file)]) == 2
    out, err = capsys.readouterr()
    refused, invalid, shown = map(json.loads, out.splitlines())
    assert refused["error"].startswith(f"{file}:1:14: messages: ")
    assert invalid["error"].startswith(f"{file}:2:1: not valid JSON")
    assert isinstance(shown, str)
    assert err == f"pkv-render: {file}: 2 of 3 requests cannot be rendered\n"
