"""A simulation as JSON: a stable contract for programs."""

from __future__ import annotations

import json
from typing import Any

from pkv_sim.bounds import Bounds
from pkv_sim.outputs.causes import cause_totals
from pkv_sim.simulation import Served, Simulation, share

VERSION = 1
DIGITS = 6
"""Decimal places of shares."""


def document(simulation: Simulation, bounds: Bounds | None = None, *, per_request: bool = False) -> dict[str, Any]:
    """`{"version", "summary", "settings", "causes", "refused", "notes"}`, and `requests` when asked for."""
    workload, settings = simulation.workload, simulation.settings
    found: dict[str, Any] = {
        "version": VERSION,
        "file": workload.name,
        "format": workload.format,
        "layout": workload.layout,
        "approximate": workload.approximate,
        "settings": {
            "block_size": workload.block_size,
            "num_gpu_blocks": settings.num_gpu_blocks,
            "schedule": settings.schedule,
            "replicas": settings.replicas,
            "router": settings.router if settings.replicas > 1 else None,
            "generated": settings.generated,
            "vllm_version": ".".join(map(str, settings.profile.version)),
        },
        "summary": summary(simulation),
        "causes": [
            {
                "code": cause.code,
                "name": cause.name,
                "path": cause.path,
                "reason": cause.reason,
                "requests": cause.requests,
                "tokens": cause.tokens,
                "share_of_prefill": rounded(share(cause.tokens, simulation.misses.tokens)),
            }
            for cause in cause_totals(simulation.served)
        ],
        "refused": [{"index": item.index, "line": item.line, "reason": item.reason} for item in simulation.refused],
        "notes": [*workload.notes, *simulation.notes],
    }
    if bounds is not None:
        found["summary"]["generated_text"] = {
            "hit_rate_none_reused": rounded(bounds.none_reused),
            "hit_rate_all_reused": rounded(bounds.all_reused),
        }
    if per_request:
        found["requests"] = [request(item) for item in simulation.served]
    return found


def summary(simulation: Simulation) -> dict[str, Any]:
    """What all requests together came to, in tokens; `hit_rate` and `block_hit_rate` are shares from 0 to 1."""
    found: dict[str, Any] = {
        "requests": len(simulation.served),
        "refused": len(simulation.refused),
        "unusable_lines": len(simulation.workload.unusable),
        "prompt_tokens": simulation.prompt_tokens,
        "cached_tokens": simulation.cached_tokens,
        "hit_rate": rounded(simulation.hit_rate),
        "block_hit_rate": rounded(simulation.block_hit_rate),
        "misses": simulation.misses._asdict(),
    }
    if simulation.waits is not None:
        found["waited"] = {"requests": simulation.waits.requests, "seconds": rounded(simulation.waits.seconds)}
    return found


def request(item: Served) -> dict[str, Any]:
    return {
        "index": item.request.index,
        "session_id": item.request.session_id,
        "replica": item.replica,
        "prompt_tokens": item.request.num_prompt_tokens,
        "cached_tokens": item.cached_tokens,
        "misses": item.misses._asdict(),
        "causes": [
            {"code": blame.code, "path": blame.path, "reason": blame.reason, "tokens": blame.tokens}
            for blame in item.blames
        ],
    }


def rounded(value: float) -> float:
    return round(value, DIGITS)


def dumps(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
