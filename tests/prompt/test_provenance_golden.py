"""A part of benchmarks/provenance.py as a test, for where the golden vectors are."""

from __future__ import annotations

import runpy
from pathlib import Path


def test_prompts_of_golden_requests_can_be_followed_back(shared: Path) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "provenance.py"
    report = runpy.run_path(str(script))["measure"](shared / "data", every=199, letters=1)
    assert report.rendered > 20
    assert report.other_text == 0
    assert report.followed >= 0.998
    assert report.right > 100
    assert report.agreement >= 0.99
