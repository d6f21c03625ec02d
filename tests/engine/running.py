"""Engines for tests, and what they generate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pkv_engine.audit import KVAudit
from pkv_engine.engine import Engine
from pkv_engine.generation import Delta, GenerationRequest, SamplingParams
from pkv_engine.runner import Device, ModelRunner
from pkv_sim.exact.scheduler_config import SchedulerConfig


def engine_on(device: Device, *, num_blocks: int = 80, check_kv: bool = True, **config: Any) -> Engine:
    """An engine without eos tokens and text, unless told otherwise."""
    settings = {"block_size": 16, "max_model_len": 1024, "async_scheduling": False} | config
    audit = KVAudit(num_blocks, settings["block_size"]) if check_kv else None
    return Engine(
        SchedulerConfig(num_gpu_blocks=num_blocks, **settings),
        ModelRunner(device, settings["block_size"], audit=audit),
        vocab_size=device.vocab_size,
    )


def greedy(request_id: str, prompt: Sequence[int], max_tokens: int, **more: Any) -> GenerationRequest:
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    return GenerationRequest(request_id=request_id, prompt_token_ids=prompt, params=params, **more)


def run(engine: Engine, requests: Iterable[GenerationRequest] = ()) -> dict[str, list[Delta]]:
    """Adds requests and runs the engine until nothing is left; the deltas of each request."""
    deltas: dict[str, list[Delta]] = {}
    for request in requests:
        engine.add(request)
    while engine.has_work:
        for delta in engine.step():
            deltas.setdefault(delta.request_id, []).append(delta)
        engine.scheduler.check_invariants()
    assert engine.scheduler.cache.pool.num_free_blocks == engine.scheduler.config.num_gpu_blocks - 1
    return deltas


def tokens(deltas: Iterable[Delta]) -> list[int]:
    return [token for delta in deltas for token in delta.token_ids]


def text(deltas: Iterable[Delta]) -> str:
    return "".join(delta.text for delta in deltas)
