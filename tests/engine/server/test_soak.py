"""A short run of `scripts/soak_server.py`."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "soak_server.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("soak_server", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_nothing_is_lost_and_nothing_leaks(serving, script) -> None:
    with serving() as server:
        server.typist.pause = 0.002
        soak = script.Soak(server.url)
        asyncio.run(soak.run(60, 3.0))
        assert soak.faults == []
        assert soak.answers["whole"] > 20 and soak.answers["left"] > 5
        server.until(lambda: server.service.num_requests == 0)
        assert server.service.front._streams == {}
