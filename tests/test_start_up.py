"""What linting imports: starting up is most of what one request costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
# Each takes a tenth of a second or more to import; torch and transformers are not even installed with the base package.
HEAVY = ["httpx", "huggingface_hub", "numpy", "pydantic", "torch", "transformers", "triton"]
SCRIPT = """
import json, sys
from pkv_lint.{module} import main
status = main({arguments!r})
print(json.dumps([status, sorted(set({heavy!r}) & set(sys.modules))]))
"""


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("cli", ["agent.jsonl", "--format", "json"]),
        ("cli", ["agent.jsonl"]),
        ("cli", ["messages_api.json"]),
        ("render_cli", ["agent_request.json", "--show", "blocks"]),
        ("render_cli", ["agent.jsonl", "--show", "ids"]),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_nothing_heavy_is_imported(module: str, arguments: list[str]) -> None:
    arguments = [str(EXAMPLES / arguments[0]), *arguments[1:]]
    script = SCRIPT.format(module=module, arguments=arguments, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8", check=False)
    assert done.stderr == "" or done.stderr.startswith("pkv-render: ")
    status, imported = json.loads(done.stdout.splitlines()[-1])
    assert status == (1 if module == "cli" else 0)
    assert imported == []
