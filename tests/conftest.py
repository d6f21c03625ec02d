"""Fixtures shared by all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Kernels run in Triton's interpreter here. It decides when it is imported, and transformers imports it.
os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data (golden vectors, templates, tokenizers), where there is one."""
    folder = Path(os.environ.get("PKV_SHARED", ROOT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip("the folder of real data is not here (set PKV_SHARED)")
    return folder


@pytest.fixture
def on_terminal() -> Callable[..., bytes]:
    """Runs Python with arguments (and variables of the environment); gives what it writes to a terminal."""
    pty = pytest.importorskip("pty")

    def run(arguments: list[str], **environment: str) -> bytes:
        parent, child = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=child,
            stderr=child,
            env={**os.environ, "TERM": "xterm", **environment},
        )
        os.close(child)
        shown = b""
        while part := read(parent):
            shown += part
        os.close(parent)
        process.wait()
        return shown

    def read(parent: int) -> bytes:
        try:
            return os.read(parent, 65536)
        except OSError:  # Linux says EIO when the other end is closed
            return b""

    return run
