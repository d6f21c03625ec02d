"""`pkv-engine generate` and `bench`, on the tiny model and on models in files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from pkv_engine.cli import main
from pkv_lint.prompt import builtin

from . import families

SMALL = ["--max-tokens", "6", "--num-gpu-blocks", "64"]


def generate(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Any]:
    assert main(["generate", *SMALL, *arguments, "--format", "json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_tiny_replies(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "steps.jsonl"
    arguments = ["--model", "tiny", "--check-kv", "--step-log", str(log)]
    first, second = generate(
        capsys, *arguments, "--prompt", "Tell me of hedgehogs" * 9, "--prompt", "Tell me of hedgehogs" * 8
    )
    assert first["finish_reason"] == "length" and len(first["token_ids"]) == 6
    assert second["cached_tokens"] >= 16
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events == ["arrival", "arrival", *["step"] * 6]
    assert main(["generate", *SMALL, "--model", "tiny", "--prompt", "Tell me of hedgehogs" * 9]) == 0
    assert capsys.readouterr().out == first["text"] + "\n"


def test_a_request_from_a_file_and_raw_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    body = tmp_path / "request.json"
    body.write_text(json.dumps({"messages": [{"role": "user", "content": "hi"}]}))
    (reply,) = generate(capsys, "--model", "tiny", "--request", str(body))
    assert reply == generate(capsys, "--model", "tiny", "--prompt", "hi")[0]
    (raw,) = generate(capsys, "--model", "tiny", "--prompt", "hi", "--raw")
    assert raw["prompt_tokens"] < reply["prompt_tokens"]


def test_bench_prints_what_it_measured(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--prompt-tokens", "40", "--sequences", "2", "--output-tokens", "3", "--rounds", "1"]
    assert main(["bench", "--model", "tiny", "--num-gpu-blocks", "64", *sizes]) == 0
    out = capsys.readouterr().out
    assert "the same with 32 of them cached" in out and "decoding 2 sequences" in out


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A model directory as transformers saves it, with the built-in vocabulary cut to the model's."""
    folder = tmp_path / "model"
    families.reference("qwen3").save_pretrained(folder)
    save_vocabulary(folder)
    return folder


def save_vocabulary(folder: Path) -> None:
    alphabet = json.loads(builtin.load()[1].backend.to_str())["model"]["vocab"]
    letters = [token for token, _ in sorted(alphabet.items(), key=lambda item: item[1]) if len(token) == 1]
    vocabulary = {token: number for number, token in enumerate(["<|end|>", *letters])}
    tokenizer = json.loads(builtin.load()[1].backend.to_str())
    tokenizer["model"] |= {"vocab": vocabulary, "merges": []}
    tokenizer["added_tokens"] = [tokenizer["added_tokens"][0] | {"id": 0, "content": "<|end|>"}]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": template}))


def expected(family: str, prompt: list[int]) -> list[int]:
    with torch.inference_mode():
        generated = families.reference(family).generate(
            torch.tensor([prompt]), max_new_tokens=6, do_sample=False, pad_token_id=0, eos_token_id=0
        )
    ids: list[int] = generated[0, len(prompt) :].tolist()
    return ids


