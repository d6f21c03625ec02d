"""The engine's real loop, batches, KV checks and sampler, with a model that says what a trace of real vLLM says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from pkv_engine.audit import KVAudit
from pkv_engine.engine import Engine
from pkv_engine.generation import GenerationRequest, SampledToken, SamplingParams
from pkv_engine.model import cpu_ops
from pkv_engine.model.batch import Batch
from pkv_engine.runner import ModelRunner
from pkv_sim.exact.block_pool import BlockPool
from pkv_sim.exact.events import BlockRemoved, BlockStored, KVCacheEvent
from pkv_sim.exact.hashing import BlockHasher
from pkv_sim.exact.profile import Profile
from pkv_sim.exact.request import Request
from pkv_sim.exact.scheduler_config import SchedulerConfig
from pkv_sim.exact.scheduler_output import SchedulerOutput, StepResult

TRACES = (
    "legacy_022_trace_sched_no_reserve",
    "legacy_022_trace_sched_small",
    "trace_sched_abort_reset",
    "trace_sched_block32",
    "trace_sched_chunked",
    "trace_sched_large",
    "trace_sched_no_reserve",
    "trace_sched_priority",
    "trace_sched_salt_watermark",
    "trace_sched_same_step",
    "trace_sched_small",
)
VOCAB = 1 << 13


class ScriptedDevice:
    """Logits that leave no doubt about the tokens to come."""

    vocab_size = VOCAB
    row_multiple = 1
    draw = staticmethod(cpu_ops.sample)

    def __init__(self) -> None:
        self.script: list[int] = []

    def forward(self, batch: Batch) -> torch.Tensor:
        assert batch.num_sampled == len(self.script)
        logits = torch.zeros(batch.num_sampled, VOCAB)
        logits[range(len(self.script)), self.script] = 1
        return logits


class ScriptedRunner(ModelRunner):
    def __init__(self, outputs: Mapping[str, list[int]], num_blocks: int, block_size: int) -> None:
        self.device = ScriptedDevice()
        self.outputs = outputs
        super().__init__(self.device, block_size, audit=KVAudit(num_blocks, block_size))

    def execute(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> dict[str, SampledToken]:
        requests = [item.request for item in output.scheduled if item.samples]
        self.device.script = [self.outputs[request.request_id][request.num_output_tokens] for request in requests]
        return super().execute(output, params)


class Recorder:
    """Keeps what the engine tells its observer."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        self.finish_order: list[str] = []
        self.output = SchedulerOutput((), (), ())
        self.events: list[dict[str, Any]] = []

    def arrival(self, request: Request) -> None:
        self.requests[request.request_id] = request

    def aborted(self, request_ids: Iterable[str]) -> None: ...

    def reset(self) -> None: ...

    def step(self, output: SchedulerOutput, result: StepResult) -> None:
        self.output = output
        self.events = [as_golden(event) for event in result.events]
        self.finish_order += [item.request.request_id for item in result.outputs if item.finish_reason]


def as_golden(event: KVCacheEvent) -> dict[str, Any]:
    if isinstance(event, BlockStored):
        hashes = [block_hash.hex() for block_hash in event.block_hashes]
        parent = event.parent_block_hash and event.parent_block_hash.hex()
        return {"t": "stored", "hashes": hashes, "parent": parent, "n_tokens": len(event.token_ids)}
    if isinstance(event, BlockRemoved):
        return {"t": "removed", "hashes": [block_hash.hex() for block_hash in event.block_hashes]}
    return {"t": "cleared"}


def free_queue(pool: BlockPool) -> list[list[Any]]:
    keys = [(block, pool.block_key(block)) for block in pool.free_block_queue]
    return [[block, None if key is None else key[0].hex()] for block, key in keys]


@pytest.mark.parametrize("name", TRACES)
def test_trace(shared: Path, name: str) -> None:
    trace = json.loads((shared / "golden" / f"{name}.json").read_text())
    config, profile = trace["config"], Profile.for_version(trace["vllm_version"])
    names = SchedulerConfig.__dataclass_fields__.keys() & config.keys()
    settings = {key: config[key] for key in names} | {"enable_kv_cache_events": True, "profile": profile}
    recorder = Recorder()
    engine = Engine(
        SchedulerConfig(**settings),
        ScriptedRunner(
            {given["id"]: given["output"] for given in trace["requests"]},
            config["num_gpu_blocks"],
            config["block_size"],
        ),
        vocab_size=VOCAB,
        hasher=BlockHasher(config["block_size"], config["hash_algo"], seed=config["pythonhashseed"], profile=profile),
        observer=recorder,
    )
    pool = engine.scheduler.cache.pool
    cached = {}
    for row in trace["steps"]:
        where = f"{name}, step {row['step']}"
        if "reset_ok" in row:
            assert engine.reset_prefix_cache() == row["reset_ok"], where
            continue
        for given in sorted(trace["requests"], key=lambda given: given["seq"]):
            if given["step"] == row["step"]:
                engine.add(request_of(given))
        engine.abort(config["aborts"].get(str(row["step"]), ()))
        for delta in engine.step():
            cached[delta.request_id] = delta.num_cached_tokens
        output = recorder.output
        assert {item.request.request_id: item.num_new_tokens for item in output.scheduled} == row["scheduled"], where
        assert sorted(output.preempted) == row.get("preempted", []), where
        assert recorder.events == row.get("events", []), where
        assert pool.num_free_blocks == row["free"], where
    assert recorder.finish_order == trace["finish_order"]
    for request_id, result in trace["results"].items():
        assert recorder.requests[request_id].num_preemptions == result["preemptions"], request_id
        if request_id in cached:
            assert cached[request_id] == result["cached"], request_id
    stats = engine.scheduler.cache.stats
    assert {key: getattr(stats, key) for key in trace["prefix_cache_stats"]} == trace["prefix_cache_stats"]
    assert free_queue(pool) == trace["final"]["free_queue_front_first"]
    assert pool.num_cached_hashes == trace["final"]["num_cached_hashes"]


def request_of(given: dict[str, Any]) -> GenerationRequest:
    return GenerationRequest(
        request_id=given["id"],
        prompt_token_ids=given["prompt"],
        params=SamplingParams(temperature=0, max_tokens=len(given["output"]), ignore_eos=True),
        cache_salt=given.get("cache_salt"),
        priority=given.get("priority", 0),
        arrival=given["seq"],
    )
