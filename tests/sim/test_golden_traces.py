"""Traces made by the real vLLM code: block ids, events and their order, free counts, the whole free queue."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pkv_sim.exact.cache_group import CacheGroupSpec
from pkv_sim.exact.cache_manager import KVCacheManager
from pkv_sim.exact.events import BlockRemoved, BlockStored, KVCacheEvent
from pkv_sim.exact.hashing import BlockHasher
from pkv_sim.exact.profile import Profile
from pkv_sim.exact.request import Request
from pkv_sim.exact.scheduler import Scheduler
from pkv_sim.exact.scheduler_config import SchedulerConfig
from pkv_sim.exact.scheduler_output import SchedulerOutput

MANAGER = (
    "legacy_022_trace_manager_overlap_random",
    "legacy_022_trace_manager_sequential_small",
    "trace_manager_overlap_duplicates",
    "trace_manager_overlap_random",
    "trace_manager_sequential_large",
    "trace_manager_sequential_small",
)
SCHEDULER = (
    "legacy_022_trace_sched_no_reserve",
    "legacy_022_trace_sched_small",
    "trace_sched_abort_reset",
    "trace_sched_block32",
    "trace_sched_chunked",
    "trace_sched_large",
    "trace_sched_no_reserve",
    "trace_sched_no_reserve_async",
    "trace_sched_priority",
    "trace_sched_priority_async",
    "trace_sched_salt_watermark",
    "trace_sched_same_step",
    "trace_sched_small",
    "trace_sched_small_async",
)


def load(shared: Path, name: str) -> dict[str, Any]:
    trace: dict[str, Any] = json.loads((shared / "golden" / f"{name}.json").read_text())
    return trace


def as_golden(events: Iterable[KVCacheEvent]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for event in events:
        if isinstance(event, BlockStored):
            parent = event.parent_block_hash
            rows.append(
                {
                    "t": "stored",
                    "hashes": [block_hash.hex() for block_hash in event.block_hashes],
                    "parent": None if parent is None else parent.hex(),
                    "n_tokens": len(event.token_ids),
                }
            )
        elif isinstance(event, BlockRemoved):
            rows.append({"t": "removed", "hashes": [block_hash.hex() for block_hash in event.block_hashes]})
        else:
            rows.append({"t": "cleared"})
    return rows


def final(cache: KVCacheManager) -> dict[str, Any]:
    keys = [(block, cache.pool.block_key(block)) for block in cache.pool.free_block_queue]
    return {
        "free_queue_front_first": [[block, None if key is None else key[0].hex()] for block, key in keys],
        "num_cached_hashes": cache.pool.num_cached_hashes,
    }


def manager_and_hasher(trace: dict[str, Any]) -> tuple[KVCacheManager, BlockHasher]:
    profile = Profile.for_version(trace["vllm_version"])
    manager = KVCacheManager(
        trace["num_gpu_blocks"],
        [CacheGroupSpec("full_attention", trace["block_size"])],
        max_model_len=1 << 20,
        enable_kv_cache_events=True,
        profile=profile,
    )
    seed = trace["pythonhashseed"]
    return manager, BlockHasher(trace["block_size"], trace["hash_algo"], seed=seed, profile=profile)


@pytest.mark.parametrize("name", MANAGER)
def test_manager_trace(shared: Path, name: str) -> None:
    trace = load(shared, name)
    manager, hasher = manager_and_hasher(trace)
    live: dict[str, Request] = {}
    for number, op in enumerate(trace["ops"]):
        where = f"{name}, op {number}: {op['op']} {op.get('id')}"
        kind = op["op"]
        if kind == "start":
            given = trace["requests"][op["id"]]
            request = Request(
                op["id"], given["prompt"], max_tokens=1 << 20, hasher=hasher, cache_salt=given.get("cache_salt")
            )
            live[op["id"]] = request
            computed = manager.get_computed_blocks(request)
            manager.record_admission(request, computed)
            assert computed.num_tokens == op["cached"], where
            assert manager.allocate_slots(request, op["new_tokens"], computed), where
            request.num_computed_tokens = computed.num_tokens + op["new_tokens"]
        elif kind == "more":
            request = live[op["id"]]
            assert manager.allocate_slots(request, op["new_tokens"]) == op["ok"], where
            request.num_computed_tokens += op["new_tokens"]
        elif kind == "decode":
            request = live[op["id"]]
            # The first token comes from the prefill; each later step computes the token before it. The last has no KV.
            for token in op["tokens"]:
                if request.num_computed_tokens < request.num_tokens:
                    assert manager.allocate_slots(request, 1), where
                    request.num_computed_tokens += 1
                request.append_output_token(token)
        elif kind == "free":
            manager.free(live.pop(op["id"]))
        else:
            assert kind == "reset"
            assert manager.reset_prefix_cache() == op["ok"], where
        if "blocks" in op:
            assert manager.block_tables(op["id"]) == (op["blocks"],), where
        assert as_golden(manager.take_events()) == op.get("events", []), where
        assert manager.pool.num_free_blocks == op["free"], where
    manager.check_invariants()
    stats = manager.stats
    assert {"requests": stats.requests, "queries": stats.queries, "hits": stats.hits} == trace["stats"]
    assert final(manager) == trace["final"]


def test_server_trace(shared: Path) -> None:
    """60 requests that a real server answered one at a time, as a replay through scheduler and manager."""
    trace = load(shared, "trace_server_sequential")
    scheduler = Scheduler(
        SchedulerConfig(
            num_gpu_blocks=trace["num_gpu_blocks"],
            block_size=trace["block_size"],
            max_model_len=1024,
            max_num_batched_tokens=trace["max_num_batched_tokens"],
            async_scheduling=False,
            enable_kv_cache_events=True,
        )
    )
    hasher = BlockHasher(trace["block_size"], trace["hash_algo"], seed=trace["pythonhashseed"])
    events: list[KVCacheEvent] = []
    for given in trace["requests"]:
        request = Request(
            given["id"],
            given["prompt"],
            max_tokens=len(given["output"]),
            hasher=hasher,
            cache_salt=given.get("cache_salt"),
        )
        scheduler.add(request)
        while scheduler.has_unfinished_requests:
            output = scheduler.schedule()
            sampled = {given["id"]: given["output"][request.num_output_tokens]} if output.scheduled[0].samples else {}
            events += scheduler.update_from_output(output, sampled).events
        assert request.num_cached_tokens == given["cached"], given["id"]
    assert as_golden(events) == trace["events"]


class SchedulerReplay:
    """Drives a scheduler with the arrivals, aborts, resets and forced outputs of a trace, one row per step."""

    def __init__(self, trace: dict[str, Any]) -> None:
        config = trace["config"]
        profile = Profile.for_version(trace["vllm_version"])
        self.trace = trace
        self.asynchronous = config["async_scheduling"]
        self.scheduler = Scheduler(
            SchedulerConfig(
                **{
                    key: config[key]
                    for key in (
                        "num_gpu_blocks",
                        "block_size",
                        "max_model_len",
                        "max_num_batched_tokens",
                        "max_num_seqs",
                        "policy",
                        "async_scheduling",
                        "watermark",
                        "long_prefill_token_threshold",
                        "scheduler_reserve_full_isl",
                    )
                },
                enable_kv_cache_events=True,
                profile=profile,
            )
        )
        self.hasher = BlockHasher(
            config["block_size"], config["hash_algo"], seed=config["pythonhashseed"], profile=profile
        )
        self.outputs = {given["id"]: given["output"] for given in trace["requests"]}
        self.requests: dict[str, Request] = {}
        self.finish_order: list[str] = []
        self.first_step: dict[str, int] = {}
        self.finish_step: dict[str, int] = {}
        self.in_flight: list[tuple[int, SchedulerOutput]] = []

    def arrive(self, step: int) -> None:
        for given in sorted(self.trace["requests"], key=lambda given: given["seq"]):
            if given["step"] == step:
                request = Request(
                    given["id"],
                    given["prompt"],
                    max_tokens=len(given["output"]),
                    hasher=self.hasher,
                    arrival=given["seq"],
                    priority=given.get("priority", 0),
                    cache_salt=given.get("cache_salt"),
                )
                self.requests[request.request_id] = request
                self.scheduler.add(request)

    def step(self, step: int) -> tuple[SchedulerOutput, list[KVCacheEvent]]:
        output = self.scheduler.schedule()
        for item in output.scheduled:
            self.first_step.setdefault(item.request.request_id, step)
        if output.scheduled or not self.asynchronous:
            self.in_flight.append((step, output))
        # An asynchronous engine takes in the step before, if there was one.
        due = bool(self.in_flight) and (not self.asynchronous or self.in_flight[0][0] < step)
        return output, self.process() if due else []

    def process(self) -> list[KVCacheEvent]:
        step, output = self.in_flight.pop(0)
        sampled = {}
        for item in output.scheduled:
            if item.samples:
                index = item.first_position + item.num_new_tokens - item.request.num_prompt_tokens
                tokens = self.outputs[item.request.request_id]
                # Behind the last forced output nothing is asked for; asynchronous steps may still be under way.
                sampled[item.request.request_id] = tokens[min(index, len(tokens) - 1)]
        result = self.scheduler.update_from_output(output, sampled)
        for token in result.outputs:
            if token.finish_reason:
                self.finish_order.append(token.request.request_id)
                self.finish_step[token.request.request_id] = step
        return list(result.events)


@pytest.mark.parametrize("name", SCHEDULER)
def test_scheduler_trace(shared: Path, name: str) -> None:
    trace = load(shared, name)
    replay = SchedulerReplay(trace)
    scheduler = replay.scheduler
    aborts = trace["config"]["aborts"]
    for row in trace["steps"]:
        step = row["step"]
        where = f"{name}, step {step}"
        if "reset_ok" in row:
            assert scheduler.reset() == row["reset_ok"], where
            continue
        replay.arrive(step)
        scheduler.abort(aborts.get(str(step), ()))
        output, events = replay.step(step)
        assert {item.request.request_id: item.num_new_tokens for item in output.scheduled} == row["scheduled"], where
        assert sorted(output.preempted) == row.get("preempted", []), where
        assert as_golden(events) == row.get("events", []), where
        assert scheduler.cache.pool.num_free_blocks == row["free"], where
        scheduler.check_invariants()
    assert replay.finish_order == trace["finish_order"]
    for request_id, result in trace["results"].items():
        request = replay.requests[request_id]
        assert request.num_cached_tokens == result["cached"], request_id
        assert request.num_preemptions == result["preemptions"], request_id
        assert replay.first_step.get(request_id) == result["first_step"], request_id
        assert replay.finish_step.get(request_id) == result["finish_step"], request_id
    stats = scheduler.cache.stats
    assert {key: getattr(stats, key) for key in trace["prefix_cache_stats"]} == trace["prefix_cache_stats"]
    assert final(scheduler.cache) == trace["final"]
