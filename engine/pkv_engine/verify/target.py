"""The server that is verified: the one at a URL, or the bundled engine for as long as it is needed."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from pkv_lint.prompt.errors import InputError

START_TIMEOUT = 300.0
"""Seconds that the engine may take until it serves; large models take a while to load."""
STOP_TIMEOUT = 10.0
LAST_LINES = 1
"""Lines of the engine's complaints that an error quotes: the last one says what was wrong."""


@dataclass(frozen=True, slots=True)
class Target:
    """`fresh` tells that its cache is empty, `step_log` where it writes its steps."""

    url: str
    fresh: bool = False
    step_log: Path | None = None


@asynccontextmanager
async def bundled_engine(arguments: Sequence[str]) -> AsyncIterator[Target]:
    """`pkv-engine serve` on this machine alone with these arguments, stopped at the end. Raises InputError when it is
    not installed or does not start."""
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "the bundled engine needs torch: pip install 'pkv-lint[engine]', or name a server by --base-url"
        )
    with tempfile.TemporaryDirectory(prefix="pkv-verify-") as folder:
        step_log, complaints = Path(folder, "steps.jsonl"), Path(folder, "stderr")
        port = _free_port()
        command = [
            *(sys.executable, "-m", "pkv_engine.cli", "serve", *arguments),
            *("--host", "127.0.0.1", "--port", str(port), "--step-log", str(step_log)),
        ]
        # A key for another server is none for this one.
        environment = {name: value for name, value in os.environ.items() if name != "PKV_API_KEY"}
        with complaints.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=stderr, stderr=stderr, env=environment
            )
        try:
            url = f"http://127.0.0.1:{port}"
            await _wait_until_served(url, process, complaints)
            yield Target(url, fresh=True, step_log=step_log)
        finally:
            await _stop(process)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _wait_until_served(url: str, process: asyncio.subprocess.Process, complaints: Path) -> None:
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        try:
            async with asyncio.timeout(START_TIMEOUT):
                while not await _healthy(client):
                    if process.returncode is not None:
                        raise InputError(f"the bundled engine did not start: {_last_lines(complaints)}")
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise InputError(f"the bundled engine did not serve within {START_TIMEOUT:.0f} seconds") from None


async def _healthy(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).is_success
    except httpx.RequestError:
        return False


def _last_lines(complaints: Path) -> str:
    lines = complaints.read_text(encoding="utf-8", errors="replace").splitlines()
    return " ".join(lines[-LAST_LINES:]) or "it said nothing"


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
