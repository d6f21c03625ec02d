"""Hold pkv-verify's predictions against the bundled engine: every traffic, one request after the other and 8 at once.

    python scripts/verify_engine.py [--requests 300] [--concurrency 8] [--times] [TRAFFIC ...]

Cached tokens must be equal for every request. With --times a timing profile is fitted on probes, and the times to the
first token of the same traffic, none of which the profile has seen, are held against it; each request is timed in
several replays and its least time counts, as other work on a machine only adds to it. Exit status 0 when all cached
tokens are equal. Without TRAFFIC: the lines of examples/.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import median

from pkv_engine.verify.asking import Asking, connect
from pkv_engine.verify.calibration import Measured, Prompts, least, measure, names_of
from pkv_engine.verify.replay import Pace
from pkv_engine.verify.report import Report, with_times
from pkv_engine.verify.target import bundled_engine
from pkv_engine.verify.verification import Verifier, Verifying, find_server
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.renderer import Renderer
from pkv_sim.timing.fitting import fit

BLOCKS = 2001
"""Of 16 tokens: few enough to evict."""
MAX_TOKENS = 4
REPLAYS = 5
"""Of the traffic that is timed."""
APART = 1.10
"""How many times as long one request takes as another before their order counts."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("traffic", nargs="*", type=Path)
    parser.add_argument("--requests", type=int, default=300, help="at most, of each file")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--times", action="store_true")
    arguments = parser.parse_args()
    files = arguments.traffic or sorted((Path(__file__).parent.parent / "examples").glob("*.jsonl"))
    return asyncio.run(verify_all(files, arguments.requests, arguments.concurrency, times=arguments.times))


async def verify_all(files: Sequence[Path], limit: int, concurrency: int, *, times: bool) -> int:
    renderer = Renderer.load()
    choice = Verifying(pace=Pace(), asking=Asking(max_tokens=MAX_TOKENS), reset_cache=True, limit=limit)
    failed = False
    arguments = ["--model", "tiny", "--num-gpu-blocks", str(BLOCKS), "--max-model-len", "16384"]
    for pace, name in ((Pace(), "sequential"), (Pace(concurrency), f"{concurrency} at once")):
        # An engine for each: its step log tells all that it did, so a long one takes long to replay.
        async with bundled_engine(arguments) as target, connect(target.url, api_key=None, timeout=300) as client:
            paced = replace(choice, pace=pace, step_log=target.step_log)
            verifier = Verifier(client, await find_server(client), renderer, paced)
            reports = [report for file in files if (report := await verified(file, verifier))]
            equal = sum(report.statuses["as predicted"] for report in reports)
            asked = sum(len(report.rows) for report in reports)
            cached, prompt = (sum(getattr(r, n) for r in reports) for n in ("reported_tokens", "prompt_tokens"))
            print(f"{name}: {equal:,} of {asked:,} requests of {len(reports)} files as predicted", end="; ")
            print(f"{cached:,} of {prompt:,} prompt tokens cached", flush=True)
            failed = failed or equal != asked
    if times:
        await timed(files, renderer, replace(choice, asking=Asking()), arguments)
    return int(failed)


async def verified(file: Path, verifier: Verifier) -> Report | None:
    try:
        report = await verifier.verify(str(file))
    except InputError as error:
        print(f"  left out: {error}")
        return None
    for row in report.rows:
        if row.status != "as predicted":
            print(f"  {file}: request {row.index}: {row.status}: {row.predicted} {row.reported} {row.answer.message}")
    return report


async def timed(files: Sequence[Path], renderer: Renderer, choice: Verifying, arguments: Sequence[str]) -> None:
    replays: list[Report] = []
    probes: Measured = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "all.jsonl")
        file.write_text("".join(line + "\n" for line in lines_of(files, choice.limit or 0)), encoding="utf-8")
        for _ in range(REPLAYS):
            # A new engine for each: one that has tokenised a text before has its tokens at hand. One start of an engine
            # is faster than another, so both sides are measured in all of them, and the least time of each counts.
            async with bundled_engine(arguments) as target, connect(target.url, api_key=None, timeout=300) as client:
                verifier = Verifier(client, await find_server(client), renderer, choice)
                replays.append(await verifier.verify(str(file)))
                prompts = Prompts.of(replays[:1])
                probes = least(probes, await measure(client, verifier.server, verifier.cache, prompts, timeout=300))
                names = names_of(verifier.server)
    profile = fit(list(probes.values()), *names)
    assert profile.residuals is not None
    print(f"calibration: {profile.residuals.points} probes, half of them within {profile.residuals.median:.1%}")
    print(f"  {profile.coefficients}\n  {profile.intake}")
    report = with_times(replays[0], profile)
    pairs = []
    for row, *others in zip(report.rows, *(replay.rows for replay in replays), strict=True):
        measured = [other.answer.ttft for other in others if other.answer.ttft is not None]
        if row.predicted_ttft is not None and measured:
            pairs.append((row.predicted_ttft, min(measured)))
    errors = [abs(predicted / measured - 1) for predicted, measured in pairs]
    print(f"time to first token of {len(pairs)} other requests: median error {median(errors):.1%}", end=", ")
    print(f"{min(m for _, m in pairs) * 1e3:.1f} to {max(m for _, m in pairs) * 1e3:.1f} ms")
    print(in_order(pairs))


def lines_of(files: Iterable[Path], limit: int) -> list[str]:
    """Lines of all files, by turns, without their times."""
    lines = []
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines()[:limit]:
            value = json.loads(line)
            value = value if "request" in value else {"request": value}
            value["session_id"] = f"{file.parent.name}/{file.name}/{value.get('session_id')}"
            lines.append(json.dumps({name: part for name, part in value.items() if "timestamp" not in name}))
    return lines[:limit]


def in_order(pairs: Sequence[tuple[float, float]]) -> str:
    """How often the slower of two requests is predicted to be the slower one."""
    right = wrong = 0
    for (predicted, measured), (other_predicted, other_measured) in combinations(pairs, 2):
        if max(measured, other_measured) > APART * min(measured, other_measured):
            if (predicted < other_predicted) == (measured < other_measured):
                right += 1
            else:
                wrong += 1
    return f"order right in {right / max(1, right + wrong):.1%} of {right + wrong:,} pairs more than 10 % apart"


if __name__ == "__main__":
    sys.exit(main())
