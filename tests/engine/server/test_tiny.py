"""The server over the built-in model: values at the ends of their ranges, side by side, and clients that leave."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pkv_engine.loading import load
from pkv_engine.options import EngineOptions

EXTREMES = {
    "temperature": [0, 1e-6, 1e-4, 0.5, 2],
    "top_k": [-1, 0, 1, 5, 2**62],
    "top_p": [1e-9, 0.5, 1],
    "min_p": [0, 1e-9, 1],
    "seed": [None, 0, -(2**63), 2**63 - 1],
    "logprobs": [None, 0, 20],
    "min_tokens": [0, 6],
    "stop_token_ids": [[], [0, 5, 2**40, -7]],
    "ignore_eos": [True, False],
    "n": [1, 3],
    "prompt": ["Hello there", "A", "x" * 100],
}


@pytest.fixture(scope="module")
def server(serving) -> Iterator:
    options = EngineOptions(model="tiny", offline=True, max_model_len=200, num_gpu_blocks=64, check_kv=True)
    with serving(model=load(options)) as running:
        yield running


def test_extremes(server) -> None:
    rng = random.Random(0)
    bodies = [{name: rng.choice(values) for name, values in EXTREMES.items()} for _ in range(60)]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda body: server.client.post("/v1/completions", json=body), bodies))
    for body, answer in zip(bodies, answers, strict=True):
        refused = body["n"] > 1 and body["temperature"] < 1e-5
        assert answer.status_code == (400 if refused else 200), (body, answer.text)
        if not refused:
            assert len(answer.json()["choices"]) == body["n"]
    stats = server.service.front.stats()
    assert stats.num_failed_steps == 0 and stats.kv_cache_usage == 0


def test_a_seed_gives_the_same_tokens_in_any_company(server) -> None:
    body = {"prompt": "Once upon a time", "max_tokens": 12, "seed": 11, "return_token_ids": True}

    def ask(seed: int) -> list[int]:
        return server.client.post("/v1/completions", json={**body, "seed": seed}).json()["choices"][0]["token_ids"]

    alone = ask(11)
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, [11, 1, 2, 3, 11, 4, 5, 11]))[::7] == [alone, alone]
    samples = server.client.post("/v1/completions", json={**body, "seed": 10, "n": 2}).json()["choices"]
    assert samples[1]["token_ids"] == alone
