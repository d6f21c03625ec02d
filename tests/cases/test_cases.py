"""Prompt layouts that break prefix caching, and ones that only look as if they did (the `cases` of the real data)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.causes import replay
from pkv_lint.cli import main
from pkv_lint.findings import SEVERITIES
from pkv_lint.linting import load_rules
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.traffic import TrafficLine, read_requests
from pkv_lint.turns import Turn, read_turns

FAULTS = [
    "01-timestamp-seconds-in-system",
    "03-attribution-hash-first-line",
    "04-tools-shuffled-per-request",
    "05-tool-schema-key-order",
    "06-tool-args-key-order-round-trip",
    "08-tool-call-ids-regenerated",
    "09-reasoning-dropped-on-next-user-turn",
    "11-empty-think-block-only-in-generation-prompt",
    "12-date-from-chat-template-at-midnight",
    "14-sliding-window-drops-one-turn",
    "15-memory-search-result-in-system",
    "17-tool-set-changes-mid-session",
    "19-cache-salt-per-request",
    "20-shared-prefix-shorter-than-block",
    "21-round-robin-two-replicas",
    "22-lru-thrash-cyclic-sessions",
]
SILENT = [
    "N1-date-in-last-user-message",
    "N2-uuid-in-last-user-message",
    "N4-sorted-stable-tools",
    "N6-numbers-that-look-like-epochs",
    "N7-tool-call-ids-not-rendered-qwen3",
    "N9-body-key-order-and-sampling-params",
]
TEMPLATES = {
    "qwen3": "Qwen-Qwen3-0.6B.jinja",
    "llama-3.2": "meta-llama-Llama-3.2-3B-Instruct.jinja",
    "mistral-nemo": "mistralai-Mistral-Nemo-Instruct-2407.jinja",
}

NOON = datetime(2026, 11, 29, 12)

Lint = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def renderer(shared: Path) -> Callable[[str], Renderer]:
    @cache
    def load(template: str) -> Renderer:
        return Renderer.load(
            chat_template=str(shared / "data/templates" / TEMPLATES[template]),
            tokenizer=str(shared / "data/tokenizers/qwen3"),
        )

    return load


@pytest.fixture
def lint(shared: Path, capsys: pytest.CaptureFixture[str]) -> Lint:
    """The findings that the command prints for a traffic of a case, and its exit status checked against them."""

    def call(case: str, traffic: str) -> list[dict[str, Any]]:
        said = expected(shared, case)
        status = main(
            [
                *("--chat-template", str(shared / "data/templates" / TEMPLATES[said["template"]])),
                *("--tokenizer", str(shared / "data/tokenizers/qwen3")),
                *("--format", "json", *said["lint_args"], str(shared / "cases" / case / traffic)),
            ]
        )
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["findings"]
        assert status == int(any(finding["severity"] != "info" for finding in found))
        return found

    return call


def expected(shared: Path, case: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((shared / "cases" / case / "expected.json").read_text(encoding="utf-8"))
    return value


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_is_named_and_placed(case: str, shared: Path, lint: Lint) -> None:
    said = expected(shared, case)
    if not set(said["codes_any_of"]) & {rule.CODE for rule in load_rules()}:
        pytest.skip(f"no rule yet for {', '.join(said['codes_any_of'])}")
    found = [finding for finding in lint(case, "traffic.jsonl") if finding["code"] in said["codes_any_of"]]
    assert found, "not found"
    enough = SEVERITIES[: SEVERITIES.index(said["severity_at_least"]) + 1]
    assert any(
        finding["severity"] in enough
        and (not said["paths_any_of"] or (finding["path"] or "").startswith(tuple(said["paths_any_of"])))
        and said["request"] in (None, finding["request"])
        for finding in found
    ), found


@pytest.mark.parametrize("case", SILENT)
def test_what_only_looks_like_a_fault_is_left_alone(case: str, lint: Lint) -> None:
    assert [finding for finding in lint(case, "traffic.jsonl") if finding["severity"] != "info"] == []


@pytest.mark.parametrize("case", ["01-timestamp-seconds-in-system", "03-attribution-hash-first-line"])
def test_the_blamed_span_is_what_differs(case: str, shared: Path, lint: Lint) -> None:
    (finding,) = lint(case, "traffic.jsonl")
    lines = requests(shared / "cases" / case / "traffic.jsonl")
    texts = [line.request["messages"][0]["content"] for line in lines if line.request is not None]
    start, end = finding["span"]
    before, after = texts[0], texts[finding["request"]]
    assert before[:start] == after[:start]
    assert before[len(before) - len(after) + end :] == after[end:]
    assert end - start < 40


@pytest.mark.parametrize("traffic", ["traffic", "fixed"])
@pytest.mark.parametrize("case", [*FAULTS, *SILENT])
def test_cached_tokens(case: str, traffic: str, shared: Path, renderer: Callable[[str], Renderer]) -> None:
    said = expected(shared, case)
    if traffic not in said:
        pytest.skip("the case has no such numbers")
    renders = renderer(said["template"])
    lines = requests(shared / "cases" / case / f"{traffic}.jsonl")
    turns = [turn for turn in read_turns(lines, renders, lines[0].moment.now or NOON) if isinstance(turn, Turn)]
    assert [len(turn.ids) for turn in turns] == said[traffic]["prompt_tokens"]
    replayed = replay(turns, renders, said[traffic]["block_size"])
    assert [item.hit for item in replayed] == said[traffic]["cached_tokens"]


def requests(path: Path) -> list[TrafficLine]:
    return [line for line in read_requests(path) if isinstance(line, TrafficLine)]
