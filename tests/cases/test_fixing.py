"""The cases that have a fix, mended by the command: they hit as well as those that were mended by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.cases.test_cases import NOON, TEMPLATES

from pkv_lint.causes import replay
from pkv_lint.cli import main
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.traffic import TrafficLine, read_requests
from pkv_lint.turns import Turn, read_turns

SAFE = ["04-tools-shuffled-per-request", "05-tool-schema-key-order", "06-tool-args-key-order-round-trip"]
UNSAFE = [
    "01-timestamp-seconds-in-system",
    "03-attribution-hash-first-line",
    "15-memory-search-result-in-system",
    "17-tool-set-changes-mid-session",
]


@pytest.fixture(scope="module")
def model(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    shutil.copytree(shared / "data/tokenizers/qwen3", folder, copy_function=shutil.copyfile, dirs_exist_ok=True)
    folder.chmod(0o755)
    shutil.copyfile(shared / "data/templates" / TEMPLATES["qwen3"], folder / "chat_template.jinja")
    return folder


@pytest.fixture(scope="module")
def renderer(model: Path) -> Renderer:
    return Renderer.load(str(model))


@pytest.mark.parametrize("case", [*SAFE, *UNSAFE])
def test_a_mended_case_hits_within_a_block(
    case: str, shared: Path, model: Path, renderer: Renderer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = json.loads((shared / "cases" / case / "expected.json").read_text(encoding="utf-8"))
    file = tmp_path / "traffic.jsonl"
    shutil.copyfile(shared / "cases" / case / "traffic.jsonl", file)
    options = ["--model", str(model), "--select", ",".join(said["codes_any_of"])]
    status = main([str(file), "--fix", *options, *(["--unsafe-fixes"] if case in UNSAFE else [])])
    assert status == 0, capsys.readouterr().err
    lines = [line for line in read_requests(file) if isinstance(line, TrafficLine)]
    turns = [turn for turn in read_turns(lines, renderer, NOON) if isinstance(turn, Turn)]
    size = said["fixed"]["block_size"]
    hits = [item.hit for item in replay(turns, renderer, size)]
    for turn, hit, by_hand in zip(turns, hits, said["fixed"]["cached_tokens"], strict=True):
        # Lines that move make prompts longer than those without them, and are reused as well.
        moved = len(turn.ids) - said["fixed"]["prompt_tokens"][turn.index] if case in UNSAFE else 0
        assert by_hand - size <= hit <= by_hand + moved + size
