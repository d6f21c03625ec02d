"""The command line of pkv-sim: --sweep, --kv-cache-memory, --memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pkv_sim.cli import main

LLAMA = {"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
CONFIG = {**LLAMA, "hidden_size": 4096, "max_position_embeddings": 4096}
Sim = Callable[..., tuple[int, str, str]]


@pytest.fixture
def sim(capsys: pytest.CaptureFixture[str]) -> Sim:
    def call(*arguments: object) -> tuple[int, str, str]:
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.fixture
def traffic(tmp_path: Path) -> Path:
    """Four conversations that take turns, of 200 blocks in all."""
    path = tmp_path / "traffic.jsonl"
    rows = [
        {"token_ids": list(range(base, base + 160 * turn)), "timestamp": float(turn), "output_tokens": 10}
        for turn in range(1, 6)
        for base in (0, 1000, 2000, 3000)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def document(run: tuple[int, str, str]) -> dict[str, Any]:
    assert (run[0], run[2]) == (0, "")
    found = json.loads(run[1])
    assert isinstance(found, dict)
    return found


MODEL = f"vllm serve --hf-overrides '{json.dumps(CONFIG)}'"


class TestSweep:
    def test_the_contract(self, sim: Sim, traffic: Path) -> None:
        found = document(sim(traffic, "--sweep", "300,60,2k", "--format", "json"))
        curve = found["capacity_curve"]
        assert [point["num_gpu_blocks"] for point in curve] == [60, 300, 2000]
        assert all(list(point) == ["num_gpu_blocks", "cached_tokens", "hit_rate", "refused"] for point in curve)
        alone = document(sim(traffic, "--num-gpu-blocks", "60", "--format", "json"))["summary"]
        assert (curve[0]["cached_tokens"], curve[0]["hit_rate"]) == (alone["cached_tokens"], alone["hit_rate"])
        assert found["summary"]["cached_tokens"] == curve[-1]["cached_tokens"]
        capacity = found["capacity"]
        assert capacity["ideal"]["hit_rate"] - capacity["near_ideal"]["hit_rate"] <= 0.01
        assert 60 < capacity["near_ideal"]["num_gpu_blocks"] < 300 and capacity["smallest"] == 51

    @pytest.mark.parametrize("schedule", ["sequential", "recorded"])
    def test_auto(self, sim: Sim, traffic: Path, schedule: str) -> None:
        curve = document(sim(traffic, "--sweep", "auto", "--schedule", schedule, "--format", "json"))["capacity_curve"]
        assert len(curve) == 12 and curve[0]["num_gpu_blocks"] == 51
        assert [point["refused"] for point in curve] == [0] * 12

    def test_text(self, sim: Sim, traffic: Path) -> None:
        status, out, err = sim(traffic, "--sweep", "20,60,100,300", "--num-gpu-blocks", "60")
        assert (status, err) == (0, "")
        assert "▲ now: 60" in out and "blocks are the smallest cache within 1 point of the ideal hit rate" in out
        assert "16 requests too large" in out and "the largest request needs a cache of 51 blocks" in out

    @pytest.mark.parametrize("value", ["", "1", "0", "-5", "x", "10,,20", "10;20", "1.5", "2000T", "auto,10", "9" * 50])
    def test_nonsense(self, sim: Sim, traffic: Path, value: str) -> None:
        status, out, err = sim(traffic, f"--sweep={value}")
        assert (status, out) == (2, "") and err.count("\n") == 1
        assert "is neither auto nor numbers of blocks from 2 on, with commas in between" in err

    def test_requests_larger_than_every_cache(self, sim: Sim, traffic: Path) -> None:
        status, out, err = sim(traffic, "--sweep", "2,5", "--num-gpu-blocks", "2")
        assert (status, err) == (0, "")
        assert "0 requests, 0 prompt tokens" in out and out.count("20 requests too large") == 2
        assert "note: 20 requests refused; the first, in line 1: needs more than the 1 usable blocks" in out
        assert not [line for line in out.splitlines() if line != line.rstrip()]

    def test_times_are_needed_at_recorded_times(self, sim: Sim, tmp_path: Path) -> None:
        path = tmp_path / "traffic.jsonl"
        path.write_text('{"token_ids": [1, 2, 3]}\n')
        status, out, err = sim(path, "--sweep", "auto", "--schedule", "recorded")
        assert (status, out) == (2, "") and "has no timestamp, which --schedule recorded needs" in err

    def test_not_with_a_comparison(self, sim: Sim, traffic: Path) -> None:
        for option in (["--sweep", "auto"], ["--memory"]):
            status, out, err = sim(traffic, *option, "--compare", traffic)
            assert (status, out) == (2, "") and "--compare shows no" in err


class TestKVCacheMemory:
    def test_the_model_turns_memory_into_blocks(self, sim: Sim, traffic: Path) -> None:
        line = MODEL + " -tp 2"
        arguments = (traffic, "--kv-cache-memory", "1GiB", "--no-causes", "--vllm-args", line)
        found = document(sim(*arguments, "--format", "json"))
        assert found["settings"]["num_gpu_blocks"] == 1024
        assert found["kv_cache_memory"] == {
            "bytes_per_gpu": 1 << 30,
            "gpus": 2,
            "bytes_per_token": 65_536,
            "tokens": 16_384,
        }
        status, out, _ = sim(*arguments, "--sweep", "512,1K")
        assert status == 0
        assert "1.00 GiB of KV cache on each of 2 GPUs, 65,536 bytes a token: 1,024 blocks, 16,384 tokens in all" in out
        assert "         1,024           16,368" in out and "  GiB per GPU" in out
        assert "vLLM would not start" not in out

    def test_the_server_line(self, sim: Sim, traffic: Path) -> None:
        line = MODEL + " --kv-cache-memory-bytes 256M"
        _, out, _ = sim(traffic, "--vllm-args", line)
        assert "0.25 GiB of KV cache, 131,072 bytes a token: 128 blocks, 2,048 tokens in all" in out
        assert "vLLM would not start: no sequence of 4,096 tokens fits" in out
        blocks = {
            words: document(sim(traffic, "--format", "json", "--vllm-args", given, *words.split()))["settings"]
            for words, given in (
                ("--num-gpu-blocks 99", line),
                ("--block-size 16", line + " --num-gpu-blocks-override 77"),
                ("--kv-cache-memory 512MiB", line + " --num-gpu-blocks-override 77"),
            )
        }
        assert [settings["num_gpu_blocks"] for settings in blocks.values()] == [99, 77, 256]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--kv-cache-memory", "40GiB"], "memory becomes blocks by the model's config.json, and there is none"),
            (["--kv-cache-memory", "forty"], "'forty' is no size such as 40GiB"),
            (["--kv-cache-memory", "1GiB", "--num-gpu-blocks", "9"], "both say how large the cache is"),
            (["--vllm-args", "--kv-cache-memory-bytes 1G"], "memory becomes blocks by the model's config.json"),
        ],
    )
    def test_one_line_on_what_is_wrong(self, sim: Sim, traffic: Path, arguments: list[str], message: str) -> None:
        status, out, err = sim(traffic, *arguments)
        assert (status, out, err.count("\n")) == (2, "", 1) and message in err

    def test_too_little(self, sim: Sim, traffic: Path) -> None:
        status, out, err = sim(traffic, "--kv-cache-memory", "1MiB", "--vllm-args", MODEL)
        assert (status, out) == (2, "") and "hold 0 blocks of 16 tokens" in err


class TestMemory:
    def test_the_contract(self, sim: Sim, traffic: Path) -> None:
        found = document(sim(traffic, "--memory", "--num-gpu-blocks", "101", "--format", "json"))["memory"]
        assert (found["requests"], found["length_unknown"], found["token_steps"]) == (20, 0, 200)
        assert found["max_model_len"] == 810
        assert [(item["policy"], item["block_size"]) for item in found["policies"]] == [
            ("maximum", None),
            ("power_of_two", None),
            ("exact", None),
            *(("paged", size) for size in (8, 16, 32, 64, 128, 256)),
        ]
        parts = ("used", "reserved", "internal_fragmentation", "external_fragmentation")
        for item in found["policies"]:
            assert sum(item[part] for part in parts) == pytest.approx(1, abs=1e-5)
            assert item["waste"] == pytest.approx(1 - item["used"], abs=1e-5)
            assert item["sequences"] == pytest.approx(1600 / item["slots"], abs=1e-5)

    def test_text(self, sim: Sim, traffic: Path) -> None:
        _, out, _ = sim(traffic, "--memory", "--vllm-args", "--max-model-len 2048")
        assert "maximum length: 2,048 tokens, the longest of the server; requests share no slot" in out
        assert "  maximum length        2,048" in out and out.count("1.0 x") == 1
        _, out, _ = sim(traffic, "--memory", "--num-gpu-blocks", "101")
        assert "at once" in out and "the longest in the traffic (no --max-model-len is known)" in out

    def test_lengths_that_are_not_known(self, sim: Sim, tmp_path: Path) -> None:
        path = tmp_path / "traffic.jsonl"
        path.write_text('{"token_ids": [1, 2, 3]}\n')
        assert "not known: the traffic does not tell how many tokens were generated" in sim(path, "--memory")[1]
        assert document(sim(path, "--memory", "--format", "json"))["memory"]["policies"] == []
        path.write_text('{"token_ids": [1, 2, 3]}\n{"token_ids": [1, 2, 3], "output_tokens": 3}\n')
        assert "left out: 1 request, whose number of generated tokens is not known" in sim(path, "--memory")[1]
