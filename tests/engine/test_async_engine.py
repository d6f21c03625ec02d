"""The engine behind asyncio, on the tiny model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pkv_engine.async_engine import AsyncEngine, EngineDeadError
from pkv_engine.engine import KVCheckError
from pkv_engine.generation import Delta
from pkv_engine.loading import LoadedModel, load
from pkv_engine.options import EngineOptions
from pkv_lint.prompt.errors import InputError

from .running import greedy, tokens

OPTIONS = EngineOptions(model="tiny", num_gpu_blocks=100, check_kv=True)


def on_front(test: Callable[[AsyncEngine, LoadedModel], Awaitable[None]]) -> None:
    async def main() -> None:
        loaded = load(OPTIONS)
        async with AsyncEngine(loaded.engine) as front:
            await asyncio.wait_for(test(front, loaded), 60)

    asyncio.run(main())


async def collect(front: AsyncEngine, name: str, prompt: list[int], count: int) -> list[Delta]:
    return [delta async for delta in front.generate(greedy(name, prompt, count))]


def test_many_at_once_are_what_each_is_alone() -> None:
    async def test(front: AsyncEngine, loaded: LoadedModel) -> None:
        prompts = [[number, 5, 6, 7] * 10 for number in range(8)]
        together = await asyncio.gather(*(collect(front, str(n), prompt, 10) for n, prompt in enumerate(prompts)))
        for number, prompt in enumerate(prompts):
            alone = await collect(front, f"again {number}", prompt, 10)
            if loaded.batch_invariant:
                assert tokens(alone) == tokens(together[number])
        assert front.stats().generation_tokens == 160

    on_front(test)


def test_who_stops_reading_is_aborted() -> None:
    async def test(front: AsyncEngine, loaded: LoadedModel) -> None:
        stream = front.generate(greedy("a", [1] * 40, 1000))
        await anext(stream)
        await stream.aclose()
        task = asyncio.create_task(collect(front, "b", [2] * 40, 1000))
        while not front.stats().num_running:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await front.reset_prefix_cache()
        assert loaded.engine.request_ids == ()

    on_front(test)


def test_a_request_that_cannot_run_is_refused() -> None:
    async def test(front: AsyncEngine, loaded: LoadedModel) -> None:
        with pytest.raises(InputError, match="the prompt is empty"):
            await collect(front, "a", [], 1)
        assert len(await collect(front, "a", [1], 2)) == 2

    on_front(test)


def test_leaving_aborts_what_runs() -> None:
    async def main() -> list[Delta]:
        async with AsyncEngine(load(OPTIONS).engine) as front:
            stream = front.generate(greedy("a", [1] * 40, 1000))
            await anext(stream)
        return [delta async for delta in stream]

    assert asyncio.run(main())[-1].finish_reason == "abort"


def test_an_engine_that_ends_tells_everybody(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: Any) -> None:
        raise KVCheckError("slot 7")

    async def test(front: AsyncEngine, loaded: LoadedModel) -> None:
        monkeypatch.setattr(loaded.engine.runner, "execute", broken)
        assert [delta.finish_reason for delta in await collect(front, "a", [1], 2)] == ["error"]
        assert isinstance(front.failure, KVCheckError)
        with pytest.raises(EngineDeadError):
            await collect(front, "b", [1], 2)

    on_front(test)
