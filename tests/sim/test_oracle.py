"""Real vLLM side by side with the exact core, on random operations. Runs where vLLM (its CPU build) is installed.

`pytest -m oracle` in an environment that has vLLM 0.32 or 0.33. Each seed is one world: its sizes and options, its
prompts and its operations are drawn from it, and after every operation everything that can be seen of both is compared:
schedules, block tables, the free queue, the map from hashes to blocks, KV events, counters and outputs.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
from types import SimpleNamespace
from typing import Any

import pytest

from pkv_sim.exact.cache_group import CacheGroupSpec
from pkv_sim.exact.cache_manager import KVCacheManager
from pkv_sim.exact.events import BlockRemoved, BlockStored
from pkv_sim.exact.hashing import BlockHasher
from pkv_sim.exact.profile import Profile
from pkv_sim.exact.request import Lora, MultiModalItem, Request
from pkv_sim.exact.scheduler import Scheduler
from pkv_sim.exact.scheduler_config import SchedulerConfig
from pkv_sim.exact.scheduler_output import SchedulerOutput

pytestmark = pytest.mark.oracle

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed", allow_module_level=True)

SCHEDULER_SEEDS = range(400)
MANAGER_SEEDS = range(1000, 1100)
OPERATIONS = 500
EOS = 0
VOCABULARY = 6


@pytest.fixture(scope="module")
def vllm() -> SimpleNamespace:
    """The parts of vLLM that are driven, by name."""
    version = importlib.import_module("vllm").__version__
    names = {"version": version, "kv_cache_utils": importlib.import_module("vllm.v1.core.kv_cache_utils")}
    for module, wanted in {
        "config": ("KVEventsConfig",),
        "lora.request": ("LoRARequest",),
        "multimodal.inputs": ("MultiModalFeatureSpec", "PlaceholderRange"),
        "sampling_params": ("SamplingParams",),
        "utils.hashing": ("get_hash_fn_by_name",),
        "v1.core.kv_cache_manager": ("KVCacheManager",),
        "v1.core.sched.async_scheduler": ("AsyncScheduler",),
        "v1.core.sched.scheduler": ("Scheduler",),
        "v1.kv_cache_interface": ("FullAttentionSpec", "KVCacheConfig", "KVCacheGroupSpec"),
        "v1.outputs": ("ModelRunnerOutput",),
        "v1.request": ("Request", "RequestStatus"),
    }.items():
        loaded = importlib.import_module(f"vllm.{module}")
        names.update({name: getattr(loaded, name) for name in wanted})
    return SimpleNamespace(**names)


def cache_config(vllm: SimpleNamespace, num_blocks: int, block_size: int) -> Any:
    spec = vllm.FullAttentionSpec(
        block_size=block_size, num_kv_heads=1, head_size=1, dtype=importlib.import_module("torch").float32
    )
    return vllm.KVCacheConfig(
        num_blocks=num_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[vllm.KVCacheGroupSpec(["layer"], spec)],
    )


def event_rows(events: Any) -> list[Any]:
    """Events of either side, whole: hashes as published, tokens, extra keys."""
    rows: list[Any] = []
    for event in events:
        kind = type(event).__name__
        if kind == "BlockStored":
            ours = isinstance(event, BlockStored)
            hashes = event.block_hashes
            parent = event.parent_block_hash
            rows.append(
                (
                    kind,
                    [low_64_bits(value) if ours else value for value in hashes],
                    low_64_bits(parent) if ours and parent is not None else parent,
                    list(event.token_ids),
                    event.block_size,
                    list(event.extra_keys or ()),
                    event.lora_name,
                    event.group_idx,
                )
            )
        elif kind == "BlockRemoved":
            ours = isinstance(event, BlockRemoved)
            rows.append(
                (kind, [low_64_bits(value) if ours else value for value in event.block_hashes], event.group_idx)
            )
        else:
            rows.append((kind,))
    return rows


def low_64_bits(block_hash: bytes) -> int:
    return int.from_bytes(block_hash, "big") & ((1 << 64) - 1)


def pool_rows(pool: Any) -> Any:
    """vLLM's pool as (free queue with hashes, reference counts, map with duplicates in order)."""
    cached = {}
    for key, held in pool.cached_block_hash_to_block._cache.items():
        blocks = tuple(held) if isinstance(held, dict) else (held.block_id,)
        cached[(bytes(key[:-4]), int.from_bytes(key[-4:], "big"))] = blocks
    queue = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
    # The null block's count is not maintained.
    return queue, [block.ref_cnt for block in pool.blocks[1:]], cached


