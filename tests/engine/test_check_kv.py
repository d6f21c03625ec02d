"""Random requests in far too little memory: what the slots of the KV cache hold is checked at every read, and who
finishes has the tokens that it has alone."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from pkv_engine.engine import Engine, KVCheckError
from pkv_engine.generation import Delta, GenerationRequest, SamplingParams
from pkv_engine.model import cpu_ops
from pkv_engine.model.cpu import CpuDevice
from pkv_engine.model.decoder import Decoder

from . import families
from .running import engine_on, greedy, run, tokens

NUM_BLOCKS = 33
GAP = 1e-4
"""Where the logits of the two likeliest tokens are closer than this, sums in another order may change the choice."""


class Fault(Exception):
    pass


def faulty_device(rate: float) -> CpuDevice:
    """Fails in the middle of steps, with this probability in each of two layers: some layers have written their keys
    and values by then, others have not."""
    source = random.Random(5)

    def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
        if source.random() < rate:
            raise Fault
        return cpu_ops.silu_mul(gate_up)

    ops = SimpleNamespace(**{name: getattr(cpu_ops, name) for name in dir(cpu_ops)} | {"silu_mul": silu_mul})
    decoder = Decoder(families.config("llama3"), families.weights("llama3"), ops, 1024)
    return CpuDevice(decoder, NUM_BLOCKS, 16, 64)


def random_requests(count: int) -> Iterator[GenerationRequest]:
    """Conversations that continue each other, share beginnings, or stand alone; some in another namespace."""
    source = random.Random(3)
    prompts = [source.choices(range(families.VOCAB), k=source.randrange(1, 150)) for _ in range(4)]
    for number in range(count):
        base = source.choice(prompts)
        prompt = base[: source.randrange(1, len(base) + 1)]
        prompt += source.choices(range(families.VOCAB), k=source.choice((0, 1, 16, 40, 90)))
        prompts = [*prompts[-20:], prompt]
        yield GenerationRequest(
            request_id=str(number),
            prompt_token_ids=prompt[:300],
            params=SamplingParams(temperature=0, max_tokens=source.randrange(1, 30), logprobs=2),
            cache_salt=source.choice((None, None, None, "tenant \ud800")),
            priority=source.randrange(3),
            arrival=number,
        )


def demand(engine: Engine, waiting: list[GenerationRequest]) -> float:
    """Blocks that all requests under way want, in units of what there is."""
    names = set(engine.request_ids)
    live = [request for request in waiting if request.request_id in names]
    wanted = sum(-(-(len(request.prompt_token_ids) + (request.params.max_tokens or 0)) // 16) for request in live)
    return wanted / (NUM_BLOCKS - 1)


def unequal(alone: list[Delta], found: list[Delta]) -> bool | None:
    """None where the tokens differ only behind a choice that was too close."""
    ours, theirs = tokens(found), tokens(alone)
    step = next((index for index, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]), None)
    if step is None:
        return False
    for delta in alone[: step + 1]:
        _, first, second = delta.tokens[0].logprobs or ()
        if first.logprob - second.logprob < GAP:
            return None
    return True


@pytest.mark.parametrize(
    ("count", "policy"),
    [(60, "fcfs"), (60, "priority"), pytest.param(1000, "fcfs", marks=pytest.mark.slow)],
)
def test_nothing_is_read_that_was_not_written(
    count: int, policy: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.CRITICAL)
    engine = engine_on(
        faulty_device(0.005),
        num_blocks=NUM_BLOCKS,
        max_model_len=400,
        max_num_batched_tokens=96,
        max_num_seqs=24,
        policy=policy,
    )
    source = random.Random(4)
    requests = list(random_requests(count))
    deltas: dict[str, list[Delta]] = {request.request_id: [] for request in requests}
    pending, most = iter(requests), 0.0
    for request in pending:
        engine.add(request)
        most = max(most, demand(engine, requests))
        while demand(engine, requests) >= 20:
            step(engine, source, deltas)
    while engine.has_work:
        step(engine, source, deltas)
    pool = engine.scheduler.cache.pool
    assert pool.num_free_blocks == NUM_BLOCKS - 1
    stats = engine.stats()
    assert stats.num_preemptions and stats.num_failed_steps and stats.prefix_cache_hits
    assert count < 1000 or most >= 20

    device = families.device("llama3")
    finished = [request for request in requests if deltas[request.request_id][-1].finish_reason == "length"]
    assert len(finished) > count // 3
    close = 0
    for request in finished:
        alone = engine_on(device, check_kv=False, enable_prefix_caching=False)
        differs = unequal(run(alone, [request])[request.request_id], deltas[request.request_id])
        close += differs is None
        assert not differs, request.request_id
    assert not device.batch_invariant or not close
    with capsys.disabled():
        print(
            f"\n{count} requests at {most:.0f} times the memory: {stats.num_preemptions} preemptions, "
            f"{stats.num_failed_steps} failed steps; {len(finished)} finished with the tokens they give alone, "
            f"{close} of them up to a choice closer than {GAP}"
        )


def step(engine: Engine, source: random.Random, deltas: dict[str, list[Delta]]) -> None:
    gone = [source.choice(engine.request_ids)] if engine.request_ids and source.random() < 0.02 else []
    for delta in [*engine.abort(gone), *engine.step()]:
        deltas[delta.request_id].append(delta)
    engine.scheduler.check_invariants()


def test_a_failed_step_leaves_nothing_to_hit(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    engine = engine_on(faulty_device(1.0), num_blocks=NUM_BLOCKS, max_model_len=400)
    failed = run(engine, [greedy("a", list(range(100)), 4)])["a"]
    assert [delta.finish_reason for delta in failed] == ["error"]
    assert engine.scheduler.cache.pool.num_cached_hashes == 0


def test_the_check_finds_blocks_that_a_failed_step_left(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.CRITICAL)
    engine = engine_on(faulty_device(1.0), num_blocks=NUM_BLOCKS, max_model_len=400)
    monkeypatch.setattr(type(engine.scheduler.cache.pool), "evict_blocks", lambda self, blocks: None)
    run(engine, [greedy("a", list(range(100)), 4)])
    engine.add(greedy("b", list(range(100)), 4))
    with pytest.raises(KVCheckError, match="request b reads position 0 in block"):
        engine.step()


def test_the_check_finds_a_hit_of_the_wrong_block() -> None:
    engine = engine_on(families.device("llama3"))
    run(engine, [greedy("a", list(range(100)), 4), greedy("b", list(range(100, 200)), 4)])
    pool = engine.scheduler.cache.pool
    keys = list(pool.cached_blocks)
    cached = pool._cached
    cached[keys[0]], cached[keys[-1]] = cached[keys[-1]], cached[keys[0]]
    engine.add(greedy("c", list(range(100)), 4))
    with pytest.raises(KVCheckError, match="request c reads position"):
        engine.step()
