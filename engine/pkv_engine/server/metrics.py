"""`/metrics`: vLLM's metrics under `pkv:` (`v1/metrics/loggers.py`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from pkv_engine.generation import Delta, EngineStats
from pkv_sim.exact.scheduler_config import SchedulerConfig

_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000)

_GAUGES: tuple[tuple[str, str, Callable[[EngineStats], float]], ...] = (
    ("num_requests_running", "Requests that are being computed.", lambda stats: stats.num_running),
    ("num_requests_waiting", "Requests that wait to be computed.", lambda stats: stats.num_waiting),
    ("kv_cache_usage_perc", "Share of the KV cache's blocks in use, 0 to 1.", lambda stats: stats.kv_cache_usage),
)
_COUNTERS: tuple[tuple[str, str, Callable[[EngineStats], float]], ...] = (
    ("prefix_cache_queries", "Tokens looked up in the prefix cache.", lambda stats: stats.prefix_cache_queries),
    ("prefix_cache_hits", "Tokens found in the prefix cache.", lambda stats: stats.prefix_cache_hits),
    ("num_preemptions", "Requests that lost their blocks to others.", lambda stats: stats.num_preemptions),
    ("prompt_tokens", "Prompt tokens of all requests.", lambda stats: stats.prompt_tokens),
    ("generation_tokens", "Tokens generated.", lambda stats: stats.generation_tokens),
    ("engine_steps", "Steps of the engine.", lambda stats: stats.num_steps),
    ("engine_failed_steps", "Steps that failed, with their requests.", lambda stats: stats.num_failed_steps),
)


class Metrics:
    """The metrics of one server: what the engine counts is asked for when somebody looks, the rest is told here."""

    def __init__(self, model_name: str, config: SchedulerConfig, stats: Callable[[], EngineStats]) -> None:
        self._registry = CollectorRegistry()
        self.labels = {"model_name": model_name, "engine": "0"}
        self._config = config
        self._stats = stats
        self._registry.register(self)
        self.time_to_first_token = self._histogram("time_to_first_token_seconds", "From arrival to the first token.")
        self.token_latency = self._histogram("inter_token_latency_seconds", "From one token to the next.")
        self.latency = self._histogram("e2e_request_latency_seconds", "From arrival to the end.")
        self.prompt_tokens = self._histogram("request_prompt_tokens", "Prompt tokens of a request.", _TOKENS)
        self.generated = self._histogram("request_generation_tokens", "Tokens generated for a request.", _TOKENS)
        labels = [*self.labels, "finished_reason"]
        self.success = Counter("pkv:request_success", "Requests that ended.", labels, registry=self._registry)

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
        histogram = Histogram(f"pkv:{name}", about, list(self.labels), buckets=buckets, registry=self._registry)
        return histogram.labels(**self.labels)

    def watch(self, num_prompt_tokens: int, arrival: float) -> Watch:
        """For one sample that arrived at `arrival` (`time.perf_counter`)."""
        return Watch(self, num_prompt_tokens, arrival)

    def text(self) -> bytes:
        """In the text format of Prometheus."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        stats, values = self._stats(), list(self.labels.values())
        for families, kind in ((_GAUGES, GaugeMetricFamily), (_COUNTERS, CounterMetricFamily)):
            for name, about, value in families:
                metric = kind(f"pkv:{name}", about, labels=list(self.labels))
                metric.add_metric(values, value(stats))
                yield metric
        info = self._cache_config()
        metric = GaugeMetricFamily("pkv:cache_config_info", "How the KV cache is set up.", labels=list(info))
        metric.add_metric(list(info.values()), 1)
        yield metric

    def _cache_config(self) -> dict[str, str]:
        """Labels as vLLM writes them (`str` of Python values); the last three stand elsewhere there."""
        config = self._config
        values: dict[str, Any] = {
            "block_size": config.block_size,
            "num_gpu_blocks": config.num_gpu_blocks,
            "enable_prefix_caching": config.enable_prefix_caching,
            "prefix_caching_hash_algo": "sha256",
            "hash_block_size": config.block_size,
            "cache_hit_alignment_tokens": config.block_size,
            "sliding_window": None,
            "max_num_batched_tokens": config.max_num_batched_tokens,
            "max_num_seqs": config.max_num_seqs,
            "scheduling_policy": config.policy,
        }
        return {**{name: str(value) for name, value in values.items()}, "engine": "0"}


class Watch:
    """The times of one sample."""

    def __init__(self, metrics: Metrics, num_prompt_tokens: int, arrival: float) -> None:
        self._metrics = metrics
        self._num_prompt_tokens = num_prompt_tokens
        self._arrival = arrival
        self._last: float | None = None
        self._count = 0

    def take(self, delta: Delta) -> None:
        now, metrics = time.perf_counter(), self._metrics
        if delta.tokens:
            if self._last is None:
                metrics.time_to_first_token.observe(now - self._arrival)
            else:
                metrics.token_latency.observe(now - self._last)
            self._last = now
            self._count += len(delta.tokens)
        if delta.finish_reason is not None:
            metrics.latency.observe(now - self._arrival)
            metrics.prompt_tokens.observe(self._num_prompt_tokens)
            metrics.generated.observe(self._count)
            metrics.success.labels(**metrics.labels, finished_reason=delta.finish_reason).inc()
