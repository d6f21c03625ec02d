"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data (golden vectors, templates, tokenizers), where there is one."""
    folder = Path(os.environ.get("PKV_SHARED", ROOT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip("the folder of real data is not here (set PKV_SHARED)")
    return folder
