"""A server in a thread, over an engine whose runner needs no model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pytest

pytest.importorskip("uvicorn")

from pkv_engine.engine import Engine
from pkv_engine.generation import SampledToken, SamplingParams, TokenLogprob
from pkv_engine.loading import LoadedModel
from pkv_engine.server.draining import DrainingServer
from pkv_engine.server.service import Service, ServingOptions
from pkv_lint.prompt.renderer import Renderer
from pkv_sim.exact.scheduler_config import SchedulerConfig
from pkv_sim.exact.scheduler_output import SchedulerOutput

WORDS = " The quick brown fox jumps over the lazy dog."


@dataclass
class Typist:
    """A runner that types the same words for everybody. `pause` is what a step takes, `error` ends each step."""

    token_ids: list[int]
    pause: float = 0.0
    error: Exception | None = None
    seen: dict[str, SamplingParams] = field(default_factory=dict)

    def execute(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> Mapping[str, SampledToken]:
        time.sleep(self.pause)
        self.seen.update(params)
        if self.error is not None:
            raise self.error
        return {
            item.request.request_id: self._token(
                item.first_position + item.num_new_tokens - item.request.num_prompt_tokens,
                params[item.request.request_id],
            )
            for item in output.scheduled
            if item.samples
        }

    def _token(self, number: int, params: SamplingParams) -> SampledToken:
        token_id = self.token_ids[number % len(self.token_ids)]
        if params.logprobs is None:
            return SampledToken(token_id)
        others = tuple(TokenLogprob(rank + 10, -float(rank), rank) for rank in range(1, params.logprobs + 1))
        return SampledToken(token_id, (TokenLogprob(token_id, float("-inf"), 300), *others))


@dataclass
class Running:
    """A server that listens at `url`."""

    service: Service
    server: DrainingServer
    thread: threading.Thread
    typist: Typist
    url: str
    client: httpx.Client

    @property
    def blocks_in_use(self) -> float:
        return self.service.front.stats().kv_cache_usage

    def until(self, condition: Callable[[], bool], seconds: float = 5.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it does not come true"
            time.sleep(0.005)


def loaded_model(renderer: Renderer | None = None, *, policy: str = "fcfs", max_model_len: int = 2048) -> LoadedModel:
    renderer = renderer or Renderer.load()
    tokenizer = renderer.tokenizer
    config = SchedulerConfig(
        num_gpu_blocks=1024,
        block_size=16,
        max_model_len=max_model_len,
        max_num_batched_tokens=2048,
        policy=policy,
        async_scheduling=False,
    )
    engine = Engine(
        config,
        Typist(tokenizer.encode(WORDS).tolist()),
        vocab_size=tokenizer.backend.get_vocab_size(),
        tokenizer=tokenizer,
    )
    return LoadedModel("typist", engine, renderer, tokenizer, max_model_len, batch_invariant=True)


@contextmanager
def serving(
    options: ServingOptions | None = None, model: LoadedModel | None = None, **made: object
) -> Iterator[Running]:
    loaded = model or loaded_model(**made)  # type: ignore[arg-type]
    service = Service(loaded, options or ServingOptions())
    server = DrainingServer(service, port=0, log_level="critical")
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        with httpx.Client(base_url=url, timeout=30.0, trust_env=False) as client:
            yield Running(service, server, thread, loaded.engine.runner, url, client)  # type: ignore[arg-type]
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(name="serving", scope="session")
def serving_fixture() -> Callable[..., object]:
    return serving


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A server for the tests that change nothing about it."""
    with serving() as server:
        yield server
