"""Step times: what a step computes, profiles in files, estimates from data sheets, the time of one request alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.model_config import ModelConfig
from pkv_sim.timing.alone import Alone
from pkv_sim.timing.file import load_timing, timing_from_json, timing_to_json
from pkv_sim.timing.gpus import GPUS, gpu_named
from pkv_sim.timing.roofline import layer_weights, roofline
from pkv_sim.timing.timing_profile import Coefficients, Range, Residuals, StepLoad, TimingProfile, Validity

ROOT = Path(__file__).parent.parent.parent
LLAMA_8B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
FITTED = TimingProfile(
    "fitted",
    "m",
    "d",
    Coefficients(step=1.0, prefill_token=0.1, attention_pair=0.01, decode_sequence=0.5, decode_context=0.001),
    {"prefill_token": Range(2, 100), "decode_context": Range(1, 50)},
    Residuals(40, 0.03, 0.2),
)


class TestStepLoad:
    def test_one_prompt(self) -> None:
        # Token i attends to i + 1 tokens: 1 + 2 + 3 + 4.
        assert StepLoad.of([(0, 4)]) == StepLoad(4, 10, 0, 0)

    def test_a_chunk_behind_computed_tokens(self) -> None:
        assert StepLoad.of([(10, 3)]) == StepLoad(3, 11 + 12 + 13, 0, 0)

    def test_chunks_have_the_pairs_of_the_whole(self) -> None:
        chunks = [StepLoad.of([chunk]) for chunk in ((0, 7), (7, 5), (12, 8))]
        assert sum(load.attention_pair for load in chunks) == StepLoad.of([(0, 20)]).attention_pair

    def test_one_new_token_is_decode(self) -> None:
        assert StepLoad.of([(9, 1), (4, 1), (0, 2)]) == StepLoad(2, 3, 2, 15)

    def test_nothing(self) -> None:
        assert StepLoad.of([]) == StepLoad(0, 0, 0, 0)


def test_the_time_of_a_step() -> None:
    assert FITTED.seconds(StepLoad(4, 10, 2, 15)) == pytest.approx(1.0 + 0.4 + 0.1 + 1.0 + 0.015)


class TestAlone:
    def test_one_step(self) -> None:
        # 6 of 10 tokens are cached: 4 tokens that attend to 7, 8, 9 and 10.
        assert Alone(FITTED, 8192).ttft(10, 6) == pytest.approx(1.0 + 0.4 + 0.34)

    def test_a_long_prompt_takes_several_steps(self) -> None:
        # 4, 4 and 1 tokens; the last one alone is decode, with 9 tokens to look at.
        assert Alone(FITTED, 4).ttft(9, 0) == pytest.approx(3 * 1.0 + 8 * 0.1 + 36 * 0.01 + 0.5 + 0.009)

    def test_what_lies_outside_the_fit_is_said(self) -> None:
        alone = Alone(FITTED, 8192)
        alone.ttft(101, 0)
        alone.ttft(50, 0)
        alone.ttft(60, 59)
        assert alone.notes() == [
            "prefill_token is outside what the timing was fitted to (2 to 100 in a step) in 1 of 3 steps",
            "decode_context is outside what the timing was fitted to (1 to 50 in a step) in 1 of 3 steps",
        ]

    def test_a_load_of_nothing_is_never_outside(self) -> None:
        validity = Validity(FITTED)
        validity.add(StepLoad(0, 0, 1, 20))
        assert validity.notes() == []


class TestFile:
    def test_round_trip(self, tmp_path: Path) -> None:
        file = tmp_path / "timing.json"
        file.write_text(json.dumps(timing_to_json(FITTED)))
        assert load_timing(str(file)) == FITTED

    def test_what_may_be_missing(self) -> None:
        value = timing_to_json(FITTED)
        del value["valid"], value["residuals"]
        assert timing_from_json(value).valid == {} and timing_from_json(value).residuals is None

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"version": 2}, "version: is not 1"),
            ({"kind": "guess"}, "kind: must be one of fitted, roofline"),
            ({"model": None}, "model: needs text"),
            ({"device": 5}, "device: needs text"),
            ({"coefficients": []}, "coefficients: needs a JSON object"),
            ({"coefficients": {"step": 1}}, "coefficients.prefill_token: needs a number from 0 to 1e+15"),
            ({"coefficients": FITTED.coefficients._asdict() | {"step": -1}}, "coefficients.step: needs a number"),
            ({"coefficients": FITTED.coefficients._asdict() | {"step": True}}, "coefficients.step: needs a number"),
            ({"coefficients": FITTED.coefficients._asdict() | {"step": 10**400}}, "coefficients.step: needs a number"),
            ({"intake": {"request": 1e308, "prompt_token": 0}}, "intake.request: needs a number from 0 to 1e+15"),
            ({"coefficients": FITTED.coefficients._asdict() | {"stop": 1}}, "coefficients.stop: is no coefficient"),
            ({"valid": 5}, "valid: needs a JSON object"),
            ({"valid": {"step": [0, 1]}}, "valid.step: is no load of a step"),
            ({"valid": {"prefill_token": [5, 1]}}, "valid.prefill_token: needs two numbers, the smaller one first"),
            ({"valid": {"prefill_token": [5]}}, "valid.prefill_token: needs two numbers"),
            ({"residuals": {"points": 5}}, "residuals.median: needs a number"),
        ],
    )
    def test_what_is_wrong(self, tmp_path: Path, change: dict[str, Any], message: str) -> None:
        file = tmp_path / "timing.json"
        file.write_text(json.dumps(timing_to_json(FITTED) | change))
        with pytest.raises(InputError) as caught:
            load_timing(str(file))
        assert str(caught.value).startswith(f"{file}: {message}")

    @pytest.mark.parametrize(
        ("text", "message"),
        [("", "not valid JSON"), ("[]", "a timing profile is a JSON object"), ("{", "not valid JSON")],
    )
    def test_no_profile_at_all(self, tmp_path: Path, text: str, message: str) -> None:
        file = tmp_path / "timing.json"
        file.write_text(text)
        with pytest.raises(InputError, match=message):
            load_timing(str(file))

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no such file"):
            load_timing(str(tmp_path / "none"))


def estimate(gpu: str = "H100-SXM", line: str = "", **config: Any) -> TimingProfile:
    deployment = Deployment.from_vllm_args(line)
    return roofline(ModelConfig.from_json(LLAMA_8B | config), "Llama", gpu_named(gpu), deployment)


class TestRoofline:
    def test_weights(self) -> None:
        # 32 layers of queries and outputs (2 x 4096 x 4096), keys and values (2 x 4096 x 1024), MLP (3 x 4096 x 14336).
        config = ModelConfig.from_json(LLAMA_8B)
        assert layer_weights(config) == 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
        # With embeddings and output layer these are the 8.03 billion parameters of the model.
        assert round((layer_weights(config) + 2 * 4096 * 128256) / 1e9, 2) == 8.03

    def test_by_hand(self) -> None:
        found = estimate().coefficients
        layers, output = 6_979_321_856, 525_336_576
        assert found.step == pytest.approx(2 * (layers + output) / 3.35e12)
        assert found.prefill_token == pytest.approx(2 * layers / 989e12)
        assert found.attention_pair == pytest.approx(32 * 4 * 4096 / 989e12)
        assert found.decode_sequence == pytest.approx(2 * (layers + output) / 989e12)
        assert found.decode_context == pytest.approx(2 * 32 * 8 * 128 * 2 / 3.35e12)

    def test_tensor_parallel_gpus_share_the_work(self) -> None:
        one, four = estimate().coefficients, estimate(line="-tp 4").coefficients
        assert four == pytest.approx([value / 4 for value in one])
        assert estimate(line="-tp 4").device == "4 x H100-SXM"
        # More GPUs than KV heads keep copies: sixteen read a head each of eight.
        sixteen = estimate(line="-tp 16").coefficients
        assert sixteen.decode_context == pytest.approx(one.decode_context / 8)

    def test_a_smaller_cache_is_read_faster(self) -> None:
        half = estimate(line="--kv-cache-dtype fp8").coefficients
        assert half.decode_context == pytest.approx(estimate().coefficients.decode_context / 2)

    def test_names(self) -> None:
        assert estimate().model == "Llama" and estimate().kind == "roofline" and estimate().valid == {}
        config = ModelConfig.from_json(LLAMA_8B)
        assert roofline(config, None, gpu_named("l4"), Deployment()).model == "llama"

    @pytest.mark.parametrize(
        ("config", "line", "message"),
        [
            ({"model_type": "qwen3_moe"}, "", "--gpu: qwen3_moe is not estimated, only dense models"),
            ({"model_type": "deepseek_v3", "kv_lora_rank": 512}, "", "--gpu: deepseek_v3 is not estimated"),
            ({"intermediate_size": None}, "", "--gpu: llama is not estimated"),
            ({"quantization_config": {"quant_method": "awq"}}, "", "weights in other formats"),
            ({}, "--dtype float32", "weights in other formats"),
            ({}, "--quantization fp8", "--quantization: its effect"),
            ({}, "-q fp8", "-q: its effect"),
            ({}, "--cpu-offload-gb 4", "--cpu-offload-gb: its effect"),
            ({}, "-pp 2", "--pipeline-parallel-size: pipeline stages"),
        ],
    )
    def test_what_is_not_estimated(self, config: dict[str, Any], line: str, message: str) -> None:
        with pytest.raises(InputError) as caught:
            estimate(line=line, **config)
        assert str(caught.value).startswith(("--gpu: " + message, message)) and "--timing" in str(caught.value)

    def test_no_model(self) -> None:
        with pytest.raises(InputError, match="there is none: name a --model"):
            roofline(None, None, gpu_named("L4"), Deployment())

    def test_the_example(self) -> None:
        given = load_timing(str(ROOT / "examples" / "timing_8b_h100.json"))
        assert given.kind == "roofline" and given.device == "H100-SXM"
        assert given.coefficients == pytest.approx(estimate().coefficients, rel=1e-5)


class TestGpus:
    def test_names_without_case(self) -> None:
        assert gpu_named("h100-sxm").name == "H100-SXM"
        with pytest.raises(InputError, match="--gpu: T4 is not known, only A10, "):
            gpu_named("T4")

    def test_defaults_are_those_of_vllm(self) -> None:
        """`EngineArgs.get_batch_defaults`: by memory, and the A100 apart."""
        limits = {name: (gpu.max_num_batched_tokens, gpu.max_num_seqs) for name, gpu in GPUS.items()}
        assert limits["H100-SXM"] == limits["H200"] == (8192, 1024)
        assert limits["B200"] == limits["MI300X"] == (16384, 1024)
        assert limits["A100-80G"] == limits["L4"] == limits["L40S"] == (2048, 256)
