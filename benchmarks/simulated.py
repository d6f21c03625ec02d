"""How fast traffic passes in simulated time, through the exact scheduler.

    python benchmarks/simulated.py [--requests N]

For each published trace: processor time of a simulation with reasons on one replica, by the example's timing profile,
reading left out. The cache has no limit, so nothing depends on a model's size. `--requests` takes the first N of each
trace. The data are those of the tests (PKV_SHARED, or ../shared next to the repository).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from pkv_lint.prompt.renderer import Renderer
from pkv_sim.serving.settings import Settings
from pkv_sim.simulation import simulate
from pkv_sim.timing.file import load_timing
from pkv_sim.traffic.intake import Reading
from pkv_sim.traffic.loading import load_workload

ROOT = Path(__file__).resolve().parent.parent
TRACES = Path(os.environ.get("PKV_SHARED", ROOT.parent / "shared")) / "data" / "traces"
TIMING = ROOT / "examples" / "timing_8b_h100.json"
NAMES = {
    "Azure conversation": "AzureLLMInferenceTrace_2023_conv.csv",
    "Azure code": "AzureLLMInferenceTrace_2023_code.csv",
    "Mooncake conversation": "mooncake_conversation_trace.jsonl",
    "Mooncake synthetic": "mooncake_synthetic_trace.jsonl",
    "coding agents": "weka_claude_code_traces_rle.jsonl.gz",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=5000)
    options = parser.parse_args()
    if not TRACES.is_dir():
        print("the data are not here (set PKV_SHARED)", file=sys.stderr)
        return 2
    settings = Settings(schedule="simulated", timing=load_timing(str(TIMING)))
    print(f"{'':<22}{'requests':>9}{'blocks':>12}{'output tokens':>15}{'seconds':>9}{'requests/s':>12}")
    for name, file in NAMES.items():
        workload = load_workload(str(TRACES / file), Renderer.load, Reading())
        workload = replace(workload, requests=workload.requests[: options.requests])
        begin = time.process_time()
        simulation = simulate(workload, settings)
        seconds = time.process_time() - begin
        count = len(simulation.served)
        tokens = sum(item.times.output_tokens for item in simulation.served if item.times is not None)
        print(
            f"{name:<22}{count:>9,}{simulation.full_blocks:>12,}{tokens:>15,}{seconds:>9.1f}{count / seconds:>12,.0f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
