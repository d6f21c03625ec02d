"""What a server says about itself: which engine it is, its cache, its models, its counters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import httpx

from pkv_engine.verify.reading import fetch

Engine = Literal["pkv", "vllm", "sglang", "unknown"]

_SAMPLE = re.compile(r"^([a-z_]+):([a-z_]+)(?:\{(.*)\})? ([-+0-9.eE]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


DEFAULT_STEP = 8192
"""The token budget of a step of servers that do not tell theirs: vLLM's on large GPUs."""


class Counters(NamedTuple):
    """Counters of the prefix cache since the server began, in tokens, and its preemptions."""

    queries: int
    hits: int
    preemptions: int

    def __sub__(self, other: Counters) -> Counters:
        return Counters(*(after - before for after, before in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """None stands for what it does not say. `num_gpu_blocks` counts the null block. `num_replicas` is the number of
    engines behind the address, `cache_report` whether SGLang was told to report cached tokens."""

    engine: Engine = "unknown"
    version: str | None = None
    models: tuple[str, ...] = ()
    max_model_len: int | None = None
    block_size: int | None = None
    num_gpu_blocks: int | None = None
    enable_prefix_caching: bool = True
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    scheduling_policy: str = "fcfs"
    num_replicas: int = 1
    cache_report: bool | None = None
    unmodelled: tuple[str, ...] = ()

    @property
    def offers_token_ids(self) -> bool:
        """Whether `return_token_ids` is known to it."""
        return self.engine in ("pkv", "vllm")

    @property
    def details_flag(self) -> str | None:
        """The flag that makes it report cached tokens."""
        return {"vllm": "--enable-prompt-tokens-details", "sglang": "--enable-cache-report"}.get(self.engine)


async def describe(client: httpx.AsyncClient) -> Server:
    """Ask a server what it is. What it does not answer stays unknown. Raises httpx.RequestError when it is down."""
    models = await _models(client)
    known: dict[str, Any] = {
        "models": tuple(str(model["id"]) for model in models if "id" in model),
        "max_model_len": next((_number(model.get("max_model_len")) for model in models), None),
    }
    metrics = await _text(client, "/metrics")
    named: tuple[Engine, ...] = ("pkv", "vllm")
    for engine in named:
        if infos := [labels for name, labels, _ in _samples(metrics, engine) if name == "cache_config_info"]:
            version = _mapping(await _json(client, "/version")).get("version")
            return Server(
                engine=engine,
                version=str(version) if version else None,
                **known,
                **_cache_config(infos),
            )
    for path in ("/server_info", "/get_server_info"):
        info = _mapping(await _json(client, path))
        if "page_size" in info or "max_total_num_tokens" in info:
            return Server(engine="sglang", **known, **_radix_cache(info))
    return Server(**known)


def _cache_config(infos: list[dict[str, str]]) -> dict[str, Any]:
    info = infos[0]
    unmodelled = [
        name
        for name, off in (
            ("sliding_window", ("None",)),
            ("mamba_block_size", ("None",)),
            ("kv_offloading_size", ("None", "0", "0.0")),
            ("prefix_match_unit", ("None",)),
        )
        if info.get(name, "None") not in off
    ]
    return {
        "block_size": _number(info.get("block_size")),
        "num_gpu_blocks": _number(info.get("num_gpu_blocks")),
        "enable_prefix_caching": info.get("enable_prefix_caching") != "False",
        "max_num_batched_tokens": _number(info.get("max_num_batched_tokens")),
        "max_num_seqs": _number(info.get("max_num_seqs")),
        "scheduling_policy": info.get("scheduling_policy", "fcfs"),
        "num_replicas": len(infos),
        "unmodelled": tuple(unmodelled),
    }


def _radix_cache(info: Mapping[str, Any]) -> dict[str, Any]:
    page = _number(info.get("page_size")) or 1
    slots = _number(info.get("max_total_num_tokens"))
    return {
        "version": info.get("version"),
        "block_size": page,
        "num_gpu_blocks": None if slots is None else slots // page + 1,
        "enable_prefix_caching": not info.get("disable_radix_cache", False),
        "num_replicas": _number(info.get("dp_size")) or 1,
        "cache_report": bool(info.get("enable_cache_report", False)),
    }


async def counters(client: httpx.AsyncClient, engine: Engine) -> Counters | None:
    """The counters of all replicas together; None where they cannot be read."""
    names = ("prefix_cache_queries_total", "prefix_cache_hits_total", "num_preemptions_total")
    sums: dict[str, float] = {}
    for name, _, value in _samples(await _text(client, "/metrics"), engine):
        if name in names:
            sums[name] = sums.get(name, 0.0) + value
    return Counters(*(int(sums.get(name, 0)) for name in names)) if names[0] in sums else None


async def reset_prefix_cache(client: httpx.AsyncClient, engine: Engine) -> str | None:
    """Have the server forget its cache. Returns why that did not work, None where it did."""
    path = "/flush_cache" if engine == "sglang" else "/reset_prefix_cache"
    try:
        response = await fetch(client, "POST", path)
    except httpx.RequestError as error:
        return f"POST {path}: {error}"
    if response.status_code == 404 and engine == "vllm":
        return f"POST {path} is not there: vLLM needs VLLM_SERVER_DEV_MODE=1 for it"
    if response.is_success and '"success":false' not in response.text.replace(" ", ""):
        return None
    return f"POST {path} answered {response.status_code} {response.text[:100]}"


async def _models(client: httpx.AsyncClient) -> list[Mapping[str, Any]]:
    # This one may fail: it tells whether there is a server at all.
    response = await fetch(client, "GET", "/v1/models")
    data = _mapping(_parsed(response)).get("data")
    return [_mapping(model) for model in data] if isinstance(data, list) else []


async def _json(client: httpx.AsyncClient, path: str) -> object:
    try:
        return _parsed(await fetch(client, "GET", path))
    except httpx.RequestError:
        return None


def _parsed(response: httpx.Response) -> object:
    try:
        return response.json() if response.is_success else None
    except (ValueError, RecursionError):
        return None


async def _text(client: httpx.AsyncClient, path: str) -> str:
    try:
        response = await fetch(client, "GET", path)
    except httpx.RequestError:
        return ""
    return response.text if response.is_success else ""


def _samples(metrics: str, prefix: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, labels and value of the samples of one engine, in the text format of Prometheus."""
    for found, name, labels, value in _SAMPLE.findall(metrics):
        if found == prefix:
            yield name, dict(_LABEL.findall(labels)), float(value)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None
