"""A report as a JSON object. Its shape is a contract; `version` changes when it does."""

from __future__ import annotations

import json
from typing import Any

from pkv_engine.verify.report import Report, Row


def document(report: Report) -> dict[str, Any]:
    server = report.server
    return {
        "version": 1,
        "file": report.name,
        "url": report.url,
        "server": {"engine": server.engine, "version": server.version, "models": list(server.models)},
        "settings": {
            "block_size": report.cache.block_size,
            "num_gpu_blocks": report.cache.num_gpu_blocks,
            "concurrency": report.pace.concurrency,
            "recorded_times": report.pace.recorded_times,
            "vllm_version": ".".join(map(str, report.cache.profile.version)),
        },
        "summary": {
            "requests": len(report.rows),
            "compared": len(report.compared),
            "as_predicted": report.statuses["as predicted"],
            "differ": report.statuses["differs"],
            "other_prompts": report.other_prompts,
            "reporting": report.reporting,
            "prompt_tokens": report.prompt_tokens,
            "predicted_tokens": report.predicted_tokens,
            "reported_tokens": report.reported_tokens,
            "total": None if report.total is None else {"predicted": report.total[0], "counted": report.total[1]},
            "warm": report.warm,
            "approximate": report.approximate,
            "exit_status": report.exit_status,
        },
        "faults": {fault.value: len(rows) for fault, rows in report.faults.items()},
        "signatures": [
            {"name": item.name, "requests": item.requests, "meaning": item.meaning} for item in report.signatures
        ],
        "prompt_differences": [
            {
                "index": item.index,
                "our_tokens": item.our_tokens,
                "their_tokens": item.their_tokens,
                "position": item.position,
                "ours": item.ours,
                "theirs": item.theirs,
            }
            for item in report.prompt_differences
        ],
        "refused": [{"index": item.index, "line": item.line, "reason": item.reason} for item in report.refused],
        "notes": list(report.notes),
        "requests": [_request(row) for row in report.rows],
    }


def _request(row: Row) -> dict[str, Any]:
    return {
        "index": row.index,
        "session_id": row.session_id,
        "status": row.status,
        "prompt_tokens": row.prompt_tokens,
        "predicted": row.predicted,
        "reported": row.reported,
        "ttft": row.answer.ttft,
        "predicted_ttft": row.predicted_ttft,
        "other_prompt": row.other_prompt,
        "fault": None if row.answer.fault is None else row.answer.fault.value,
        "message": row.answer.message or None,
    }


def dumps(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
