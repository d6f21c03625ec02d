"""Verifies and measures the kernels on the GPU of this machine: `python -m pkv_kernels.check`.

Needs torch, triton and a CUDA device; of this project PYTHONPATH=kernels is enough. JSON goes to stdout or --output.
Exits with 1 when results are wrong, and with 2 when nothing could be run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pkv_kernels.verification import Comparison


def main(argv: Sequence[str] | None = None) -> int:
    """Verifies, measures, and writes what was found."""
    parser = argparse.ArgumentParser(prog="python -m pkv_kernels.check", description="Verify and measure on a GPU.")
    parser.add_argument("--output", type=Path, help="file for the JSON (default: stdout)")
    parser.add_argument("--no-measure", action="store_true", help="verify only")
    args = parser.parse_args(argv)
    try:
        import torch
        import triton
    except ImportError as error:
        print(f"pkv_kernels.check: needs torch and triton: {error}", file=sys.stderr)
        return 2
    if triton.knobs.runtime.interpret or not torch.cuda.is_available():
        reason = "TRITON_INTERPRET is set" if triton.knobs.runtime.interpret else "there is no CUDA device"
        print(f"pkv_kernels.check: {reason}: nothing was verified and nothing measured", file=sys.stderr)
        return 2

    from pkv_kernels.measurement import Sizes, measure

    start = time.monotonic()
    comparisons = list(verify())
    failed = [comparison for comparison in comparisons if not comparison.passed]
    for comparison in failed:
        print(f"wrong: {comparison}", file=sys.stderr)
    print(f"{len(comparisons)} comparisons, {len(failed)} wrong, {time.monotonic() - start:.0f} s", file=sys.stderr)
    report = {
        "version": 1,
        "device": torch.cuda.get_device_name(),
        "compute_capability": torch.cuda.get_device_capability(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "wrong": len(failed),
        "comparisons": [comparison.as_json() for comparison in comparisons],
    }

    def milliseconds(call: Callable[[], object]) -> float:
        return float(triton.testing.do_bench(call, return_mode="median"))

    if not args.no_measure:
        try:
            report["measured"] = measure(milliseconds, "cuda", Sizes())
        except torch.cuda.OutOfMemoryError:
            print("pkv_kernels.check: nothing was measured: too little memory on this GPU", file=sys.stderr)
    text = json.dumps(report, indent=2, allow_nan=False) + "\n"
    try:
        if args.output:
            args.output.write_text(text)
        else:
            sys.stdout.write(text)
    except OSError as error:
        print(f"pkv_kernels.check: {args.output}: {error.strerror}", file=sys.stderr)
        return 2
    return 1 if failed else 0


def verify() -> Iterator[Comparison]:
    """Every kernel in every dtype, attention with every head size, and what only a GPU can show."""
    import torch

    from pkv_kernels.verification import BATCHES, TOLERANCE, Comparison, compare_others, difference, random_batch

    for dtype, tolerance in TOLERANCE.items():
        yield from compare_others(dtype, "cuda", tokens=333, width=4096)
        for head_size, block_size, group in ((64, 16, 4), (80, 32, 7), (96, 64, 3), (128, 16, 8), (256, 128, 16)):
            for kind, lens in BATCHES.items():
                shape = {"kv_heads": 2, "group": group, "head_size": head_size, "block_size": block_size}
                batch = random_batch(lens, dtype=dtype, device="cuda", **shape)
                what = f"paged_attention {dtype} head_size={head_size} {block_size=} {group=} {kind}"
                yield Comparison(what, batch.difference(), tolerance)

    batch.attention()  # compiled before it is captured
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = batch.attention()
    batch.seq_lens.sub_(1).clamp_(min=0)
    graph.replay()
    yield Comparison("CUDA graph with other lengths", difference(out, batch.exact_attention()), tolerance)


if __name__ == "__main__":
    sys.exit(main())
