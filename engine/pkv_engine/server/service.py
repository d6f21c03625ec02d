"""The loaded model as all endpoints use it: its renderer, its engine and what is counted."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pkv_engine.async_engine import AsyncEngine
from pkv_engine.generation import Delta, GenerationRequest, SamplingParams
from pkv_engine.loading import LoadedModel
from pkv_engine.server.bodies import MAX_SAMPLES, GenerationBody
from pkv_engine.server.errors import ApiError
from pkv_engine.server.metrics import Metrics
from pkv_engine.server.samples import Deltas, Sample, merged
from pkv_lint.prompt.prompt import Prompt
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.request import check_model

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """`served_model_name` are the names that requests may ask for (empty: the model's own). `max_requests` wait and run
    at once, more are refused; bodies have at most `max_body_size` bytes. At the end, what runs gets
    `shutdown_timeout` seconds."""

    served_model_name: tuple[str, ...] = ()
    api_key: str | None = None
    trust_request_chat_template: bool = False
    max_requests: int = 1024
    max_body_size: int = 32 << 20
    shutdown_timeout: float = 30.0


class Service:
    """`draining` is set once the server is about to end; `num_requests` are those that are on their way."""

    def __init__(self, loaded: LoadedModel, options: ServingOptions) -> None:
        self.loaded = loaded
        self.options = options
        self.names = options.served_model_name or (loaded.name,)
        self.renderer = _renderer(loaded, options, self.names, loaded.max_model_len)
        self.unlimited = _renderer(loaded, options, self.names, None)
        self.front = AsyncEngine(loaded.engine)
        self.metrics = Metrics(self.names[0], loaded.engine.scheduler.config, self.front.stats)
        self.started = int(time.time())
        self.draining = False
        self.num_requests = 0
        # One thread: renderers remember what they did and are not for several, and requests keep their order.
        self._thread = ThreadPoolExecutor(1, "pkv-render")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            async with self.front:
                yield
        finally:
            self._thread.shutdown(cancel_futures=True)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """For work that takes long, on the renderer's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def render(self, body: Mapping[str, Any], api: str) -> Prompt:
        """Raises RenderError for what vLLM refuses."""
        return await self.in_thread(lambda: self.renderer.render(body, api=api))

    async def samples(self, name: str, body: GenerationBody, samples: Sequence[Sample]) -> Deltas:
        """What the engine generates for the request of this name. Closing it aborts what is not done.

        Raises InputError for what can never run, ApiError where a step failed, EngineDeadError.
        """
        arrival = time.perf_counter()
        vocab_size = self.loaded.engine.vocab_size
        streams = [
            (sample, self._generate(name, sample, body, body.sampling_params(sample.number, vocab_size), arrival))
            for sample in samples
        ]
        async with aclosing(merged(streams)) as deltas:
            async for sample, delta in deltas:
                if delta.finish_reason == "error":
                    raise ApiError(500, "the step that computed this request failed")
                yield sample, delta

    async def _generate(
        self, name: str, sample: Sample, body: GenerationBody, params: SamplingParams, arrival: float
    ) -> AsyncGenerator[Delta, None]:
        request = GenerationRequest(
            # Names may come from clients, who may use one twice.
            request_id=f"{name}-{sample.index}-{uuid.uuid4().hex[:8]}",
            prompt_token_ids=sample.prompt.token_ids,
            params=params,
            cache_salt=body.cache_salt,
            priority=body.priority,
            arrival=arrival,
        )
        watch = self.metrics.watch(len(sample.prompt.token_ids), arrival)
        async with aclosing(self.front.generate(request)) as deltas:
            async for delta in deltas:
                watch.take(delta)
                yield delta

    def check_model(self, name: str | None) -> None:
        """Raises RenderError (404) for a model that is not here."""
        check_model({"model": name}, self.renderer.deployment)

    def check(self, body: GenerationBody, num_prompts: int = 1) -> None:
        """Raises ApiError for what this server does not do."""
        body.check(priorities=self.loaded.engine.scheduler.config.policy == "priority")
        if (count := body.num_samples * num_prompts) > MAX_SAMPLES:
            raise ApiError(400, f"{count} samples in one request; the limit is {MAX_SAMPLES}", param="n")


def _renderer(
    loaded: LoadedModel, options: ServingOptions, names: Sequence[str], max_model_len: int | None
) -> Renderer:
    """The model's renderer, with the limits of this server. No tool call parser is needed to take tools here: what the
    model says about them is given back as text."""
    renderer = copy(loaded.renderer)
    renderer.deployment = replace(
        renderer.deployment,
        stated=True,
        served_model_names=tuple(names),
        max_model_len=max_model_len,
        enable_auto_tool_choice=True,
        tool_parser=True,
        trust_request_chat_template=options.trust_request_chat_template,
    )
    return renderer
