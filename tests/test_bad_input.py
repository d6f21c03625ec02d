"""Whatever a file holds, the linter answers: a finding, or one clear line, and the other files are judged."""

from __future__ import annotations

import io
import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkv_lint.batch import Batch, lint_files
from pkv_lint.cli import main
from pkv_lint.linting import load_rules
from pkv_lint.outputs import lines
from pkv_lint.prompt import json_values
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.template import model_directory

FORMATS = ("text", "concise", "json", "sarif", "github", "html")
RENDERER, RULES = Renderer.load(), load_rules()
GOOD = {"messages": [{"role": "system", "content": "Be kind. " * 40}, {"role": "user", "content": "hi"}]}

WORDS = st.sampled_from(
    [
        "",
        "hi",
        "system",
        "user",
        "assistant",
        "tool",
        "text",
        "image_url",
        "function",
        "none",
        "auto",
        "\ud800",
        "\0",
        "{}",
    ]
)
ODD: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


def members(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object with some of these members, now and then of another type."""
    return st.fixed_dictionaries({}, optional={name: value | ODD for name, value in values.items()})


PART = members(type=WORDS, text=WORDS, image_url=members(url=WORDS), cache_control=members(type=WORDS), source=ODD)
CALL = members(id=WORDS, type=WORDS, function=members(name=WORDS, arguments=WORDS), index=ODD)
MESSAGE = members(
    role=WORDS,
    content=WORDS | st.lists(PART, max_size=2),
    tool_calls=st.lists(CALL, max_size=2),
    tool_call_id=WORDS,
    reasoning_content=WORDS,
    name=WORDS,
)
TOOL = members(
    type=WORDS, function=members(name=WORDS, description=WORDS, parameters=ODD), input_schema=ODD, name=WORDS
)
BODY = members(
    model=WORDS,
    messages=st.lists(MESSAGE, max_size=4),
    tools=st.lists(TOOL, max_size=3),
    tool_choice=WORDS,
    system=WORDS | st.lists(PART, max_size=2),
    input=st.lists(MESSAGE, max_size=3),
    instructions=WORDS,
    prompt=WORDS,
    cache_salt=WORDS,
    n=ODD,
    prompt_logprobs=ODD,
    chat_template_kwargs=ODD,
    documents=ODD,
    max_tokens=ODD,
)
LINE = BODY | members(
    request=BODY, session_id=WORDS, timestamp=ODD, completion=WORDS, token_ids=st.lists(ODD, max_size=3)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(LINE, min_size=1, max_size=3))
def test_any_request_is_judged_or_refused(values: list[Any]) -> None:
    data = "\n".join(map(json.dumps, values)).encode()
    batch = lint_files(
        ["-"],
        RULES,
        lambda line: RENDERER,
        lambda _: 16,
        zone=UTC,
        now=datetime(2026, 1, 1),
        source=lambda _: io.BytesIO(data),
    )
    assert not batch.failed
    judged = sum(len(report.facts.turns) + len(report.unusable) for report in batch.reports)
    assert judged <= len(values)
    assert all(isinstance(line, str) for name in FORMATS for line in shown(name, batch))


def shown(name: str, batch: Batch) -> Iterator[str]:
    return lines(name, batch.reports)


def test_a_line_that_no_server_takes_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(json_values, "MAX_LINE_BYTES", 1024**2)
    long = json.dumps({"messages": [{"role": "user", "content": "x" * 1024**2}]})
    file = tmp_path / "traffic.jsonl"
    file.write_text("\n".join([json.dumps(GOOD), long, json.dumps(GOOD)]))
    assert main([str(file), "--format", "json"]) == 2
    shown = json.loads(capsys.readouterr().out)
    assert shown["summary"]["requests"] == 2
    (finding,) = shown["findings"]
    assert (finding["line"], finding["message"]) == (2, "the line is longer than 1 MiB")


@pytest.mark.parametrize("line", [b"\xff\xfe{}", b"\0\0"], ids=["UTF-16", "NUL"])
def test_a_bad_line_is_named_by_its_number(line: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "traffic.jsonl"
    file.write_bytes(json.dumps(GOOD).encode() + b"\n" + line + b"\n" + json.dumps(GOOD).encode())
    assert main([str(file)]) == 2
    assert capsys.readouterr().err.startswith(f"pkv-lint: {file}:2:1: PKV901 ")


@pytest.mark.parametrize("later", [{}, {"chat_template_kwargs": None}], ids=["left out", "null"])
def test_arguments_of_the_template_that_are_gone(later: dict[str, Any]) -> None:
    template = "{{ (mode | default('none')) * 90 }}{% for m in messages %}{{ m.content }}\n{% endfor %}"
    renderer = Renderer.load(chat_template=template)
    lines = [{**GOOD, "chat_template_kwargs": {"mode": "verbose"}}, {**GOOD, **later}]
    data = "\n".join(map(json.dumps, lines)).encode()
    batch = lint_files(["-"], RULES, lambda line: renderer, lambda _: 16, zone=UTC, source=lambda _: io.BytesIO(data))
    assert [finding.code for report in batch.reports for finding in report.findings] == ["PKV103"]


@pytest.mark.parametrize(("levels", "said"), [(300, "PKV205"), (330, "PKV902"), (900, "PKV902")])
def test_schemas_as_deep_as_can_be_compared(
    levels: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = '{"a":' * levels + "1" + "}" * levels
    texts = [f'{{"type":"object","properties":{deep}}}', f'{{"properties":{deep},"type":"object"}}']
    tools = [f'[{{"type":"function","function":{{"name":"f","parameters":{text}}}}}]' for text in texts]
    bodies = [json.dumps(GOOD)[:-1] + f', "tools": {text}}}' for text in tools]
    file = tmp_path / "traffic.jsonl"
    file.write_text("\n".join(bodies))
    assert main([str(file), "--fix", "--format", "json"]) == 2 * (said == "PKV902")
    captured = capsys.readouterr()
    if said == "PKV902":
        found = json.loads(captured.out)["findings"]
        assert [(one["code"], one["line"]) for one in found] == [(said, 1), (said, 2)]
        assert found[0]["message"] == "is nested more than 320 levels deep"
    else:
        assert f"{said} fixed" in captured.err


def test_images_are_taken_where_no_model_is_named(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"messages": [{"role": "user", "content": [image, {"type": "text", "text": "What?"}]}]}))
    assert main([str(file)]) == 0


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url"},
        {"type": "image_url", "image_url": {"url": ""}},
        {"type": "image_url", "image_url": None},
        {"type": "input_image"},
        {"type": "video_url", "video_url": {}},
    ],
    ids=json.dumps,
)
def test_a_part_that_holds_no_image(part: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"messages": [{"role": "user", "content": [part, {"type": "text", "text": "What?"}]}]}))
    assert main([str(file)]) == 2
    assert "PKV902 messages[0].content" in capsys.readouterr().err


class TestHub:
    """A hub that does not answer: whatever takes so long, it is waited for once and not for long."""

    @pytest.fixture(autouse=True)
    def soon(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr("pkv_lint.prompt.template.HUB_SECONDS", 0.3)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    def answer(self, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> str:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
        start = time.monotonic()
        with pytest.raises(InputError) as caught:
            model_directory("nobody/nothing")
        assert time.monotonic() - start < 4
        return str(caught.value)

    def test_nobody_listens(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            said = self.answer(monkeypatch, f"http://127.0.0.1:{unused.getsockname()[1]}")
        assert said.startswith("nobody/nothing: not in the local hub cache, and the hub cannot be reached")

    def test_it_listens_and_says_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            said = self.answer(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert "cannot be reached" in said

    def test_it_answers_and_sends_next_to_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Drip(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                with suppress(OSError):  # nobody waits for the end
                    for _ in range(40):
                        self.wfile.write(b"{")
                        time.sleep(0.05)

            do_HEAD = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Drip) as hub:
            Thread(target=hub.serve_forever, daemon=True).start()
            assert "no answer in" in self.answer(monkeypatch, f"http://127.0.0.1:{hub.server_port}")
            hub.shutdown()

    def test_its_name_cannot_be_looked_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def lookup(*_: Any, **__: Any) -> Any:
            time.sleep(1)
            raise socket.gaierror("no answer")

        monkeypatch.setattr(socket, "getaddrinfo", lookup)
        assert "no answer in" in self.answer(monkeypatch, "http://hub.invalid")


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that is never readable")
def test_a_file_that_breaks_while_it_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = tmp_path / "good.json"
    good.write_text(json.dumps(GOOD))
    assert main(["/proc/self/mem", str(good)]) == 2
    captured = capsys.readouterr()
    assert captured.err == "pkv-lint: /proc/self/mem: cannot be read (input/output error)\n"
    assert "1 request" in captured.out
