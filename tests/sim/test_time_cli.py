"""Replicas and times on the command line: text, JSON, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pkv_lint.prompt.deployment import Deployment
from pkv_sim.cli import main
from pkv_sim.serving.limits import SchedulerLimits
from pkv_sim.timing.gpus import gpu_named

ROOT = Path(__file__).parent.parent.parent
TRAFFIC = str(ROOT / "examples" / "traffic.jsonl")
TIMING = ("--timing", str(ROOT / "examples" / "timing_8b_h100.json"))
SIMULATED = ("--schedule", "simulated", *TIMING)
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 1000,
}


class Run(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


Sim = Callable[..., Run]


@pytest.fixture
def sim(capsys: pytest.CaptureFixture[str]) -> Sim:
    def call(*arguments: str | Path) -> Run:
        status = main([*map(str, arguments), "--offline", "--no-causes"])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Run(status, captured.out, captured.err)

    return call


@pytest.fixture
def traffic(tmp_path: Path) -> Path:
    path = tmp_path / "traffic.jsonl"
    lines = [
        {"timestamp": 1.5 * n, "session_id": str(n % 3), "token_ids": list(range(100 + 20 * n)), "output_tokens": 40}
        for n in range(9)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


class TestReplicas:
    def test_text(self, sim: Sim, traffic: Path) -> None:
        run = sim(traffic, "--replicas", "3", "--per-request")
        assert run.status == 0 and run.err == ""
        lines = run.out.splitlines()
        assert "3 replicas, routed round-robin, each with a cache of its own" in lines
        assert "  request  replica     prompt     cached           missed" in lines
        rows = [line.split() for line in lines if line.startswith(("        0  ", "        1  ", "        2  "))]
        assert [row[:2] for row in rows] == [["0", "0"], ["1", "1"], ["2", "2"], ["0", "3"], ["1", "3"], ["2", "3"]]
        assert "  the busiest replica over the mean: 1.11 in prompt tokens, 1.11 in computed ones" in lines
        assert "cached on another replica" in run.out

    def test_one_replica_is_not_mentioned(self, sim: Sim, traffic: Path) -> None:
        out = sim(traffic, "--router", "sticky", "--per-request").out
        assert " replica" not in out and "routed" not in out

    def test_json(self, sim: Sim, traffic: Path) -> None:
        document = sim(traffic, "--replicas", "2", "--router", "sticky", "--format", "json", "--per-request").document
        assert (document["settings"]["replicas"], document["settings"]["router"]) == (2, "sticky")
        assert [total["replica"] for total in document["replicas"]] == [0, 1]
        for name in ("requests", "prompt_tokens", "cached_tokens"):
            assert sum(total[name] for total in document["replicas"]) == document["summary"][name]
        assert set(document["imbalance"]) == {"requests", "prompt_tokens", "computed_tokens"}
        assert {item["replica"] for item in document["requests"]} == {0, 1}
        assert document["summary"]["misses"]["other_replica"] > 0
        alone = sim(traffic, "--format", "json").document
        assert "replicas" not in alone and alone["settings"]["router"] is None

    def test_every_schedule_and_router(self, sim: Sim, traffic: Path) -> None:
        for schedule in (("--schedule", "sequential"), ("--schedule", "recorded"), SIMULATED):
            for router in ("round-robin", "sticky", "least-loaded", "prefix-aware"):
                run = sim(traffic, *schedule, "--replicas", "2", "--router", router, "--format", "json")
                assert run.status == 0 and len(run.document["replicas"]) == 2


class TestTimes:
    def test_nothing_is_timed_unless_asked_for(self, sim: Sim) -> None:
        assert "time" not in sim(TRAFFIC).out
        document = sim(TRAFFIC, "--format", "json", "--per-request").document
        assert "times" not in document and "timing" not in document and "times" not in document["requests"][0]

    def test_text(self, sim: Sim) -> None:
        run = sim(TRAFFIC, *SIMULATED, "--per-request")
        assert run.status == 0 and run.err == ""
        assert "no limit to their number; in simulated time" in run.out
        estimate = "times are an estimate (roofline of meta-llama/Llama-3.1-8B-Instruct on H100-SXM)"
        assert f"{estimate}: expect a real server to be slower" in run.out
        for name in ("time to first token", "time in the queue", "time per output token", "end to end"):
            assert f"  {name} " in run.out
        assert "  at most 1 running and 0 waiting at once, 0 preemptions" in run.out
        assert not [line for line in run.out.splitlines() if line != line.rstrip()]

    def test_json(self, sim: Sim) -> None:
        document = sim(TRAFFIC, *SIMULATED, "--format", "json", "--per-request").document
        assert document["settings"]["schedule"] == "simulated"
        assert document["timing"] == json.loads(Path(TIMING[1]).read_text())
        times = document["times"]
        assert times["estimate"] is True and times["preemptions"] == 0
        for name in ("ttft", "queued", "tpot", "e2e"):
            assert list(times[name]) == ["mean", "p50", "p95", "p99", "max"]
        assert len(times["engines"]) == 1 and times["engines"][0]["peak_running"] == 1
        request = document["requests"][0]["times"]
        assert list(request) == ["arrival", "queued", "ttft", "tpot", "e2e", "output_tokens", "preemptions"]
        assert times["output_tokens"] == sum(item["times"]["output_tokens"] for item in document["requests"])

    def test_alone(self, sim: Sim) -> None:
        run = sim(TRAFFIC, *TIMING, "--per-request")
        assert "  each request as if it were alone on its replica: nothing waits" in run.out
        assert "time in the queue" not in run.out
        document = sim(TRAFFIC, *TIMING, "--format", "json", "--per-request").document
        assert list(document["times"]) == ["estimate", "ttft"]
        assert list(document["requests"][0]["times"]) == ["ttft"]
        # The requests of this traffic never meet: in simulated time they take as long.
        timed = sim(TRAFFIC, *SIMULATED, "--format", "json", "--per-request").document
        for one, other in zip(document["requests"], timed["requests"], strict=True):
            assert one["times"]["ttft"] == pytest.approx(other["times"]["ttft"], abs=2e-6)
            assert one["cached_tokens"] == other["cached_tokens"] and one["misses"] == other["misses"]

    def test_a_fitted_profile_is_no_estimate(self, sim: Sim, tmp_path: Path) -> None:
        profile = json.loads(Path(TIMING[1]).read_text())
        profile |= {"kind": "fitted", "valid": {"prefill_token": [2, 10]}}
        profile["residuals"] = {"points": 40, "median": 0.031, "largest": 0.2}
        file = tmp_path / "timing.json"
        file.write_text(json.dumps(profile))
        run = sim(TRAFFIC, "--timing", file)
        assert "times by a profile that was fitted to meta-llama/Llama-3.1-8B-Instruct on H100-SXM" in run.out
        assert "(off by 3.1 % in the median of 40 points)" in run.out and "estimate" not in run.out
        assert "note: prefill_token is outside what the timing was fitted to (2 to 10 in a step) in 14 of 14" in run.out
        assert sim(TRAFFIC, "--timing", file, "--format", "json").document["times"]["estimate"] is False

    def test_no_name_is_obeyed_by_a_terminal(self, sim: Sim, traffic: Path, tmp_path: Path) -> None:
        profile = json.loads(Path(TIMING[1]).read_text()) | {"model": "\x1b[31mred"}
        timing, named = tmp_path / "timing.json", tmp_path / "a\x1b[31mb.jsonl"
        timing.write_text(json.dumps(profile))
        named.write_bytes(traffic.read_bytes())
        for arguments in ((), ("--compare", named)):
            run = sim(named, "--timing", timing, *arguments)
            assert "\x1b" not in run.out and "·[31mred" in run.out and "a·[31mb.jsonl" in run.out

    def test_a_gpu_and_a_model(self, sim: Sim, traffic: Path) -> None:
        line = f"--hf-overrides '{json.dumps(LLAMA)}'"
        run = sim(traffic, "--gpu", "l4", "--vllm-args", line, "--schedule", "simulated")
        assert run.status == 0
        assert "times are an estimate (roofline of llama on L4)" in run.out

    def test_before_and_after(self, sim: Sim) -> None:
        run = sim(TRAFFIC, "--compare", ROOT / "examples" / "traffic_fixed.jsonl", *TIMING)
        assert "  time to first token, p95          20.8 ms       11.7 ms       -9.1 ms" in run.out
        assert "times are an estimate (roofline of meta-llama/" in run.out

    def test_the_same_input_gives_the_same_output(self, sim: Sim, traffic: Path) -> None:
        arguments = (traffic, *SIMULATED, "--replicas", "3", "--router", "prefix-aware", "--per-request")
        for output in ("text", "json"):
            assert sim(*arguments, "--format", output).out == sim(*arguments, "--format", output).out

    def test_a_sweep_in_simulated_time(self, sim: Sim, traffic: Path) -> None:
        curve = sim(TRAFFIC, *SIMULATED, "--sweep", "150,1000", "--format", "json").document["capacity_curve"]
        assert 0 < curve[0]["cached_tokens"] < curve[1]["cached_tokens"]


class TestRefused:
    def test_no_times_of_steps(self, sim: Sim) -> None:
        run = sim(TRAFFIC, "--schedule", "simulated")
        assert (run.status, run.out) == (2, "")
        assert run.err == (
            "pkv-sim: --schedule simulated needs the times of steps: --timing FILE (measured), or --gpu NAME and a "
            "--model (estimated)\n"
        )

    def test_no_timestamps(self, sim: Sim, tmp_path: Path) -> None:
        path = tmp_path / "traffic.jsonl"
        path.write_text('{"token_ids": [1, 2, 3]}\n')
        run = sim(path, *SIMULATED)
        assert run.status == 2
        assert run.err == f"pkv-sim: {path}:1: has no timestamp, which --schedule simulated needs\n"

    def test_no_model(self, sim: Sim) -> None:
        assert "there is none: name a --model" in sim(TRAFFIC, "--gpu", "L4").err
        assert "--gpu: T4 is not known" in sim(TRAFFIC, "--gpu", "T4").err

    def test_no_profile(self, sim: Sim) -> None:
        assert sim(TRAFFIC, "--timing", "none.json").err == ("pkv-sim: none.json: no such file\n")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("--max-num-active-seqs 4", "--max-num-active-seqs: a limit of active sequences"),
            ("--max-num-scheduled-tokens 4", "--max-num-scheduled-tokens: a limit of scheduled tokens"),
            ("--max-num-queued-reqs 4", "--max-num-queued-reqs: refusing requests while many wait"),
            ("--max-num-queued-tokens 4", "--max-num-queued-tokens: refusing requests while many wait"),
            ("--long-prefill-token-threshold-adaptive", "--long-prefill-token-threshold-adaptive: an adaptive"),
            ("--no-enable-chunked-prefill", "--no-enable-chunked-prefill: prefill without chunks"),
            ("--prefill-schedule-interval 2", "--prefill-schedule-interval: an interval between prefills"),
            ("--enable-lora", "--enable-lora: the limit of adapters in a step"),
            ("--model m --lora-modules a=b", "--lora-modules: the limit of adapters in a step"),
            ("--performance-mode throughput", "--performance-mode: a mode with other limits"),
            ("--pipeline-parallel-size 2", "--pipeline-parallel-size: pipeline parallelism"),
        ],
    )
    def test_what_decides_about_steps_and_is_not_modelled(
        self, sim: Sim, traffic: Path, arguments: str, message: str
    ) -> None:
        run = sim(traffic, *SIMULATED, "--vllm-args", arguments)
        assert (run.status, run.out) == (2, "")
        assert run.err.startswith(f"pkv-sim: {message}") and "is not modelled" in run.err and run.err.count("\n") == 1

    @pytest.mark.parametrize(
        "arguments",
        [
            "--max-num-active-seqs 4",
            "--prefill-schedule-interval 2",
            "--enable-lora",
            "--no-enable-chunked-prefill",
            "--performance-mode throughput",
        ],
    )
    def test_where_it_decides_nothing_it_is_allowed(self, sim: Sim, traffic: Path, arguments: str) -> None:
        assert sim(traffic, "--vllm-args", arguments).status == 0

    @pytest.mark.parametrize(
        "arguments", ["--prefill-schedule-interval 1", "--performance-mode balanced", "--max-num-active-seqs None"]
    )
    def test_what_is_off_is_allowed(self, sim: Sim, traffic: Path, arguments: str) -> None:
        assert sim(traffic, *SIMULATED, "--vllm-args", arguments).status == 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("--watermark 1", "--watermark must be at least 0 and below 1, not '1'"),
            ("--watermark x", "--watermark must be at least 0 and below 1, not 'x'"),
            ("--max-num-seqs 9 --max-num-batched-tokens 8", "--max-num-seqs 9 is more than --max-num-batched-tokens 8"),
        ],
    )
    def test_what_vllm_refuses(self, sim: Sim, traffic: Path, arguments: str, message: str) -> None:
        run = sim(traffic, *SIMULATED, "--vllm-args", arguments)
        assert (run.status, run.err) == (2, f"pkv-sim: {message}\n")

    def test_usage(self, sim: Sim) -> None:
        for arguments in (("--replicas", "0"), ("--router", "random"), ("--gpu",)):
            assert sim(TRAFFIC, *arguments).status == 2


class TestDeployment:
    def test_the_server_line_limits_steps(self, sim: Sim, traffic: Path) -> None:
        def steps(line: str) -> int:
            document = sim(traffic, *SIMULATED, "--format", "json", "--vllm-args", line).document
            count = document["times"]["engines"][0]["steps"]
            assert isinstance(count, int)
            return count

        assert steps("--max-num-batched-tokens 16") > steps("--max-num-batched-tokens 8k")
        lines = [json.loads(line) | {"timestamp": 0} for line in traffic.read_text().splitlines()]
        traffic.write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert steps("--max-num-seqs 1") > steps("--max-num-seqs 4")

    def test_a_model_length_ends_replies(self, sim: Sim, traffic: Path) -> None:
        document = sim(traffic, *SIMULATED, "--format", "json", "--per-request", "--vllm-args", "--max-model-len 265")
        assert document.document["requests"][-1]["times"]["output_tokens"] == 5

    @pytest.mark.parametrize(
        ("gpu", "line", "expected"),
        [
            ("L4", "", (2048, 256)),
            ("H200", "", (8192, 1024)),
            (None, "", (8192, 1024)),
            ("L4", "--max-num-batched-tokens 512", (512, 256)),
            ("H200", "--max-num-batched-tokens 512", (512, 512)),
        ],
    )
    def test_the_gpu_sets_what_is_not_said(self, gpu: str | None, line: str, expected: tuple[int, int]) -> None:
        limits = SchedulerLimits.of(Deployment.from_vllm_args(line), None, gpu_named(gpu) if gpu else None)
        assert (limits.max_num_batched_tokens, limits.max_num_seqs) == expected
