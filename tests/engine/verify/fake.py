"""A server of one's own: answers as vLLM does, from the simulator's scheduler, and can be told to fail."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from pkv_lint.prompt.renderer import Renderer
from pkv_sim.exact.hashing import BlockHasher
from pkv_sim.exact.request import Request
from pkv_sim.exact.scheduler import Scheduler
from pkv_sim.exact.scheduler_config import SchedulerConfig

GENERATED = 7
"""The token that is generated, always."""

Spoil = Callable[[int, dict[str, Any]], httpx.Response | None]


def events(*chunks: dict[str, Any], end: bool = True) -> bytes:
    data = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    return data + (b"data: [DONE]\n\n" if end else b"")


def stream(data: bytes) -> httpx.Response:
    return httpx.Response(200, content=data, headers={"content-type": "text/event-stream; charset=utf-8"})


@dataclass
class FakeServer:
    """`engine` is what it passes for. `reports` turns each hit into what is reported (None: no details), `spoil` may
    answer in its stead. `ids` tells whether it knows `return_token_ids`."""

    engine: str = "vllm"
    num_gpu_blocks: int = 1000
    block_size: int = 16
    reports: Callable[[int], int | None] = lambda hit: hit
    spoil: Spoil = lambda number, body: None
    ids: bool = True
    renderer: Renderer = field(default_factory=Renderer.load)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    resets: int = 0

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(
            SchedulerConfig(
                num_gpu_blocks=self.num_gpu_blocks,
                block_size=self.block_size,
                max_model_len=100_000,
                async_scheduling=False,
            )
        )
        self.hasher = BlockHasher(self.block_size)

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self.answer)

    def answer(self, request: httpx.Request) -> httpx.Response:
        match request.url.path:
            case "/v1/models":
                return httpx.Response(200, json={"data": [{"id": "fake", "max_model_len": 100_000}]})
            case "/metrics":
                return httpx.Response(200, text=self.metrics())
            case "/version":
                return httpx.Response(200, json={"version": "0.33.0"})
            case "/server_info" if self.engine == "sglang":
                info = {"page_size": self.block_size, "enable_cache_report": True, "max_total_num_tokens": 100_000}
                return httpx.Response(200, json=info)
            case "/reset_prefix_cache":
                self.resets += 1
                return httpx.Response(200, json={"success": self.scheduler.reset()})
            case "/tokenize":
                ids = self.renderer.render(json.loads(request.content)).token_ids
                return httpx.Response(200, json={"tokens": list(ids)})
            case "/detokenize":
                return httpx.Response(
                    200, json={"prompt": self.renderer.tokenizer.decode(json.loads(request.content)["tokens"])}
                )
            case "/v1/chat/completions" | "/v1/completions":
                body = json.loads(request.content)
                self.bodies.append(body)
                return self.spoil(len(self.bodies) - 1, body) or self.complete(body)
        return httpx.Response(404, json={"detail": "Not Found"})

    def complete(self, body: dict[str, Any]) -> httpx.Response:
        prompt = self.tokens(body)
        hit, output = self.run(prompt, body)
        reported = self.reports(hit)
        details = None if reported is None else {"cached_tokens": reported}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(output), "prompt_tokens_details": details}
        named = {"token_ids": output} if self.ids else {}
        text = {"delta": {"content": "x"}} if "messages" in body else {"text": "x"}
        first = {"id": "r", "choices": [{"index": 0, **text, **named, "finish_reason": "length"}]}
        if self.ids:
            first["prompt_token_ids"] = list(prompt)
        return stream(events(first, {"id": "r", "choices": [], "usage": usage}))

    def tokens(self, body: dict[str, Any]) -> array[int]:
        if "messages" in body:
            return self.renderer.render(body).token_ids
        given = body["prompt"]
        return self.renderer.tokenizer.encode(given) if isinstance(given, str) else array("i", given)

    def run(self, prompt: array[int], body: dict[str, Any]) -> tuple[int, list[int]]:
        request = Request(
            "r",
            prompt,
            max_tokens=body["max_tokens"],
            hasher=self.hasher,
            cache_salt=body.get("cache_salt"),
        )
        self.scheduler.add(request)
        for _ in self.steps():
            pass
        assert request.num_cached_tokens is not None
        return request.num_cached_tokens, [GENERATED] * request.num_output_tokens

    def steps(self) -> Iterator[None]:
        while self.scheduler.has_unfinished_requests:
            step = self.scheduler.schedule()
            self.scheduler.update_from_output(step, {item.request.request_id: GENERATED for item in step.scheduled})
            yield

    def metrics(self) -> str:
        if self.engine not in ("vllm", "pkv"):
            return ""
        stats = self.scheduler.cache.stats
        labels = f'block_size="{self.block_size}",enable_prefix_caching="True",num_gpu_blocks="{self.num_gpu_blocks}"'
        return (
            f"# HELP {self.engine}:cache_config_info x\n"
            f'{self.engine}:cache_config_info{{{labels},sliding_window="None"}} 1.0\n'
            f'{self.engine}:prefix_cache_queries_total{{engine="0"}} {stats.queries}\n'
            f'{self.engine}:prefix_cache_hits_total{{engine="0"}} {stats.hits:.1f}\n'
            f'{self.engine}:num_preemptions_total{{engine="0"}} 0.0\n'
        )