class World:
    """Prompts that share prefixes, fill blocks exactly, repeat, and differ in salt, adapter or images."""

    def __init__(self, rng: random.Random, block_size: int, longest: int, *, images: bool) -> None:
        self.rng = rng
        self.block_size = block_size
        self.longest = longest
        self.images = images
        self.stems = [self._tokens(rng.randint(1, max(1, longest // 2))) for _ in range(4)]
        self.seen: list[list[int]] = []
        self.count = 0

    def _tokens(self, count: int) -> list[int]:
        return [self.rng.randrange(1, VOCABULARY) for _ in range(count)]

    def prompt(self) -> list[int]:
        rng = self.rng
        kind = rng.random()
        if kind < 0.25 and self.seen:
            tokens = list(rng.choice(self.seen))
        elif kind < 0.4 and self.seen:
            old = rng.choice(self.seen)
            tokens = old[: rng.randint(1, len(old))]
        else:
            tokens = rng.choice(self.stems) + self._tokens(rng.randint(0, self.longest // 2))
        if rng.random() < 0.4:
            tokens = tokens[: max(1, len(tokens) // self.block_size) * self.block_size]
        tokens = tokens[: self.longest]
        self.seen.append(tokens)
        return tokens

    def options(self, num_tokens: int) -> dict[str, Any]:
        rng = self.rng
        items = []
        offset = rng.randint(0, 3)
        while self.images and rng.random() < 0.4:
            length = rng.randint(1, 2 * self.block_size)
            if offset + length > num_tokens:
                break
            items.append((f"image{rng.randrange(2)}", offset, length))
            offset += length + rng.randint(0, 2)
        return {
            "salt": rng.choice([None, None, None, "a", "b", ""]),
            "lora": rng.choice([None, None, None, ("sql", "/adapters/sql", 1), ("sql", "/adapters/other", 2)]),
            "images": items,
            "skip": rng.random() < 0.05,
            "priority": rng.randrange(3),
        }


Hashers = tuple[BlockHasher | None, Any]


def build_requests(vllm: SimpleNamespace, world: World, hashers: Hashers, max_tokens: int) -> tuple[Request, Any]:
    """The same request for either side."""
    prompt = world.prompt()
    options = world.options(len(prompt))
    request_id = f"r{world.count}"
    # Equal arrival times make ties, which the id decides.
    arrival = float(world.count // 2)
    world.count += 1
    lora = options["lora"]
    ours = Request(
        request_id,
        prompt,
        max_tokens=max_tokens,
        hasher=hashers[0],
        arrival=arrival,
        priority=options["priority"],
        stop_token_ids=(EOS,),
        cache_salt=options["salt"],
        lora=None if lora is None else Lora(*lora),
        mm_items=[MultiModalItem(*item) for item in options["images"]],
        skip_reading_prefix_cache=options["skip"],
    )
    parameters = vllm.SamplingParams(max_tokens=max_tokens, stop_token_ids=[EOS], ignore_eos=True)
    parameters.skip_reading_prefix_cache = options["skip"]
    theirs = vllm.Request(
        request_id=request_id,
        prompt_token_ids=list(prompt),
        sampling_params=parameters,
        pooling_params=None,
        arrival_time=arrival,
        priority=options["priority"],
        cache_salt=options["salt"],
        lora_request=None
        if lora is None
        else vllm.LoRARequest(lora_name=lora[0], lora_int_id=lora[2], lora_path=lora[1]),
        mm_features=[
            vllm.MultiModalFeatureSpec(
                data=None,
                modality="image",
                identifier=name,
                mm_position=vllm.PlaceholderRange(offset=offset, length=length),
            )
            for name, offset, length in options["images"]
        ],
        block_hasher=hashers[1],
    )
    assert ours.block_hashes == theirs.block_hashes
    return ours, theirs


def build_hashers(
    vllm: SimpleNamespace, block_size: int, rng: random.Random, monkeypatch: pytest.MonkeyPatch, *, caching: bool
) -> Hashers:
    algorithm = rng.choice(["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"])
    if not caching:
        return None, None
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    function = vllm.get_hash_fn_by_name(algorithm)
    vllm.kv_cache_utils.init_none_hash(function)
    ours = BlockHasher(block_size, algorithm, seed="7", profile=Profile.for_version(vllm.version))
    return ours, vllm.kv_cache_utils.get_request_block_hasher(block_size, function)


@pytest.mark.parametrize("seed", MANAGER_SEEDS)
def test_manager_equals_vllm(vllm: SimpleNamespace, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    block_size = rng.choice([1, 2, 4, 16])
    num_blocks = rng.randint(2, 40)
    watermark = rng.choice([0.0, 0.0, 0.1])
    longest = max(2, min(block_size * (num_blocks - 1), 12 * block_size))
    caching = rng.random() < 0.95
    hashers = build_hashers(vllm, block_size, rng, monkeypatch, caching=caching)
    ours = KVCacheManager(
        num_blocks,
        [CacheGroupSpec("full_attention", block_size)],
        max_model_len=4 * longest,
        enable_prefix_caching=caching,
        enable_kv_cache_events=True,
        watermark=watermark,
        profile=Profile.for_version(vllm.version),
    )
    theirs = vllm.KVCacheManager(
        cache_config(vllm, num_blocks, block_size),
        max_model_len=4 * longest,
        scheduler_block_size=block_size,
        hash_block_size=block_size,
        enable_caching=caching,
        enable_kv_cache_events=True,
        log_stats=True,
        watermark=watermark,
    )
    world = World(rng, block_size, longest, images=True)
    live: list[tuple[Request, Any]] = []
    for operation in range(OPERATIONS):
        kind = rng.random()
        if kind < 0.35:
            pair = build_requests(vllm, world, hashers, 1 << 20)
            start(vllm, rng, ours, theirs, pair, live)
        elif kind < 0.8 and live:
            mine, other = rng.choice(live)
            if mine.num_computed_tokens == mine.num_tokens:
                token = rng.randrange(VOCABULARY)
                mine.append_output_token(token)
                other.append_output_token_ids(token)
            count = rng.randint(1, mine.num_tokens - mine.num_computed_tokens)
            accepted = ours.allocate_slots(mine, count)
            assert accepted == (theirs.allocate_slots(other, count) is not None)
            if accepted:
                mine.num_computed_tokens += count
                other.num_computed_tokens += count
        elif kind < 0.98 and live:
            mine, other = live.pop(rng.randrange(len(live)))
            ours.free(mine)
            theirs.free(other)
        elif kind >= 0.98:
            assert ours.reset_prefix_cache() == theirs.reset_prefix_cache()
        where = f"seed {seed}, operation {operation}"
        compare_caches(ours, theirs, [mine for mine, _ in live], where)
        assert event_rows(ours.take_events()) == event_rows(theirs.take_events()), where
        if operation % 50 == 0:
            ours.check_invariants()
    assert counters(ours.stats) == counters(theirs.prefix_cache_stats)


def start(
    vllm: SimpleNamespace,
    rng: random.Random,
    ours: KVCacheManager,
    theirs: Any,
    pair: tuple[Request, Any],
    live: list[Any],
) -> None:
    mine, other = pair
    found = ours.get_computed_blocks(mine)
    their_blocks, num_tokens, _ = theirs.get_computed_blocks(other)
    assert (found.num_tokens, found.blocks) == (num_tokens, their_blocks.get_block_ids())
    count = rng.randint(1, mine.num_tokens - num_tokens)
    whole, beside = rng.random() < 0.7, rng.random() < 0.7
    accepted = ours.allocate_slots(mine, count, found, full_sequence_must_fit=whole, has_running_requests=beside)
    granted = theirs.allocate_slots(
        other, count, num_tokens, their_blocks, full_sequence_must_fit=whole, has_scheduled_reqs=beside
    )
    assert accepted == (granted is not None)
    if accepted:
        ours.record_admission(mine, found)
        theirs.record_prefix_cache_stats(other, num_tokens)
        for request, running in ((mine, type(mine.status).RUNNING), (other, vllm.RequestStatus.RUNNING)):
            request.num_computed_tokens = num_tokens + count
            request.status = running
        live.append(pair)


def compare_caches(ours: KVCacheManager, theirs: Any, live: list[Request], where: str) -> None:
    pool = ours.pool
    queue, refs, cached = pool_rows(theirs.block_pool)
    assert list(pool.free_block_queue) == queue, where
    assert pool.ref_counts[1:] == refs, where
    assert pool.cached_blocks == cached, where
    for request in live:
        assert ours.block_tables(request.request_id) == theirs.get_block_ids(request.request_id), where


def counters(stats: Any) -> tuple[int, ...]:
    names = ("requests", "queries", "hits", "preempted_requests", "preempted_queries", "preempted_hits")
    return tuple(getattr(stats, name) for name in names)


class Duel:
    """One scheduler of each kind in the same world."""

    def __init__(self, vllm: SimpleNamespace, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.vllm = vllm
        self.rng = rng = random.Random(seed)
        block_size = rng.choice([1, 2, 4, 8, 16])
        num_blocks = rng.randint(4, 60)
        usable = block_size * (num_blocks - 1)
        self.asynchronous = rng.random() < 0.6
        # Steps under way at once: two with asynchronous scheduling, more with pipeline parallelism on top.
        self.depth = rng.choice([2, 2, 3]) if self.asynchronous else 1
        self.caching = rng.random() < 0.95
        max_model_len = rng.choice([1 << 16, max(3, usable), max(3, usable // 2)])
        policy = rng.choice(["fcfs", "fcfs", "priority"])
        options: dict[str, Any] = {
            "max_num_batched_tokens": rng.choice([1, 7, 16, 64, 256, 8192]),
            "max_num_seqs": rng.choice([1, 2, 4, 8, 64]),
            "long_prefill_token_threshold": rng.choice([0, 0, 3, 20]),
            "watermark": rng.choice([0.0, 0.0, 0.1, 0.3]),
            "scheduler_reserve_full_isl": rng.random() < 0.6,
            "async_scheduling": self.asynchronous,
            "policy": policy,
        }
        profile = Profile.for_version(vllm.version)
        config = SchedulerConfig(
            num_gpu_blocks=num_blocks,
            block_size=block_size,
            max_model_len=max_model_len,
            enable_prefix_caching=self.caching,
            enable_kv_cache_events=True,
            profile=profile,
            **options,
        )
        self.longest = max(1, min(usable, max_model_len) * 2 // 3)
        self.most = min(usable, max_model_len)
        self.ours = Scheduler(config)
        kind = vllm.AsyncScheduler if self.asynchronous else vllm.Scheduler
        self.theirs = kind(
            vllm_config=self._vllm_config(num_blocks, max_model_len, options),
            kv_cache_config=cache_config(vllm, num_blocks, block_size),
            structured_output_manager=SimpleNamespace(accept_tokens=lambda request, tokens: True),
            block_size=block_size,
            log_stats=True,
        )
        self.published: list[Any] = []
        self.theirs.kv_event_publisher = SimpleNamespace(publish=lambda batch: self.published.extend(batch.events))
        self.hashers = build_hashers(vllm, block_size, rng, monkeypatch, caching=self.caching)
        self.world = World(rng, block_size, self.longest, images=False)
        self.in_flight: list[tuple[SchedulerOutput, Any]] = []
        self.stats = [0] * 6
        self.where = ""

    def _vllm_config(self, num_blocks: int, max_model_len: int, options: dict[str, Any]) -> Any:
        scheduler = {
            **options,
            "max_num_active_seqs": None,
            "max_num_scheduled_tokens": None,
            "long_prefill_token_threshold_adaptive": False,
            "enable_chunked_prefill": True,
        }
        parallel = {
            "data_parallel_index": 0,
            "decode_context_parallel_size": 1,
            "prefill_context_parallel_size": 1,
            "pipeline_parallel_size": 1,
        }
        model = {
            "uses_mrope": False,
            "is_encoder_decoder": False,
            "runner_type": "generate",
            "is_diffusion": False,
            "max_model_len": max_model_len,
            "supports_multimodal_inputs": False,
            "return_sampling_mask": False,
        }
        cache = {
            "num_gpu_blocks": num_blocks,
            "enable_prefix_caching": self.caching,
            "enable_mamba_shared_prefix_checkpoint": False,
            "mamba_cache_mode": "none",
        }
        observability = {
            "per_request_spec_decode_metrics": "none",
            "kv_cache_metrics": False,
            "enable_mfu_metrics": False,
            "enable_logging_iteration_details": False,
        }
        return SimpleNamespace(
            scheduler_config=SimpleNamespace(**scheduler),
            parallel_config=SimpleNamespace(**parallel),
            model_config=SimpleNamespace(**model),
            cache_config=SimpleNamespace(**cache),
            observability_config=SimpleNamespace(**observability),
            kv_events_config=self.vllm.KVEventsConfig(enable_kv_cache_events=True, publisher="null"),
            aux_output_config=SimpleNamespace(enabled=False),
            ec_manager_config=SimpleNamespace(get_encoder_cache_manager_obj=lambda: None),
            lora_config=None,
            speculative_config=None,
            kv_transfer_config=None,
            ec_transfer_config=None,
            is_mm_encoder_only=False,
            use_v2_model_runner=False,
            num_speculative_tokens=0,
            num_lookahead_tokens=0,
            num_prefill_lookahead_tokens=0,
            max_in_flight_tokens=None,
            max_concurrent_batches=self.depth,
        )

    def add(self) -> None:
        max_tokens = self.rng.choice([1, 2, self.rng.randint(1, max(1, self.longest))])
        mine, other = build_requests(self.vllm, self.world, self.hashers, max_tokens)
        mine.max_tokens = other.max_tokens = min(max_tokens, max(1, self.most - mine.num_prompt_tokens))
        if mine.num_tokens >= self.ours.config.max_model_len:
            return
        self.ours.add(mine)
        self.theirs.add_request(other)

    def abort(self) -> None:
        if self.ours.requests:
            request_id = self.rng.choice(sorted(self.ours.requests))
            self.ours.abort([request_id])
            self.theirs.finish_requests(request_id, self.vllm.RequestStatus.FINISHED_ABORTED)

    def reset(self) -> None:
        running = self.rng.random() < 0.5
        assert self.ours.reset(reset_running_requests=running) == self.theirs.reset_prefix_cache(running), self.where

    def schedule(self) -> None:
        mine, other = self.ours.schedule(), self.theirs.schedule()
        self.in_flight.append((mine, other))
        scheduled = {item.request.request_id: item.num_new_tokens for item in mine.scheduled}
        assert list(scheduled.items()) == list(other.num_scheduled_tokens.items()), self.where
        assert set(mine.preempted) == other.preempted_req_ids, self.where
        assert set(mine.finished) == other.finished_req_ids, self.where
        new = {data.req_id: (data.num_computed_tokens, data.block_ids) for data in other.scheduled_new_reqs}
        cached = other.scheduled_cached_reqs
        positions = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for item in mine.scheduled:
            request_id = item.request.request_id
            assert item.samples == (not self.theirs.requests[request_id].is_prefill_chunk), self.where
            assert item.admitted == (request_id in new or request_id in cached.resumed_req_ids), self.where
            if request_id in new:
                assert (item.first_position, item.block_ids) == new[request_id], self.where
            else:
                assert item.first_position == positions[request_id], self.where

    def process(self) -> None:
        mine, other = self.in_flight.pop(0)
        sampled = {
            item.request.request_id: self.rng.choice([EOS, *range(1, VOCABULARY)] + [*range(1, VOCABULARY)] * 3)
            for item in mine.scheduled
            if item.samples
        }
        result = self.ours.update_from_output(mine, sampled)
        order = list(other.num_scheduled_tokens)
        replies = self.theirs.update_from_output(
            other,
            self.vllm.ModelRunnerOutput(
                req_ids=order,
                req_id_to_index={request_id: index for index, request_id in enumerate(order)},
                sampled_token_ids=[[sampled[request_id]] if request_id in sampled else [] for request_id in order],
            ),
        )
        outputs = []
        for reply in replies.values():
            for item in reply.outputs:
                reason = None if item.finish_reason is None else str(item.finish_reason)
                outputs.append((item.request_id, *item.new_token_ids, reason))
                if item.prefill_stats is not None:
                    request = next(out.request for out in result.outputs if out.request.request_id == item.request_id)
                    assert request.num_cached_tokens == item.prefill_stats.num_cached_tokens, self.where
            stats = reply.scheduler_stats
            if stats is not None:
                self.stats = [a + b for a, b in zip(self.stats, counters(stats.prefix_cache_stats), strict=True)]
        ours = [(item.request.request_id, item.token_id, item.finish_reason) for item in result.outputs]
        assert ours == outputs, self.where
        assert event_rows(result.events) == event_rows(self.published), self.where
        self.published.clear()

    def compare(self) -> None:
        mine, other = self.ours, self.theirs
        assert [request.request_id for request in mine.running] == [request.request_id for request in other.running]
        assert len(mine.waiting) == len(other.waiting), self.where
        compare_caches(mine.cache, other.kv_cache_manager, mine.running, self.where)
        for request_id, request in mine.requests.items():
            their = other.requests[request_id]
            for name in (
                "num_computed_tokens",
                "num_tokens",
                "num_output_placeholders",
                "num_in_flight_tokens",
                "num_stale_output_tokens",
                "num_preemptions",
                "block_hashes",
            ):
                assert getattr(request, name) == getattr(their, name), (self.where, request_id, name)
            assert request.status.name == their.status.name, self.where

    def operate(self, operation: int) -> None:
        self.where = f"operation {operation}"
        kind = self.rng.random()
        if kind < 0.12 or not self.ours.requests:
            self.add()
        elif kind < 0.14:
            self.abort()
        elif kind < 0.15:
            self.reset()
        elif len(self.in_flight) < self.depth and (not self.in_flight or self.rng.random() < 0.7):
            self.schedule()
        else:
            self.process()
        self.compare()


@pytest.mark.parametrize("seed", SCHEDULER_SEEDS)
def test_scheduler_equals_vllm(vllm: SimpleNamespace, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    duel = Duel(vllm, seed, monkeypatch)
    for operation in range(OPERATIONS):
        duel.operate(operation)
        if operation % 50 == 0:
            duel.ours.check_invariants()
    while duel.in_flight:
        duel.process()
    assert list(counters(duel.ours.cache.stats)) == duel.stats
