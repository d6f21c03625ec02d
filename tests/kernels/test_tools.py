"""Ahead-of-time compiling, and the check for machines with a GPU, on a machine without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from pkv_kernels import attention_tile, check  # noqa: E402
from pkv_kernels.aot import Compiled, problems  # noqa: E402
from pkv_kernels.measurement import Sizes, measure  # noqa: E402
from pkv_kernels.verification import Comparison  # noqa: E402


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python as a user does, who does not have kernels interpreted."""
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, *arguments], env={**inherited, **environment}, capture_output=True, text=True
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "kernels"),
    [
        ("--dtype bf16 --head-size 128 --block-size 16", 30),
        ("--arch 90 --dtype fp32 --head-size 80 --block-size 128", 10),
    ],
)
def test_kernels_compile_for_gpus_that_are_not_here(arguments: str, kernels: int, tmp_path: Path) -> None:
    finished = run("-m", "pkv_kernels.aot", *arguments.split(), TRITON_CACHE_DIR=str(tmp_path))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert f"{kernels} kernels compiled and assembled, 0 with problems" in finished.stdout


def test_compiled_kernels_are_judged() -> None:
    fine = Compiled(shared=166912, registers=255, stack=0, tensor_cores="mma.sync")
    assert problems(fine, 80, "mma.sync") == []
    assert problems(Compiled(166913, 255, 200, ""), 80, "mma.sync") == [
        "166912 bytes of shared memory are all there is", "more than 160 bytes of stack", "should have mma.sync"
    ]  # fmt: skip
    assert problems(fine, 80, "") == ["should have no tensor-core instructions"]


def test_interpreted_kernels_are_not_compiled() -> None:
    finished = run("-m", "pkv_kernels.aot", TRITON_INTERPRET="1")
    assert finished.returncode == 2
    assert finished.stderr.endswith("error: TRITON_INTERPRET is set: there is nothing to compile\n")


@pytest.mark.parametrize("module", ["torch", "triton"])
def test_check_says_what_it_needs(module: str) -> None:
    program = f"import sys; sys.modules[{module!r}] = None; from pkv_kernels.check import main; sys.exit(main([]))"
    finished = run("-c", program)
    assert finished.returncode == 2
    assert finished.stderr.startswith("pkv_kernels.check: needs torch and triton: ")
    assert finished.stderr.count("\n") == 1


def test_the_reference_needs_no_triton() -> None:
    assert run("-c", "import sys; sys.modules['triton'] = None; import pkv_kernels.reference").returncode == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_check_says_that_there_is_no_gpu() -> None:
    finished = run("-m", "pkv_kernels.check")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr == (
        "pkv_kernels.check: there is no CUDA device: nothing was verified and nothing measured\n"
    )  # fmt: skip


@pytest.mark.parametrize(("difference", "code"), [(0.01, 0), (0.03, 1), (float("nan"), 1)])
def test_check_reports_as_json(
    difference: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "fake")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(check, "verify", lambda: iter([Comparison("a kernel", difference, 0.02)]))
    output = tmp_path / "report.json"
    assert check.main(["--no-measure", "--output", str(output)]) == code
    report = json.loads(output.read_text())
    assert (report["version"], report["device"], report["wrong"]) == (1, "fake", code)
    shown = None if difference != difference else difference
    assert report["comparisons"] == [
        {"what": "a kernel", "difference": shown, "tolerance": 0.02, "passed": not code}
    ]  # fmt: skip
    assert ("wrong: Comparison(what='a kernel'" in capsys.readouterr().err) == bool(code)


def test_the_documented_tiles_are_those_in_use() -> None:
    text = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text()
    for (itemsize, head_size), short in attention_tile._SHORT.items():
        long = attention_tile._LONG[itemsize, head_size]
        cells = [f"{tile.rows} x {tile.keys} | {tile.warps} | {tile.stages}" for tile in (short, long)]
        assert f"| {itemsize} | {head_size} | {cells[0]} | {cells[1]} |\n" in text


def test_rates_are_sizes_over_times() -> None:
    def two_milliseconds(call: Callable[[], object]) -> float:
        call()
        return 2.0

    sizes = Sizes(seqs=2, context=544, prompt=32, heads=8, groups=(4,), head_size=64, matmul=100, copy=1000)
    measured = measure(two_milliseconds, "cpu", sizes)
    assert measured["copy_bytes_per_second"] == 2 * 1000 * 500
    assert measured["matmul_flop_per_second"] == 2 * 100**3 * 500
    keys_and_values = 2 * 2 * 544 * 2 * 64 * 2  # both, sequences, keys, heads, head size, bytes
    decoding = measured["decode_group_4"]
    assert decoding["bytes_per_second"]["pkv_kernels"] == decoding["bytes_per_second"]["torch_sdpa"]
    assert decoding["bytes_per_second"]["pkv_kernels"] == keys_and_values * 500
    assert decoding["of_copy"]["pkv_kernels"] == keys_and_values / 2000
    operations = 2 * 2 * 8 * 64 * (32 * 33 // 2)  # two products, both operations, heads, head size, visible pairs
    assert measured["prompt_group_4"]["flop_per_second"]["pkv_kernels"] == operations * 500
    assert measured["prompt_group_4"]["of_matmul"]["pkv_kernels"] == operations / (2 * 100**3)


@pytest.mark.parametrize("tool", ["aot", "check"])
@pytest.mark.parametrize("missing", ["torch", "triton"])
def test_without_torch_or_triton(tool: str, missing: str) -> None:
    program = f"import sys, runpy; sys.modules[{missing!r}] = None; sys.argv = ['x']; "
    ran = run("-c", program + f"runpy.run_module('pkv_kernels.{tool}', run_name='__main__')")
    (line,) = ran.stderr.splitlines()
    assert ran.returncode == 2 and line.startswith(f"pkv_kernels.{tool}: needs torch and triton: ")
