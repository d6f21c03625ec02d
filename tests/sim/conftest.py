"""What the simulator's tests share."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "oracle: drives real vLLM side by side (where it is installed)")
