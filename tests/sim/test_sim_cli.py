"""The command line of pkv-sim: figures, output, bad input, exit status."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pkv_sim import progress
from pkv_sim.cli import main

ROOT = Path(__file__).parent.parent.parent
SYSTEM = "You are a clerk. " + "Answer in short sentences and name your sources. " * 20
REASONS = [
    "other_replica",
    "other_namespace",
    "evicted",
    "last_block",
    "diverged",
    "first_seen",
    "partial_block",
    "below_block",
]


@dataclass
class Run:
    """What one call of the command gave."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value

    @property
    def summary(self) -> dict[str, Any]:
        value = self.document["summary"]
        assert isinstance(value, dict)
        return value


Sim = Callable[..., Run]
Write = Callable[..., Path]


@pytest.fixture
def sim(capsys: pytest.CaptureFixture[str]) -> Sim:
    def call(*arguments: str | Path) -> Run:
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Run(status, captured.out, captured.err)

    return call


@pytest.fixture
def file(tmp_path: Path) -> Write:
    def write(*values: Any, name: str = "traffic.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(value if isinstance(value, str) else json.dumps(value) + "\n" for value in values))
        return path

    return write


def tokens(start: int, stop: int, **members: Any) -> dict[str, Any]:
    return {"token_ids": list(range(start, stop)), **members}


def chat(second: int = 0, **members: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": f"It is 14:05:{second:02d}. {SYSTEM}"}, {"role": "user", "content": "hi"}]
    return {"request": {"messages": messages}, **members}


class TestJson:
    def test_the_contract(self, sim: Sim, file: Write) -> None:
        traffic = file(tokens(0, 100, session_id="s"), tokens(0, 90), tokens(0, 5))
        run = sim(traffic, "--format", "json", "--per-request")
        assert run.status == 0 and run.err == ""
        document = run.document
        assert document["version"] == 1
        summary = document["summary"]
        assert (summary["requests"], summary["prompt_tokens"], summary["cached_tokens"]) == (3, 195, 80)
        assert summary["hit_rate"] == round(80 / 195, 6)
        assert summary["block_hit_rate"] == round(5 / 11, 6)
        assert list(summary["misses"]) == REASONS
        assert sum(summary["misses"].values()) + summary["cached_tokens"] == summary["prompt_tokens"]
        first, second, third = document["requests"]
        assert {name: first[name] for name in ("index", "session_id", "prompt_tokens", "cached_tokens")} == {
            "index": 0,
            "session_id": "s",
            "prompt_tokens": 100,
            "cached_tokens": 0,
        }
        assert list(first["misses"]) == REASONS
        assert second["session_id"] is None and second["cached_tokens"] == 80
        assert third["misses"]["below_block"] == 5
        for item in document["requests"]:
            assert sum(item["misses"].values()) + item["cached_tokens"] == item["prompt_tokens"]

    def test_requests_only_when_asked_for(self, sim: Sim, file: Write) -> None:
        assert "requests" not in sim(file(tokens(0, 9)), "--format", "json").document

    def test_the_same_input_gives_the_same_output(self, sim: Sim) -> None:
        arguments = (ROOT / "examples" / "traffic.jsonl", "--offline", "--per-request", "--num-gpu-blocks", "150")
        for output in ("text", "json"):
            assert sim(*arguments, "--format", output).out == sim(*arguments, "--format", output).out

    def test_causes(self, sim: Sim, file: Write) -> None:
        traffic = file(*(chat(second, session_id=str(second)) for second in range(3)))
        document = sim(traffic, "--format", "json", "--per-request", "--offline").document
        (cause,) = document["causes"]
        assert (cause["code"], cause["path"], cause["reason"]) == ("PKV101", "messages[0].content", "diverged")
        assert cause["requests"] == 2
        assert cause["tokens"] == sum(blame["tokens"] for item in document["requests"] for blame in item["causes"])
        assert cause["share_of_prefill"] == pytest.approx(
            cause["tokens"] / sum(document["summary"]["misses"].values()), abs=1e-6
        )
        assert document["approximate"] and document["layout"] == "builtin"
        assert sim(traffic, "--format", "json", "--offline", "--no-causes").document["causes"] == []

    def test_compare(self, sim: Sim, file: Write) -> None:
        before, after = file(tokens(0, 64), tokens(9, 64)), file(tokens(0, 64), tokens(0, 65), name="after.jsonl")
        document = sim(before, "--compare", after, "--format", "json").document
        assert document["summary"]["cached_tokens"] == 0
        assert document["compare"]["summary"]["cached_tokens"] == 64


class TestText:
    def test_the_summary(self, sim: Sim) -> None:
        run = sim(ROOT / "examples" / "traffic.jsonl", "--offline", "--num-gpu-blocks", "150")
        assert run.status == 0 and run.err == ""
        assert "14 requests in 3 sessions, 20,030 prompt tokens" in run.out
        assert "blocks of 16 tokens, 150 of them (149 usable); one request after the other" in run.out
        assert "hit rate 48.73 %  9,760 of 20,030 prompt tokens" in run.out
        assert "  evicted          6,144   30.7 %  ███████▍                  was cached" in run.out
        assert "PKV104 at messages[0].content costs about 20.9 % of prefill: 2,144 tokens in 2 requests" in run.out
        assert "figures are approximate" in run.out
        assert not [line for line in run.out.splitlines() if line != line.rstrip()]

    def test_every_request(self, sim: Sim, file: Write) -> None:
        run = sim(file(tokens(0, 40), tokens(0, 40)), "--per-request")
        assert [line.split() for line in run.out.splitlines() if line.startswith(("        0", "        1"))] == [
            ["0", "40", "0", "0.0", "%", "first", "seen", "32,", "partial", "block", "8"],
            ["1", "40", "32", "80.0", "%", "partial", "block", "8"],
        ]

    def test_before_and_after(self, sim: Sim) -> None:
        examples = ROOT / "examples"
        run = sim(examples / "traffic.jsonl", "--compare", examples / "traffic_fixed.jsonl", "--offline")
        assert run.status == 0
        assert "  hit rate                 79.40 %          89.95 %    +10.54 points" in run.out

    def test_bounds_of_generated_text(self, sim: Sim, file: Write) -> None:
        first = tokens(0, 64, session_id="s", output_tokens=17)
        traffic = file(first, tokens(0, 97, session_id="s", output_tokens=1))
        assert "generated text: 39.75 % if none of it is reused, 49.69 % if all of it is" in sim(traffic).out
        rates = sim(traffic, "--format", "json").summary["generated_text"]
        assert rates == {"hit_rate_none_reused": round(64 / 161, 6), "hit_rate_all_reused": round(80 / 161, 6)}
        assert "generated text" not in sim(file(tokens(0, 64), tokens(0, 97))).out

    def test_colours_on_a_terminal_only(self, on_terminal: Callable[..., bytes]) -> None:
        arguments = ["-m", "pkv_sim.cli", str(ROOT / "examples" / "traffic.jsonl"), "--offline"]
        assert b"\033[" in on_terminal(arguments)
        assert b"\033[3" not in on_terminal(arguments, NO_COLOR="1")


class TestBadInput:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("", "holds no request"),
            ("\n\n", "holds no request"),
            ("[]", "holds no request"),
            ("{", "not valid JSON"),
            ("5\n", "needs a JSON object"),
            ('{"token_ids": ["a"]}\n', "token_ids[0]: is not a token id"),
            ('{"token_ids": []}\n', "would refuse every request; the first: an empty prompt"),
            ('{"messages": 5}\n', "would refuse every request"),
            ('{"hash_ids": [1, 2], "input_length": 9}\n', "2 blocks of 512 tokens do not make a prompt of 9 tokens"),
        ],
    )
    def test_nothing_to_simulate_is_one_line(self, sim: Sim, file: Write, content: str, message: str) -> None:
        run = sim(file(content))
        assert (run.status, run.out, run.err.count("\n")) == (2, "", 1)
        assert message in run.err and run.err.startswith("pkv-sim: ") and "traffic.jsonl" in run.err

    def test_no_file(self, sim: Sim, tmp_path: Path) -> None:
        assert sim(tmp_path / "none").err == f"pkv-sim: {tmp_path / 'none'}: no such file\n"
        assert sim(tmp_path).status == 2

    def test_a_bad_line_is_named_and_the_others_are_simulated(self, sim: Sim, file: Write) -> None:
        run = sim(file(tokens(0, 40), '{"token_ids": 5}\n', "}\n", tokens(0, 41)), "--format", "json")
        assert run.status == 2
        assert run.summary["requests"] == 2 and run.summary["cached_tokens"] == 32
        assert run.summary["unusable_lines"] == 2
        assert [line.partition("traffic.jsonl:")[2][:2] for line in run.err.splitlines()] == ["2:", "3:"]

    def test_many_bad_lines_are_counted(self, sim: Sim, file: Write) -> None:
        run = sim(file(tokens(0, 40), *["x\n"] * 50))
        assert run.status == 2 and len(run.err.splitlines()) == 21
        assert "and 30 more lines that cannot be used" in run.err

    def test_a_truncated_file(self, sim: Sim, tmp_path: Path) -> None:
        path = tmp_path / "traffic.gz"
        path.write_bytes(
            gzip.compress(b"".join(json.dumps(tokens(i, i + 99)).encode() + b"\n" for i in range(999)))[:-9]
        )
        run = sim(path)
        assert (run.status, run.out) == (2, "")
        assert run.err == f"pkv-sim: {path}: the compressed data ends too early\n"

    def test_mixed_formats(self, sim: Sim, file: Write) -> None:
        run = sim(file(tokens(0, 40), {"hash_ids": [1], "input_length": 512}))
        assert run.status == 2 and "is a trace with hash_ids, the file began as requests" in run.err

    def test_time_that_runs_backwards(self, sim: Sim, file: Write) -> None:
        long, short = tokens(0, 97, timestamp=20), tokens(0, 33, timestamp=10)
        run = sim(file(long, short, tokens(0, 33, timestamp=20)), "--per-request")
        assert run.status == 0
        assert (
            "note: time runs backwards at line 2: requests are taken by their time, those of equal times in the order "
            "of the file" in run.out
        )
        rows = [line.split() for line in run.out.splitlines() if line.startswith("        ")]
        assert [row[0] for row in rows] == ["1", "0", "2"]

    def test_times_that_are_missing(self, sim: Sim, file: Write) -> None:
        traffic = file(tokens(0, 97, timestamp=20), tokens(0, 33))
        note = "1 request without a time, so all are taken in the order of the file"
        assert sim(traffic, "--format", "json").document["notes"] == [note]
        run = sim(traffic, "--schedule", "recorded")
        assert run.status == 2
        assert run.err.endswith("traffic.jsonl:2: has no timestamp, which --schedule recorded needs\n")

    def test_larger_than_the_cache(self, sim: Sim, file: Write) -> None:
        run = sim(file(tokens(0, 40), tokens(0, 400), tokens(0, 40)), "--num-gpu-blocks", "8")
        assert run.status == 0
        assert (
            "note: 1 request refused; the first, in line 2: needs more than the 7 usable blocks of the cache" in run.out
        )
        assert "2 requests, 80 prompt tokens" in run.out

    def test_longer_than_the_model(self, sim: Sim, file: Write) -> None:
        run = sim(file(tokens(0, 40), tokens(0, 400)), "--vllm-args", "--max-model-len 100", "--format", "json")
        (refused,) = run.document["refused"]
        assert refused["reason"] == "400 prompt tokens are too many for a model length of 100"

    @pytest.mark.parametrize("schedule", ["sequential", "simulated"])
    def test_longer_than_any_model(self, sim: Sim, file: Write, schedule: str) -> None:
        endless = tokens(0, 40, timestamp=2, output_tokens=10**30)
        timing = ("--timing", ROOT / "examples" / "timing_8b_h100.json", "--generated", "counted")
        run = sim(file(tokens(0, 40, timestamp=1), endless), "--schedule", schedule, *timing, "--format", "json")
        (refused,) = run.document["refused"]
        assert refused["reason"].endswith("tokens of prompt and reply are more than any model takes (67,108,864)")

    @pytest.mark.parametrize("option", ["--compare", "--gpu", "--timing", "--vllm-version", "--output"])
    def test_an_empty_value_is_not_taken_for_none(self, sim: Sim, file: Write, option: str) -> None:
        assert sim(file(tokens(0, 40)), option, "").status == 2

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ('--speculative-config \'{"method": "ngram"}\'', "--speculative-config: speculative decoding"),
            ("--speculative-config.method eagle", "--speculative-config: speculative decoding"),
            ("-sc '{}'", "-sc: speculative decoding"),
            ("--kv-transfer-config '{}'", "--kv-transfer-config: a KV connector"),
            ("--kv-offloading-size 8", "--kv-offloading-size: KV offloading"),
            ("--decode-context-parallel-size 2", "--decode-context-parallel-size: decode context parallelism"),
            ("-dcp 2", "-dcp: decode context parallelism"),
            ("--data-parallel-size=4", "--data-parallel-size: data parallelism"),
            ("--prefix-match-unit 4", "--prefix-match-unit: hits inside a block"),
            ("--swa-bounded-replay", "--swa-bounded-replay: bounded replay"),
            ("--runner pooling", "--runner: pooling"),
            ("--no-enable-prefix-caching", "--no-enable-prefix-caching: without prefix caching nothing is ever reused"),
        ],
    )
    def test_what_is_not_modelled_is_refused_by_name(self, sim: Sim, file: Write, arguments: str, message: str) -> None:
        run = sim(file(tokens(0, 40)), "--vllm-args", arguments)
        assert (run.status, run.out) == (2, "")
        assert run.err.startswith(f"pkv-sim: {message}") and run.err.count("\n") == 1

    @pytest.mark.parametrize(
        "arguments", ["-dcp 1", "--kv-offloading-size 0", "--data-parallel-size 1", "--runner generate", "-tp 8"]
    )
    def test_what_is_off_is_not_refused(self, sim: Sim, file: Write, arguments: str) -> None:
        assert sim(file(tokens(0, 40)), "--vllm-args", arguments).status == 0

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ({"model_type": "gpt_oss", "sliding_window": 128}, "gpt_oss has sliding-window layers"),
            ({"model_type": "qwen3_next", "full_attention_interval": 4}, "qwen3_next has linear-attention layers"),
            ({"model_type": "odd", "layer_types": ["x"] * 4}, "odd has layers of unknown kinds"),
        ],
    )
    def test_models_that_are_not_modelled(self, sim: Sim, file: Write, config: dict[str, Any], message: str) -> None:
        layers = {"num_hidden_layers": 4, "num_attention_heads": 2, "hidden_size": 64}
        overrides = json.dumps(layers | config)
        run = sim(file(tokens(0, 40)), "--vllm-args", f"--hf-overrides '{overrides}'")
        assert run.status == 2
        assert f"pkv-sim: {message}: only the cache of full attention is modelled" in run.err

    def test_a_watermark_matters_to_requests_that_overlap(self, sim: Sim, file: Write) -> None:
        traffic = file(tokens(0, 40, timestamp=1, end_timestamp=2))
        assert sim(traffic, "--vllm-args", "--watermark 0.1").status == 0
        run = sim(traffic, "--vllm-args", "--watermark 0.1", "--schedule", "recorded")
        assert (run.status, run.err) == (2, "pkv-sim: --watermark: a watermark is not modelled at recorded times\n")

    def test_usage(self, sim: Sim, file: Write) -> None:
        for arguments in (
            ["--num-gpu-blocks", "1"],
            ["--num-gpu-blocks", "x"],
            ["--block-size", "0"],
            ["--schedule", "later"],
            ["--vllm-version", "0.9"],
            ["--vllm-version", "new"],
            ["--what"],
        ):
            run = sim(file(tokens(0, 40)), *arguments)
            assert (run.status, run.out) == (2, "") and run.err.count("\n") == 1


