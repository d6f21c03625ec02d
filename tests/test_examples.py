"""Every example is run, and what the documentation shows is what the commands print."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.cli import main as lint
from pkv_lint.render_cli import main as render

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"

FINDINGS = {
    "agent.jsonl": ["PKV101 error messages[0].content"],
    "agent_fixed.jsonl": [],
    "agent_request.json": ["PKV101 warning messages[0].content"],
    "history_pruned.jsonl": ["PKV301 warning messages[3].content"],
    "messages_api.json": ["PKV101 error system[0].text"],
    "tools_shuffled.jsonl": ["PKV201 error tools"],
    "traffic.jsonl": ["PKV104 warning messages[0].content"],
    "traffic_fixed.jsonl": [],
}

REQUESTS = {
    "agent_request.json": 1,
    "messages_api.json": 3,
    "tools_shuffled.jsonl": 3,
    "traffic.jsonl": 14,
    "traffic_fixed.jsonl": 14,
}


NO_REQUESTS = {"timing_8b_h100.json"}
"""Examples that hold no requests: tests of their own look at them (here tests/sim/test_timing.py)."""


def test_every_example_is_listed_here() -> None:
    names = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".json", ".jsonl")}
    assert names == set(FINDINGS) | NO_REQUESTS


@pytest.mark.parametrize("name", FINDINGS)
def test_findings(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = lint([str(EXAMPLES / name), "--format", "json", "--offline"])
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [f"{finding['code']} {finding['severity']} {finding['path']}" for finding in found] == FINDINGS[name]
    assert status == int(bool(FINDINGS[name]))


@pytest.mark.parametrize("name", FINDINGS)
def test_rendering(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert render([str(EXAMPLES / name), "--show", "ids", "--offline"]) == 0
    prompts: list[Any] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(isinstance(ids, list) and len(ids) > 1000 for ids in prompts)
    assert len(prompts) == REQUESTS.get(name, 5)


def test_the_fix_pays(capsys: pytest.CaptureFixture[str]) -> None:
    shares = []
    for name in ("agent.jsonl", "agent_fixed.jsonl"):
        lint([str(EXAMPLES / name), "--format", "json", "--offline"])
        summary = json.loads(capsys.readouterr().out)["summary"]
        shares.append(summary["cached_tokens"] / summary["prompt_tokens"])
    assert shares[0] < 0.03 and shares[1] > 0.7


def test_outputs_in_the_documentation_are_true() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "doc_outputs.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
