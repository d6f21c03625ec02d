"""How fast requests become token ids, and what a lint costs beyond loading the vocabulary.

1. The 642 requests of tau-bench airline, trial 0 (3.56 million tokens with Qwen3): rendered and tokenised by a fresh
   `Renderer`, against `tokenizers` alone encoding each whole prompt.
2. `pkv-lint` on one request of 20 KB, against a process that does nothing but `Tokenizer.from_file`.

Medians; the two sides of a comparison take turns. Vocabularies are loaded outside of the time in 1 and inside in 2. The
data are those of the tests (PKV_SHARED, or ../shared next to the repository).

    python benchmarks/render.py [--runs N]
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import tokenizers

from pkv_lint.prompt.renderer import Renderer

Item = TypeVar("Item")
Result = TypeVar("Result")

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("PKV_SHARED", ROOT.parent / "shared")) / "data"
TEMPLATE = DATA / "templates" / "Qwen-Qwen3-0.6B.jinja"
VOCABULARY = DATA / "tokenizers" / "qwen3"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    if not DATA.is_dir():
        print("the data are not here (set PKV_SHARED)", file=sys.stderr)
        return 2
    requests = tau_bench()
    traffic(requests, runs)
    one_request(requests, runs)
    return 0


def tau_bench() -> list[dict[str, Any]]:
    """One request for each message of the assistant: everything in front of it, and the tools."""
    tools = json.loads((DATA / "requests" / "_tau_airline_tools.json").read_text(encoding="utf-8"))
    with gzip.open(DATA / "traces" / "tau_bench_gpt-4o-airline.json.gz", "rt", encoding="utf-8") as file:
        conversations = [run["traj"] for run in json.load(file) if run["trial"] == 0]
    return [
        {"messages": messages[:count], "tools": tools}
        for messages in conversations
        for count, message in enumerate(messages)
        if message["role"] == "assistant"
    ]


def traffic(requests: Sequence[dict[str, Any]], runs: int) -> None:
    now = datetime(2026, 1, 1)
    whole = tokenizers.Tokenizer.from_file(str(VOCABULARY / "tokenizer.json"))
    ours, theirs, encoding = [], [], []
    for _ in range(runs):
        seconds, prompts = timed(partial(renderer().render, now=now), requests)
        ours.append(seconds)
        texts = [prompt.text or "" for prompt in prompts]
        seconds, whole_ids = timed(lambda text: whole.encode(text, add_special_tokens=False).ids, texts)
        theirs.append(seconds)
        seconds, ids = timed(renderer().tokenizer.encode, texts)
        encoding.append(seconds)
        assert [one.tolist() for one in ids] == [prompt.token_ids.tolist() for prompt in prompts] == whole_ids
    tokens = sum(map(len, ids))
    print(f"tau-bench airline, trial 0: {len(requests)} requests, {tokens:,} tokens, ids equal; medians of {runs}")
    for name, times in (
        ("whole-text encoding", theirs),
        ("rendered and tokenised", ours),
        ("only tokenised", encoding),
    ):
        print(f"  {name:24} {median(times):8.3f} s {median(theirs) / median(times):8.1f} times as fast")


def one_request(requests: Sequence[dict[str, Any]], runs: int) -> None:
    body = min((json.dumps(request) for request in requests), key=lambda text: abs(len(text) - 20_480))
    load = f"import tokenizers; tokenizers.Tokenizer.from_file({str(VOCABULARY / 'tokenizer.json')!r})"
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "request.json")
        file.write_text(body, encoding="utf-8")
        code = "import sys; from pkv_lint.cli import main; sys.exit(main())"
        options = ["--chat-template", str(TEMPLATE), "--tokenizer", str(VOCABULARY), "--offline", "--fail-on", "never"]
        lint = [sys.executable, "-c", code, *options, str(file)]
        loading_alone = [sys.executable, "-c", load]
        # As installed packages are: compiled once, by a first run that does not count.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        process = partial(run, environment={**environment, "PYTHONPYCACHEPREFIX": directory})
        timed(process, [lint, loading_alone])
        linting, loading = [], []
        for _ in range(runs):
            linting.append(timed(process, [lint])[0])
            loading.append(timed(process, [loading_alone])[0])
    print(f"one request of {len(body):,} bytes; medians of {runs} processes each")
    print(f"  {'pkv-lint':24} {median(linting):8.3f} s")
    print(f"  {'Tokenizer.from_file':24} {median(loading):8.3f} s")
    print(f"  {'on top of it':24} {median(linting) - median(loading):8.3f} s")


def renderer() -> Renderer:
    return Renderer.load(chat_template=str(TEMPLATE), tokenizer=str(VOCABULARY))


def run(command: list[str], environment: dict[str, str]) -> None:
    subprocess.run(command, check=True, capture_output=True, env=environment)


def timed(work: Callable[[Item], Result], items: Sequence[Item]) -> tuple[float, list[Result]]:
    """The seconds it takes to do the work for each item, and the results."""
    start = time.perf_counter()
    results = [work(item) for item in items]
    return time.perf_counter() - start, results


if __name__ == "__main__":
    sys.exit(main())
