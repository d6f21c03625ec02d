"""What rendering imports: the usual request is judged without pydantic, and nothing needs the extras."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HEAVY = ["httpx", "huggingface_hub", "numpy", "pydantic", "torch", "transformers"]
EXTRAS = ["mistral_common", "openai_harmony", "tiktoken", "torch", "transformers", "triton"]
RENDER = """
import json, sys
from pkv_lint.prompt.renderer import Renderer
renderer = Renderer.load()
for body in json.load(sys.stdin):
    renderer.render(body)
print(json.dumps(sorted(set({heavy!r}) & set(sys.modules))))
"""
USER = {"role": "user", "content": "hi"}
TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True},
}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}, "index": 0}
USUAL: list[dict[str, Any]] = [
    {"messages": [USER]},
    {
        "model": "m",
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]},
            {"role": "developer", "content": "d", "name": "n"},
            USER,
            {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None, "annotations": []},
            {"role": "tool", "tool_call_id": "c", "content": "r"},
            {"role": "assistant", "content": "a", "reasoning_content": "t"},
        ],
        "tools": [TOOL],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "temperature": 0,
        "max_completion_tokens": 10,
        "stream": True,
        "stream_options": {"include_usage": True},
        "response_format": {"type": "json_object"},
        "reasoning_effort": "low",
        "chat_template_kwargs": {"enable_thinking": False},
        "stop": ["x"],
        "metadata": {},
        "user": "u",
    },
    {
        "model": "m",
        "max_tokens": 5,
        "system": "s",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
    },
]


def run(script: str, given: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], input=given, capture_output=True, encoding="utf-8", check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def heavy(bodies: list[dict[str, Any]]) -> list[str]:
    found: list[str] = json.loads(run(RENDER.format(heavy=HEAVY), json.dumps(bodies)))
    return found


def test_a_usual_request_imports_nothing_heavy() -> None:
    assert heavy(USUAL) == []


def test_an_odd_request_is_judged_by_pydantic() -> None:
    assert heavy([{"messages": [USER], "max_tokens": "5"}]) == ["pydantic"]


def test_real_requests_import_nothing_heavy(shared: Path) -> None:
    files = sorted((shared / "data" / "requests").glob("[0-9]*.json"))
    # Two of the twenty carry cache breakpoints, which pydantic has to look at.
    bodies = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.name[:2] not in ("10", "11")]
    assert len(bodies) == 18
    assert heavy(bodies) == []


def test_the_base_install_is_enough() -> None:
    # None in sys.modules makes an import fail as if the package were not installed.
    script = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRAS!r}))
import importlib, pkgutil, pkv_lint, pkv_rules
for package in (pkv_lint, pkv_rules):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
from pkv_lint.prompt.renderer import Renderer
print(Renderer.load().render({{"messages": [{USER!r}]}}).text)
"""
    assert run(script) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n\n"
