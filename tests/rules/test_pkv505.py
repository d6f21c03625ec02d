"""PKV505: prompts that begin with two BOS tokens."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.findings import Finding
from pkv_lint.linting import lint_traffic
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.traffic import read_requests

from .templates import asked, template

BOS = "<|endoftext|>"
"""The built-in vocabulary has no token of its own for this; one of its special tokens plays the part."""
WITH_BOS = template(front="{{ bos_token }}")
RESPONSES = {"model": "m", "instructions": "Be brief.", "input": "Which belt fits the K 114?"}

Load = Callable[..., Renderer]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """A renderer with a tokenizer that puts BOS in front (`adds`) and whose configuration names it (`named`)."""

    def load(source: str = WITH_BOS, *, adds: bool = True, named: bool = True) -> Renderer:
        vocabulary = json.loads(files("pkv_lint.prompt.builtin").joinpath("tokenizer.json").read_text(encoding="utf-8"))
        token = next(entry["id"] for entry in vocabulary["added_tokens"] if entry["content"] == BOS)
        if adds:
            byte_level = vocabulary["post_processor"]
            single = [{"SpecialToken": {"id": BOS, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
            template_processing = {
                "type": "TemplateProcessing",
                "single": single,
                "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {BOS: {"id": BOS, "ids": [token], "tokens": [BOS]}},
            }
            processors = [template_processing] if byte_level is None else [byte_level, template_processing]
            vocabulary["post_processor"] = {"type": "Sequence", "processors": processors}
        (tmp_path / "tokenizer.json").write_text(json.dumps(vocabulary), encoding="utf-8")
        (tmp_path / "tokenizer_config.json").write_text(
            json.dumps({"bos_token": BOS} if named else {}), encoding="utf-8"
        )
        return Renderer.load(chat_template=source, tokenizer=str(tmp_path))

    return load


def found(renderer: Renderer, *lines: dict[str, Any]) -> list[Finding]:
    text = "\n".join(map(json.dumps, lines))
    report = lint_traffic(read_requests(io.BytesIO(text.encode()), name="traffic.jsonl"), renderer)
    assert not report.unusable, report.unusable
    return [finding for finding in report.findings if finding.code == "PKV505"]


def rendered(renderer: Renderer) -> str:
    text = renderer.render(asked()).text
    assert text is not None
    return text


def test_responses(load: Load) -> None:
    renderer = load()
    (finding,) = found(renderer, RESPONSES)
    assert (finding.severity, finding.blame, finding.path) == ("warning", "engine", None)
    assert list(renderer.render(RESPONSES).token_ids[:2]) == [renderer.tokenizer.token_id(BOS)] * 2


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "{}"},
        {"prompt": ["{}"]},
        {"prompt": "{}", "add_special_tokens": True},
        {"prompt": BOS + "Once upon a time"},
        {"prompt": BOS},
    ],
)
def test_rendered_text_for_completions(load: Load, body: dict[str, Any]) -> None:
    renderer = load()
    prompt = body["prompt"]
    text = [rendered(renderer)] if isinstance(prompt, list) else prompt.replace("{}", rendered(renderer))
    (finding,) = found(renderer, {**body, "prompt": text})
    assert finding.severity == "warning"


def test_ids_with_two(load: Load) -> None:
    renderer = load()
    token = renderer.tokenizer.token_id(BOS)
    assert len(found(renderer, {"prompt": [token, token, 300, 301]})) == 1
    assert len(found(renderer, {"token_ids": [token, token, 300, 301]})) == 1


def test_special_tokens_asked_for(load: Load) -> None:
    (finding,) = found(load(), asked(add_special_tokens=True))
    assert (finding.path, finding.blame) == ("add_special_tokens", "client")


def test_a_template_that_writes_it_out(load: Load) -> None:
    assert len(found(load(template(front=BOS), named=False), RESPONSES)) == 1


def test_a_template_that_prints_it_twice(load: Load) -> None:
    assert len(found(load(template(front="{{ bos_token }}{{ bos_token }}"), adds=False), asked())) == 1


def test_all_requests_are_counted(load: Load) -> None:
    (finding,) = found(load(), asked(), RESPONSES, asked(2), RESPONSES, {"prompt": BOS + "Hi"})
    assert (finding.request, finding.requests_affected) == (1, 3)


def test_leaves_alone(load: Load) -> None:
    renderer = load()
    token = renderer.tokenizer.token_id(BOS)
    quiet: list[dict[str, Any]] = [
        asked(),
        asked(add_special_tokens=False),
        {"prompt": "Once upon a time"},
        {"prompt": rendered(renderer), "add_special_tokens": False},
        {"prompt": [token, 300, 301, 302]},
        {"prompt": f"Text with {BOS}{BOS} inside"},
        {"token_ids": [300, 301, 302]},
    ]
    for body in quiet:
        assert found(renderer, body) == [], body
    assert found(load(template(), adds=True), RESPONSES) == []
    assert found(load(WITH_BOS, adds=False), RESPONSES) == []
    assert found(load(template(), adds=False, named=False), RESPONSES) == []
    assert found(Renderer.load(), {"prompt": BOS + BOS + "Hi"}, RESPONSES) == []
