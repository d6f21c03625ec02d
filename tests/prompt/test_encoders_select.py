"""Which renderer a model gets."""

from __future__ import annotations

import pytest

from pkv_lint.prompt.encoders import Mode, select
from pkv_lint.prompt.errors import InputError


@pytest.mark.parametrize(
    ("model_type", "architectures", "mode", "files", "expected"),
    [
        (None, [], "auto", [], "hf"),
        ("qwen3", ["Qwen3ForCausalLM"], "auto", ["tokenizer.json", "model.safetensors"], "hf"),
        ("gpt_oss", ["GptOssForCausalLM"], "auto", [], "harmony"),
        ("gpt_oss", ["GptOssForCausalLM"], "hf", [], "harmony"),
        (None, ["DeepseekV32ForCausalLM"], "auto", [], "deepseek_v32"),
        (None, ["DeepseekV4ForCausalLM"], "auto", [], "deepseek_v4"),
        (None, ["DeepseekV4ForConditionalGeneration"], "auto", [], "deepseek_v4"),
        (None, ["DeepseekV32ForCausalLM"], "hf", [], "hf"),
        (None, ["DeepseekV3ForCausalLM"], "deepseek_v32", [], "deepseek_v32"),
        (None, [], "Mistral", [], "mistral"),
        ("mistral3", [], "auto", ["consolidated.safetensors", "tekken.json"], "mistral"),
        ("mistral", [], "auto", ["consolidated-00001-of-00002.safetensors", "tokenizer.model.v3"], "mistral"),
        ("mistral", [], "auto", ["consolidated.safetensors", "tokenizer.model"], "hf"),
        ("mistral", [], "auto", ["model.safetensors", "tekken.json"], "hf"),
        ("mistral", [], "hf", ["consolidated.safetensors", "tekken.json"], "hf"),
        (None, ["MoonshotKimiaForCausalLM"], "auto", [], "hf"),
        (None, [], "alpamayo2_super", [], "hf"),
    ],
)
def test_selected(
    model_type: str | None, architectures: list[str], mode: str, files: list[str], expected: Mode
) -> None:
    assert select(model_type, architectures, mode, files) == expected


@pytest.mark.parametrize(
    ("architectures", "mode", "name"),
    [
        (["DeepseekV41ForCausalLM"], "auto", "deepseek_v41"),
        (["KimiK3ForConditionalGeneration"], "auto", "kimi_k3"),
        (["InklingForCausalLM"], "auto", "inkling"),
        (["InklingForConditionalGeneration"], "auto", "inkling"),
        ([], "terratorch", "terratorch"),
        ([], "cohere", "cohere"),
    ],
)
def test_refused_by_name(architectures: list[str], mode: str, name: str) -> None:
    with pytest.raises(InputError, match=name):
        select(None, architectures, mode, [])


def test_unknown_mode() -> None:
    with pytest.raises(InputError, match="no --tokenizer-mode 'slow'"):
        select(None, [], "slow", [])
