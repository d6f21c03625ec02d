"""Hit rates of real traffics, as the notes beside the data give them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import pytest

from pkv_lint.prompt.renderer import Renderer
from pkv_sim.fast.cache import FastCache
from pkv_sim.fast.prefix_tree import BlockRequest, PrefixTree
from pkv_sim.fast.run_tree import BlockRunTree
from pkv_sim.fast.token_tree import BlockIdTree, TokenTree


def hit_rates(tree: PrefixTree, requests: list[BlockRequest], usable: Iterable[int | None]) -> list[float]:
    """In tokens, for caches of so many usable blocks."""
    rates = []
    for blocks in usable:
        cache = FastCache(tree, None if blocks is None else blocks + 1)
        cache.replay(requests)
        assert not cache.num_refused
        rates.append(cache.stats.hits / cache.stats.queries)
    return rates


def block_hit_rate(tree: PrefixTree, requests: list[BlockRequest]) -> float:
    hits = FastCache(tree, None).replay(requests)
    return sum(hit or 0 for hit in hits) / tree.block_size / sum(request.prompt_blocks for request in requests)


@pytest.mark.parametrize(
    ("name", "rates", "block_rate"),
    [
        ("conversation", [0.0459, 0.2192, 0.3371, 0.3632, 0.3710, 0.3734], 0.3819),
        ("synthetic", [0.0867, 0.4430, 0.6388, 0.6504, 0.6504, 0.6504], 0.6594),
    ],
)
def test_mooncake(shared: Path, name: str, rates: list[float], block_rate: float) -> None:
    tree = BlockIdTree(512)
    with open(shared / "data" / "traces" / f"mooncake_{name}_trace.jsonl", encoding="utf-8") as file:
        rows = map(json.loads, file)
        requests = [tree.request(row["hash_ids"], row["input_length"]) for row in rows]
    found = hit_rates(tree, requests, [1_000, 10_000, 30_000, 50_000, 100_000, None])
    assert [round(rate, 4) for rate in found] == rates
    assert round(block_hit_rate(tree, requests), 4) == block_rate


def test_coding_agent(shared: Path) -> None:
    """Sessions merged by time; those of equal time in the order of the file."""
    rows = []
    with gzip.open(shared / "data" / "traces" / "weka_claude_code_traces_rle.jsonl.gz", "rt", encoding="utf-8") as file:
        for session in map(json.loads, file):
            rows += [(row["t"], session["id"], row) for row in session["requests"] if "hash_ids_rle" in row]
    rows.sort(key=lambda item: item[0])
    tree = BlockRunTree(64)
    requests = [tree.request(row["hash_ids_rle"], row["in"], namespace=name) for _, name, row in rows]
    assert len(requests) == 48_658
    found = hit_rates(tree, requests, [33_891, 100_000, 338_910, 1_000_000, None])
    assert [round(rate, 3) for rate in found[:-1]] == [0.169, 0.454, 0.809, 0.950]
    assert round(found[-1], 4) == 0.9636
    assert round(block_hit_rate(tree, requests), 4) == 0.9639


def test_tau_bench(shared: Path) -> None:
    data = shared / "data"
    tools = json.loads((data / "requests" / "_tau_airline_tools.json").read_text(encoding="utf-8"))
    with gzip.open(data / "traces" / "tau_bench_gpt-4o-airline.json.gz", "rt", encoding="utf-8") as file:
        conversations = [run["traj"] for run in json.load(file) if run["trial"] == 0]
    renderer = Renderer.load(
        chat_template=str(data / "templates" / "Qwen-Qwen3-0.6B.jinja"), tokenizer=str(data / "tokenizers" / "qwen3")
    )
    tree = TokenTree(16)
    requests = []
    for messages in conversations:
        for count, message in enumerate(messages):
            if message["role"] == "assistant":
                prompt = renderer.render({"messages": messages[:count], "tools": tools}, now=datetime(2026, 1, 1))
                requests.append(tree.request(prompt.token_ids))
    assert len(requests) == 642
    assert sum(request.num_prompt_tokens for request in requests) == 3_557_670
    assert [round(rate, 4) for rate in hit_rates(tree, requests, [None])] == [0.9598]
