"""Prefix cache counters (vLLM: `v1/metrics/stats.py`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class PrefixCacheStats:
    """Lookups since the start, in requests and tokens: `queries` is what was asked for, `hits` what was found.

    The plain three are vLLM's `vllm:prefix_cache_queries` and `…_hits` metrics; lookups of preempted requests are kept
    apart.
    """

    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0

    def record(self, num_tokens: int, num_hits: int, *, preempted: bool) -> None:
        if preempted:
            self.preempted_requests += 1
            self.preempted_queries += num_tokens
            self.preempted_hits += num_hits
        else:
            self.requests += 1
            self.queries += num_tokens
            self.hits += num_hits
