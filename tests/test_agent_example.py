"""The example that goes the whole way: lint, fix, predict, measure."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parent.parent


def test_the_whole_story(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "agent" / "run.py"), "--keep", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PKV101 error  timestamp-in-prefix" in done.stdout
    assert "0 errors, 0 warnings, 0 info in 12 requests" in done.stdout
    for name in ("before", "after"):
        assert len((tmp_path / f"{name}.jsonl").read_text().splitlines()) == 12
    table = done.stdout.rpartition("before          after")[2]
    rows = {
        name: (before, after)
        for name, before, after in re.findall(r"^  (\S.*?)  +(\S+)(?: %| ms)?  +(\S+)", table, re.M)
    }
    # What a random model replies depends on the machine, so figures differ a little.
    assert rows["cached, predicted"] == rows["cached, reported"]
    before, after = (float(rate) for rate in rows["hit rate"])
    assert before < 5 and after > 80
    assert float(rows["TTFT, median"][1]) < float(rows["TTFT, median"][0])