class TestDeployment:
    def test_the_server_line_sizes_the_cache(self, sim: Sim, file: Write) -> None:
        settings = sim(
            file(tokens(0, 40)),
            "--format",
            "json",
            "--vllm-args",
            "vllm serve --block-size 32 --num-gpu-blocks-override 50",
        ).document["settings"]
        assert (settings["block_size"], settings["num_gpu_blocks"]) == (32, 50)

    def test_the_command_line_wins(self, sim: Sim, file: Write) -> None:
        line = "--block-size 32 --num-gpu-blocks-override 50"
        run = sim(
            file(tokens(0, 40)), "--format", "json", "--block-size", "8", "--num-gpu-blocks", "9", "--vllm-args", line
        )
        assert (run.document["settings"]["block_size"], run.document["settings"]["num_gpu_blocks"]) == (8, 9)

    def test_stdin(self) -> None:
        data = json.dumps(tokens(0, 40)).encode()
        done = subprocess.run(
            [sys.executable, "-m", "pkv_sim.cli", "-", "--format", "json"], input=data, capture_output=True, check=False
        )
        assert done.returncode == 0 and json.loads(done.stdout)["summary"]["prompt_tokens"] == 40

    @pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
    @pytest.mark.parametrize(("closed", "status"), [("<&-", 2), ("2>&-", 0)])
    def test_closed_streams(self, file: Write, closed: str, status: int) -> None:
        traffic = "-" if closed == "<&-" else str(file(tokens(0, 40)))
        call = f'exec "$0" -m pkv_sim.cli "$1" {closed}'
        done = subprocess.run(["sh", "-c", call, sys.executable, traffic], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (status, "pkv-sim: stdin: holds no request\n" if status else "")

    def test_nothing_heavy_is_imported(self) -> None:
        script = (
            "import sys; from pkv_sim.cli import main; "
            f"main([{str(ROOT / 'examples' / 'traffic.jsonl')!r}, '--offline']); "
            "print(sorted({'httpx', 'huggingface_hub', 'pydantic', 'torch', 'transformers'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert done.stdout.splitlines()[-1] == "[]", done.stderr


# Real traffic.

QWEN = ("--chat-template", "data/templates/Qwen-Qwen3-0.6B.jinja", "--tokenizer", "data/tokenizers/qwen3")


def qwen(shared: Path) -> list[str]:
    return [word if word.startswith("--") else str(shared / word) for word in QWEN]


@pytest.mark.parametrize("case", ["19", "20", "22"])
@pytest.mark.parametrize("kind", ["traffic", "fixed"])
def test_cases(sim: Sim, shared: Path, case: str, kind: str) -> None:
    (folder,) = (shared / "cases").glob(f"{case}-*")
    expected = json.loads((folder / "expected.json").read_text()).get(kind)
    if expected is None:
        pytest.skip("no such traffic")
    run = sim(folder / f"{kind}.jsonl", *qwen(shared), "--format", "json", "--per-request")
    requests = run.document["requests"]
    assert [item["prompt_tokens"] for item in requests] == expected["prompt_tokens"]
    assert [item["cached_tokens"] for item in requests] == expected["cached_tokens"]


def test_case_19_says_that_the_salt_is_to_blame(sim: Sim, shared: Path) -> None:
    (folder,) = (shared / "cases").glob("19-*")
    document = sim(folder / "traffic.jsonl", *qwen(shared), "--format", "json").document
    assert document["summary"]["misses"]["other_namespace"] == 3680
    (cause,) = document["causes"]
    assert (cause["code"], cause["path"], cause["reason"], cause["tokens"]) == (
        "PKV601",
        "cache_salt",
        "other_namespace",
        3680,
    )


def test_case_20_with_large_blocks(sim: Sim, shared: Path) -> None:
    (folder,) = (shared / "cases").glob("20-*")
    summary = sim(folder / "traffic.jsonl", *qwen(shared), "--block-size", "784", "--format", "json").summary
    assert summary["misses"] == dict.fromkeys(REASONS, 0) | {"below_block": 553}


@pytest.mark.parametrize(
    ("blocks", "cached"),
    [(330, 6800), (400, 9696), (401, 9888), (600, 20320)],
)
def test_case_22_at_every_capacity(sim: Sim, shared: Path, blocks: int, cached: int) -> None:
    (folder,) = (shared / "cases").glob("22-*")
    run = sim(
        folder / "traffic.jsonl", *qwen(shared), "--num-gpu-blocks", str(blocks), "--format", "json", "--no-causes"
    )
    assert run.summary["cached_tokens"] == cached
    assert run.summary["misses"]["evicted"] == 20320 - cached


def test_what_a_server_answered(sim: Sim, shared: Path, file: Write) -> None:
    """vLLM's own server, request by request."""
    golden = json.loads((shared / "golden" / "trace_server_sequential.json").read_text())
    calls = golden["requests"]
    traffic = file(
        *(
            {"token_ids": call["prompt"], "output_token_ids": call["output"], "cache_salt": call.get("cache_salt")}
            for call in calls
        )
    )
    size, blocks = golden["block_size"], golden["num_gpu_blocks"]
    arguments = ("--block-size", size, "--num-gpu-blocks", blocks, "--format", "json", "--per-request")
    requests = sim(traffic, *arguments).document["requests"]
    assert [item["cached_tokens"] for item in requests] == [call["cached"] for call in calls]


@pytest.mark.parametrize(
    ("trace", "blocks", "rate", "block_rate"),
    [
        ("conversation", 1001, 0.0459, None),
        ("synthetic", None, 0.6504, 0.6594),
        ("synthetic", 1001, 0.0867, None),
        ("synthetic", 10_001, 0.4430, None),
    ],
)
def test_mooncake(
    sim: Sim, shared: Path, trace: str, blocks: int | None, rate: float, block_rate: float | None
) -> None:
    file = shared / "data" / "traces" / f"mooncake_{trace}_trace.jsonl"
    summary = sim(file, "--format", "json", *(["--num-gpu-blocks", str(blocks)] if blocks else [])).summary
    assert round(summary["hit_rate"], 4) == rate
    if block_rate is not None:
        assert round(summary["block_hit_rate"], 4) == block_rate


@pytest.mark.slow
@pytest.mark.parametrize(
    ("blocks", "rate"), [(1000, 0.0459), (10_000, 0.2192), (30_000, 0.3371), (50_000, 0.3632), (100_000, 0.3710)]
)
def test_mooncake_conversation(sim: Sim, shared: Path, blocks: int, rate: float) -> None:
    file = shared / "data" / "traces" / "mooncake_conversation_trace.jsonl"
    assert round(sim(file, "--format", "json", "--num-gpu-blocks", str(blocks + 1)).summary["hit_rate"], 4) == rate


@pytest.mark.slow
@pytest.mark.parametrize(("blocks", "rate"), [(None, 0.964), (33_891, 0.169), (338_910, 0.809)])
def test_coding_agents(sim: Sim, shared: Path, blocks: int | None, rate: float) -> None:
    file = shared / "data" / "traces" / "weka_claude_code_traces_rle.jsonl.gz"
    summary = sim(file, "--format", "json", *(["--num-gpu-blocks", str(blocks + 1)] if blocks else [])).summary
    assert summary["requests"] == 48_658
    assert round(summary["hit_rate"], 3) == rate
    assert sum(summary["misses"].values()) + summary["cached_tokens"] == summary["prompt_tokens"]


def test_tau_bench(sim: Sim, shared: Path, tmp_path: Path) -> None:
    data = shared / "data"
    done = subprocess.run(
        [
            sys.executable,
            ROOT / "examples" / "tau_bench.py",
            data / "traces" / "tau_bench_gpt-4o-airline.json.gz",
            data / "requests" / "_tau_airline_tools.json",
            "--trial",
            "0",
        ],
        capture_output=True,
        check=True,
    )
    traffic = tmp_path / "airline.jsonl"
    traffic.write_bytes(done.stdout)
    summary = sim(traffic, *qwen(shared), "--format", "json").summary
    assert (summary["requests"], summary["prompt_tokens"], round(summary["hit_rate"], 4)) == (642, 3_557_670, 0.9598)


def test_lengths_alone_share_nothing(sim: Sim, shared: Path) -> None:
    run = sim(shared / "data" / "traces" / "AzureLLMInferenceTrace_2023_code.csv")
    assert "8,819 requests" in run.out and "hit rate 0.00 %" in run.out
    assert "only lengths are recorded, so no two prompts share anything here" in run.out


class TestProgress:
    def test_shown_on_a_terminal_when_it_takes_long(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = iter(range(100))
        monkeypatch.setattr(time, "monotonic", lambda: next(clock) * 0.75)
        assert list(progress.on_terminal(range(3), "read:")) == [0, 1, 2]
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        assert list(progress.on_terminal(range(4), "read:")) == [0, 1, 2, 3]
        assert capsys.readouterr().err == "\rread: 2\033[K\rread: 3\033[K\rread: 4\033[K\r\033[K"
        assert list(progress.on_terminal(range(3), "read:", 3)) == [0, 1, 2]
        assert f"\rread: [{'#' * 16}{'.' * 8}] 2 of 3" in capsys.readouterr().err

    def test_nothing_is_left_behind_by_short_work(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        assert list(progress.on_terminal(range(3), "read:")) == [0, 1, 2]
        assert capsys.readouterr().err == ""
