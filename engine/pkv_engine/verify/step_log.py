"""Prediction for requests that overlap, from when they reached the engine: its step log.

Of the log only arrivals, aborts, resets and the number of steps between them are used, never what a step computed or
found: that is what the simulator's scheduler is to tell by itself. Sampled tokens count as given, as they do anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pkv_engine.verify.asking import Answer
from pkv_engine.verify.prediction import Cache, Prediction
from pkv_engine.verify.server import Server
from pkv_lint.prompt.errors import InputError
from pkv_sim.exact.hashing import BlockHasher
from pkv_sim.exact.request import Request
from pkv_sim.exact.scheduler import Scheduler
from pkv_sim.exact.scheduler_config import SchedulerConfig

MANY_BLOCKS = 1 << 24
"""The cache of a server that does not tell its size."""


def predict_from_steps(log: Path, answers: Sequence[Answer], cache: Cache, server: Server) -> Prediction:
    """What each request hits when the simulator's scheduler gets the requests at the steps at which they came in.

    Raises InputError for a log that cannot be read.
    """
    rows = list(_rows(log))
    config = _config(cache, server)
    hits = cached_by_arrivals(rows, config)
    by_name = {_request_name(request_id): hit for request_id, hit in hits.items()}
    # A reply has the prefix of its endpoint.
    names = ((answer.response_id or "").partition("-")[2] for answer in answers)
    return Prediction(tuple(by_name.get(name) for name in names))


def cached_by_arrivals(rows: Iterable[dict[str, Any]], config: SchedulerConfig) -> dict[str, int]:
    """The cached tokens of each request of a log that was admitted, by its id."""
    rows = list(rows)
    sampled = _sampled(rows)
    aborted = {row["id"] for row in rows if row["event"] == "abort"}
    scheduler = Scheduler(config)
    hasher = BlockHasher(config.block_size, profile=config.profile)
    requests: dict[str, Request] = {}
    for row in rows:
        if row["event"] == "arrival":
            name = row["id"]
            # A token that ends the sequence ends it here as the last one that there was.
            done = name in sampled and name not in aborted
            requests[name] = Request(
                name,
                row["prompt"],
                max_tokens=len(sampled[name]) if done else row["max_tokens"],
                hasher=hasher,
                priority=row["priority"],
                arrival=row["arrival"],
                cache_salt=row["cache_salt"],
            )
            scheduler.add(requests[name])
        elif row["event"] == "abort":
            scheduler.abort([row["id"]])
        elif row["event"] == "reset":
            scheduler.reset()
        elif row["event"] == "step":
            output = scheduler.schedule()
            scheduler.update_from_output(
                output,
                {item.request.request_id: _next(item.request, sampled) for item in output.scheduled if item.samples},
            )
    return {
        name: request.num_cached_tokens for name, request in requests.items() if request.num_cached_tokens is not None
    }


def _sampled(rows: Iterable[dict[str, Any]]) -> dict[str, list[int]]:
    tokens: dict[str, list[int]] = {}
    for row in rows:
        for name, token in row.get("sampled", {}).items():
            tokens.setdefault(name, []).append(token)
    return tokens


def _next(request: Request, sampled: dict[str, list[int]]) -> int:
    """The token that the engine sampled at this point; any, when it did not (the prediction has then failed anyway)."""
    tokens, at = sampled.get(request.request_id, []), request.num_output_tokens
    return tokens[at] if at < len(tokens) else 0


def _config(cache: Cache, server: Server) -> SchedulerConfig:
    defaults = SchedulerConfig(num_gpu_blocks=2, block_size=1, max_model_len=1)
    return SchedulerConfig(
        num_gpu_blocks=cache.num_gpu_blocks or MANY_BLOCKS,
        block_size=cache.block_size,
        max_model_len=server.max_model_len or MANY_BLOCKS,
        max_num_batched_tokens=server.max_num_batched_tokens or defaults.max_num_batched_tokens,
        max_num_seqs=server.max_num_seqs or defaults.max_num_seqs,
        policy=server.scheduling_policy,
        async_scheduling=False,
        profile=cache.profile,
    )


def _request_name(request_id: str) -> str:
    """The engine tells the samples of a request apart by two more parts of its name (`Service.samples`)."""
    return request_id.rsplit("-", 2)[0]


def _rows(log: Path) -> Iterator[dict[str, Any]]:
    try:
        with log.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = json.loads(line)
                except ValueError:
                    raise InputError("is not JSON", file=str(log), line=number) from None
                if not isinstance(row, dict) or "event" not in row:
                    raise InputError("is no line of a step log", file=str(log), line=number)
                yield row
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(log)) from None
