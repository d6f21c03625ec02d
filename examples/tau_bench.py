"""Turn a file of tau-bench runs into traffic: one request for each reply of the agent.

    python examples/tau_bench.py RUNS.json[.gz] TOOLS.json [--trial N] > traffic.jsonl

RUNS is what tau-bench writes: a list of runs with `task_id`, `trial` and `traj`, the messages of one conversation.
TOOLS is the list of tools that the agent was given, which the runs do not repeat. Each run becomes a session; request i
holds the messages in front of the i-th reply. No time is recorded, so the runs follow one another.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_json(path: Path) -> Any:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def requests_of(runs: list[dict[str, Any]], tools: list[Any], trial: int | None) -> Iterator[dict[str, Any]]:
    """The lines of traffic, in the order of the runs."""
    for run in runs:
        if trial is not None and run.get("trial") != trial:
            continue
        messages = run["traj"]
        for index, message in enumerate(messages):
            if message["role"] == "assistant":
                yield {
                    "session_id": f"trial {run.get('trial')} task {run['task_id']}",
                    "request": {"messages": messages[:index], "tools": tools},
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("tools", type=Path)
    parser.add_argument("--trial", type=int, help="only this trial of each task")
    arguments = parser.parse_args()
    for line in requests_of(read_json(arguments.runs), read_json(arguments.tools), arguments.trial):
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
