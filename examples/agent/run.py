"""The whole story of an agent whose prompt breaks the cache, on this machine and without a network:

    python examples/agent/run.py [--keep DIRECTORY]

Runs the agent against the bundled engine and captures what it sends, lints that, runs the agent with the fix that the
finding names, and compares both: predicted by the simulator, then measured on the engine. Needs `pkv-lint[engine]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import agent

import pkv_lint
from pkv_engine.verify.cli import main as pkv_verify
from pkv_engine.verify.target import bundled_engine
from pkv_lint.cli import main as pkv_lint_command
from pkv_sim.cli import main as pkv_sim


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep the captured traffic here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        return story(str(folder / "before.jsonl"), str(folder / "after.jsonl"))


def story(before: str, after: str) -> int:
    asyncio.run(capture(before, fixed=False))
    step("What the agent sends:", pkv_lint_command, ["pkv-lint", before])
    asyncio.run(capture(after, fixed=True))
    if step("With the time behind each question:", pkv_lint_command, ["pkv-lint", after]) != 0:
        return 1
    step("Predicted:", pkv_sim, ["pkv-sim", before, "--compare", after])
    # Exit status 0: every request found exactly what was predicted.
    return step("Measured:", pkv_verify, ["pkv-verify", before, "--compare", after])


async def capture(file: str, *, fixed: bool) -> None:
    """Run the agent and write down what it sends."""
    async with bundled_engine(["--model", "tiny"]) as engine:
        with pkv_lint.capture() as traffic:
            await asyncio.to_thread(agent.run, engine.url, "tiny", fixed=fixed)
    sent = [line for line in traffic if line["path"].endswith("/chat/completions")]
    Path(file).write_text("".join(json.dumps(line) + "\n" for line in sent), encoding="utf-8")


def step(title: str, command: Callable[[Sequence[str]], int], words: Sequence[str]) -> int:
    name, *arguments = words
    shown = [Path(word).name if word.endswith(".jsonl") else word for word in arguments]
    print(f"\n{title}\n\n$ {' '.join([name, *shown])}\n", flush=True)
    return command(arguments)


if __name__ == "__main__":
    sys.exit(main())