def test_a_model_directory(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (reply,) = generate(capsys, "--model", str(directory), "--prompt", "hedgehogs")
    vocabulary = json.loads((directory / "tokenizer.json").read_text())["model"]["vocab"]
    assert reply["token_ids"] == expected("qwen3", [vocabulary[letter] for letter in "hedgehogs"])


@pytest.mark.parametrize("family", ["llama_multi_head", "qwen2", "qwen3_yarn"])
def test_a_gguf_file(family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_vocabulary(tmp_path)
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    file = tmp_path / "model.gguf"
    write_gguf(file, family, vocabulary)
    (reply,) = generate(capsys, "--model", str(file), "--prompt", "hedgehogs")
    assert reply["token_ids"] == expected(family, [vocabulary[letter] for letter in "hedgehogs"])


def write_gguf(file: Path, family: str, vocabulary: dict[str, int]) -> None:
    """As llama.cpp's converter does: its names, its order of query and key rows for llama."""
    from pkv_engine.model.gguf_file import NAMES

    model = families.reference(family)
    config = model.config
    architecture = config.model_type
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if config.rope_parameters["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(config.rope_parameters["factor"])
        writer.add_rope_scaling_orig_ctx_len(config.rope_parameters["original_max_position_embeddings"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    padding = [f"<|{number}|>" for number in range(len(vocabulary), config.vocab_size)]
    writer.add_token_list([*vocabulary, *padding])
    writer.add_token_types([3, *[1] * (len(vocabulary) - 1), *[3] * len(padding)])
    writer.add_token_merges([])
    writer.add_eos_token_id(0)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")
    for name, tensor in model.state_dict().items():
        stem, kind = name.rsplit(".", 1)
        if stem == "lm_head" and config.tie_word_embeddings:
            continue
        block = ""
        if stem.startswith("model.layers."):
            number, stem = stem.removeprefix("model.layers.").split(".", 1)
            block = f"blk.{number}."
        values = tensor.numpy()
        if architecture == "llama" and stem in ("self_attn.q_proj", "self_attn.k_proj"):
            heads = config.num_attention_heads if "q_proj" in stem else config.num_key_value_heads
            values = values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        writer.add_tensor(f"{block}{NAMES[stem]}.{kind}", np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_that_counts_too_far(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_token_types([1, 1])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    data, name = file.read_bytes(), b"tokenizer.ggml.token_type"
    count = data.index(name) + len(name) + 8  # behind the types of the value and of its items
    file.write_bytes(data[:count] + (1 << 50).to_bytes(8, "little") + data[count + 8 :])
    assert "it ends before what it counts" in refused(capsys, "--model", str(file), "--prompt", "a")


@pytest.mark.parametrize("change", ["no token types", "other merges", "no such end", "no template"])
def test_gguf_metadata_that_does_not_fit_together(
    change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_token_list(["a", "b"])
    writer.add_tokenizer_model("gpt2")
    if change != "no token types":
        writer.add_token_types([1, 1])
    if change == "other merges":
        writer.add_token_merges(["a c"])
    if change == "no such end":
        writer.add_eos_token_id(99)
    for add, value in (
        (writer.add_block_count, 1),
        (writer.add_context_length, 64),
        (writer.add_embedding_length, 32),
        (writer.add_feed_forward_length, 64),
        (writer.add_head_count, 4),
        (writer.add_layer_norm_rms_eps, 1e-5),
    ):
        add(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    error = refused(capsys, "--model", str(file), "--prompt", "a")
    expected = "there is no chat template" if change == "no template" else "its metadata cannot be used"
    assert error.startswith(f"pkv-engine: {file}: {expected}")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["generate", *SMALL, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    return captured.err


def test_one_line_says_what_is_wrong(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no such model directory" in refused(capsys, "--model", str(tmp_path / "no"), "--prompt", "a")
    assert "not a GGUF file" in refused(capsys, "--model", str(Path(__file__)), "--prompt", "a")
    assert main([]) == 2 and "Missing command" in capsys.readouterr().err
    assert "give --prompt" in refused(capsys, "--model", "tiny")
    assert "cannot be read" in refused(capsys, "--model", "tiny", "--request", str(tmp_path / "no"))
    assert "the model allows 32768" in refused(capsys, "--model", "tiny", "--prompt", "a", "--max-model-len", "40000")
    assert "has room for 1008" in refused(capsys, "--model", "tiny", "--prompt", "a", "--max-model-len", "1009")
    assert "leave no room" in refused(capsys, "--model", "tiny", "--prompt", "a " * 2000)
    assert "cannot be written" in refused(capsys, "--model", "tiny", "--prompt", "a", "--step-log", "/no/such")
    assert "other --tokenizer" in refused(capsys, "--model", "tiny", "--prompt", "a", "--tokenizer", str(directory))
    assert "no such model directory" in refused(capsys, "--model", "~nobody/at/home", "--prompt", "a")
    assert "not a hub id" in refused(capsys, "--model", "x" * 5000, "--prompt", "a")
    assert "not enough memory" in refused(capsys, "--model", "tiny", "--prompt", "a", "--num-gpu-blocks", str(1 << 40))
    assert "--seed" in refused(capsys, "--model", "tiny", "--prompt", "a", "--seed", str(1 << 63))
    body = tmp_path / "body.json"
    body.write_text('{"messages": [{"role": "user", "content": 5}]}')
    error = refused(capsys, "--model", "tiny", "--request", str(body))
    assert error.startswith(f"pkv-engine: {body}: messages[0].content: ")
    index = directory / "model.safetensors.index.json"
    for content in ("[]", '{"weight_map": {"model.norm.weight": 3}}', "[" * 100_000):
        index.write_text(content)
        assert "not an index of safetensors files" in refused(capsys, "--model", str(directory), "--prompt", "a")
    index.unlink()
    (directory / "model.safetensors").write_bytes(b"not weights")
    assert "not a safetensors file" in refused(capsys, "--model", str(directory), "--prompt", "a")
    (directory / "model.safetensors").unlink()
    assert "no such file of weights" in refused(capsys, "--model", str(directory), "--prompt", "a")
    if not torch.cuda.is_available():
        assert "no CUDA device" in refused(capsys, "--model", "tiny", "--prompt", "a", "--device", "cuda")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "pip install 'pkv-lint[engine]'" in refused(capsys, "--model", "tiny", "--prompt", "a")
