"""Real requests and real conversations, in which the rules on text and tools have little to say."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.findings import Finding
from pkv_lint.linting import lint_traffic
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.traffic import read_requests

# The airline's policy states the time of the benchmark; alone, nothing shows that it never moves.
AIRLINE = [("PKV101", "warning", "messages[0].content")]
UNSORTED = [("PKV202", "info", "tools")]
EXPECTED = {
    "01_pydantic_mcp_agent_turn1_21tools": UNSORTED,
    "02_pydantic_mcp_agent_turn2_21tools": UNSORTED,
    "03_pydantic_mcp_agent_turn3_21tools": UNSORTED,
    "04_deepseek_reasoner_deferred_a": UNSORTED,
    "05_deepseek_reasoner_deferred_b": UNSORTED,
    "08_tool_search_before": UNSORTED,
    "09_tool_search_after": UNSORTED,
    "12_llamastack_gpt4o_5tools_8msg": UNSORTED,
    "14_llamastack_llama32_toolloop": UNSORTED,
    "15_tau_airline_run3_first": AIRLINE,
    "16_tau_airline_run3_mid": AIRLINE,
    "17_tau_airline_run3_last": AIRLINE,
    "18_tau_airline_run4_last": AIRLINE,
}


@pytest.fixture(scope="module")
def renderer(shared: Path) -> Renderer:
    template = shared / "data/templates/Qwen-Qwen3-0.6B.jinja"
    return Renderer.load(chat_template=str(template), tokenizer=str(shared / "data/tokenizers/qwen3"))


def own(findings: Iterable[Finding]) -> list[tuple[str, str, str | None]]:
    return [(f.code, f.severity, f.path) for f in findings if f.code.startswith(("PKV1", "PKV2"))]


def lint_bodies(bodies: Iterable[dict[str, Any]], renderer: Renderer) -> list[tuple[str, str, str | None]]:
    text = "\n".join(json.dumps(body) for body in bodies)
    return own(lint_traffic(read_requests(io.BytesIO(text.encode()), name="traffic"), renderer).findings)


def test_bodies_alone(shared: Path, renderer: Renderer) -> None:
    files = sorted((shared / "data/requests").glob("[0-9]*.json"))
    found = {file.stem: own(lint_traffic(read_requests(file), renderer).findings) for file in files}
    assert {name: findings for name, findings in found.items() if findings} == EXPECTED


@pytest.mark.parametrize(
    "numbers", [("01", "02", "03"), ("04", "05"), ("08", "09"), ("10", "11"), ("15", "16", "17", "18")]
)
def test_bodies_of_one_run_together(shared: Path, renderer: Renderer, numbers: tuple[str, ...]) -> None:
    files = [next((shared / "data/requests").glob(f"{number}_*.json")) for number in numbers]
    assert lint_bodies((json.loads(file.read_text()) for file in files), renderer) == []


def test_all_bodies_together(shared: Path, renderer: Renderer) -> None:
    files = sorted((shared / "data/requests").glob("[0-9]*.json"))
    assert lint_bodies((json.loads(file.read_text()) for file in files), renderer) == []


@pytest.mark.slow
@pytest.mark.parametrize(("named", "count"), [(True, 200), (False, 40)])
def test_runs_of_an_agent(shared: Path, renderer: Renderer, named: bool, count: int) -> None:
    """The runs of tau-bench's airline (all 200 have 2,454 requests) as one traffic."""
    with gzip.open(shared / "data/traces/tau_bench_gpt-4o-airline.json.gz") as stream:
        runs = json.load(stream)
    tools = json.loads((shared / "data/requests/_tau_airline_tools.json").read_text())
    lines = []
    for number, run in enumerate(runs[:count]):
        for at, message in enumerate(run["traj"]):
            if at and message["role"] == "assistant":
                body = {"model": "m", "messages": run["traj"][:at], "tools": tools}
                lines.append({"session_id": f"run {number}", "request": body} if named else body)
    assert lint_bodies(lines, renderer) == []
