"""The probes on real chat templates: what they say is checked word by word in the rendered text."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pkv_lint.findings import Finding
from pkv_lint.linting import lint_traffic, load_rules
from pkv_lint.prompt.errors import RenderError
from pkv_lint.prompt.renderer import Renderer
from pkv_lint.prompt.template import ChatTemplates
from pkv_lint.prompt.traffic import read_requests

NOON = datetime(2026, 11, 29, 12)
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "<pad>", "unk_token": "<unk>"}

Load = Callable[[str], Renderer]
Body = dict[str, Any]


@pytest.fixture(scope="module")
def load(shared: Path) -> Load:
    """A real template by its name. One tokenizer stands in for all: only texts matter here."""
    tokenizer = Renderer.load(
        chat_template=str(shared / "data/templates/Qwen-Qwen3-0.6B.jinja"),
        tokenizer=str(shared / "data/tokenizers/qwen3"),
    ).tokenizer

    @cache
    def load(name: str) -> Renderer:
        source = (shared / "data/templates" / f"{name}.jinja").read_text(encoding="utf-8")
        return Renderer(ChatTemplates(tokenizer=source), tokenizer, special_tokens=SPECIAL_TOKENS)

    return load


@pytest.fixture(scope="module")
def names(shared: Path) -> list[str]:
    found = sorted(path.stem for path in (shared / "data/templates").glob("*.jinja"))
    assert len(found) == 138
    return found


def marked_tool(number: int) -> Body:
    properties = {f"qzproperty{number}x": {"type": "string", "description": f"qzmeaning{number}x"}}
    return {
        "type": "function",
        "function": {
            "name": f"qzname{number}x",
            "description": f"qzpurpose{number}x says what it is for",
            "parameters": {"type": "object", "properties": properties},
        },
    }


MARKED_CALL = {
    "id": "a1b2c3d4e",
    "type": "function",
    "function": {"name": "qzname0x", "arguments": '{"qzkey0x": "qzvalue0x"}'},
}
MARKED: Body = {
    "messages": [
        {"role": "system", "content": "qzsystem0x speaks here and now"},
        {"role": "user", "content": "qzuser0x asks here and now"},
        {"role": "assistant", "content": "", "tool_calls": [MARKED_CALL]},
        {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "qztool0x answers here and now"},
        {"role": "assistant", "content": "qzassistant0x answers here and now"},
        {"role": "user", "content": "qzuser1x asks again here and now"},
    ],
    "tools": [marked_tool(0), marked_tool(1)],
}


def missing(text: str) -> set[str]:
    """The kinds of which some mark is not in the text."""
    kinds = {f"{role} messages": f"qz{role}0x" for role in ("system", "user", "tool", "assistant")}
    found = {kind for kind, word in kinds.items() if word not in text}
    # The name of the first tool stands in the call too.
    if not all(any(f"qz{word}{number}x" in text for word in ("purpose", "property")) for number in (0, 1)):
        found.add("tools")
    return found | ({"tool calls"} if "qzvalue0x" not in text and "qzkey0x" not in text else set())


def said(findings: list[Finding]) -> set[str]:
    texts = [finding.message.partition("leaves ")[2].partition(" out")[0] for finding in findings]
    return {kind for text in texts for kind in text.split(", ")}


def lint(renderer: Renderer, code: str, *bodies: Body) -> list[Finding]:
    text = "\n".join(map(json.dumps, bodies))
    rules = [rule for rule in load_rules() if code == rule.CODE]
    report = lint_traffic(
        read_requests(io.BytesIO(text.encode()), name="traffic.jsonl"), renderer, rules=rules, now=NOON
    )
    return [finding for finding in report.findings if finding.code == code]


@pytest.mark.slow
def test_what_templates_leave_out(load: Load, names: list[str]) -> None:
    rendered, faulty, wrong = 0, 0, []
    for name in names:
        try:
            text = load(name).render(MARKED, NOON).text
        except RenderError:
            continue
        rendered += 1
        faulty += bool(missing(text or ""))
        if said(lint(load(name), "PKV503", MARKED)) != missing(text or ""):
            wrong.append(name)
    assert wrong == [] and rendered > 110 and faulty > 20


BELTS: Body = {
    "messages": [
        {
            "role": "system",
            "content": "You answer questions about fan belts, in one paragraph and with the part number.",
        },
        {"role": "user", "content": "Which belt fits the K 114, and how often is it changed?"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "find_part",
                "description": "Find a part by the number on its plate, for example 'K 114'.",
                "parameters": {"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]},
            },
        }
    ],
}
PLAIN: Body = {"messages": BELTS["messages"][1:]}
CLOCKS = {
    "Apertus-8B-Instruct": 170,
    "Mistral-Small-3.2-24B-Instruct-2506": 2,
    "gpt-oss.xinference": 264,
    "ibm-granite-granite-3.3-2B-Instruct": 9,
    "meta-llama-Llama-3.2-3B-Instruct": 33,
    "muse-glimmer": 118,
    "openai-gpt-oss-120b": 202,
    "upstage-Solar-Open-100B": 23,
}
"""Templates that print the date, and in which line."""
ALWAYS = {"gpt-oss.xinference", "meta-llama-Llama-3.2-3B-Instruct", "openai-gpt-oss-120b", "upstage-Solar-Open-100B"}
"""Those that do so whatever the system message."""
PINNED = {"meta-llama-Llama-3.2-3B-Instruct": "date_string", "muse-glimmer": "current_date"}
ASSUMED = {"meta-llama-Llama-3.2-3B-Instruct", "muse-glimmer"}


def templates_with(word: str, load: Load, names: list[str]) -> Iterator[str]:
    yield from (name for name in names if word in (load(name).templates.tokenizer or ""))


def test_templates_that_print_the_date(load: Load, names: list[str]) -> None:
    lines, always, pinned, assumed = {}, set(), {}, set()
    for name in templates_with("strftime_now", load, names):
        for finding in lint(load(name), "PKV501", PLAIN):
            assert (finding.severity, finding.evidence["granularity"]) == ("info", "day")
            lines[name] = finding.evidence["template_line"]
            if finding.evidence["pinned_by"]:
                pinned[name] = finding.evidence["pinned_by"]
            if "assumed" in finding.message:
                assumed.add(name)
        if lint(load(name), "PKV501", BELTS):
            always.add(name)
    assert (lines, always, pinned, assumed) == (CLOCKS, ALWAYS, PINNED, ASSUMED)


MOVING = {
    "Mistral-Small-3.2-24B-Instruct-2506",
    "deepseek-v3.xinference",
    "mistral-instruct-v0.3.xinference",
    "mistral-large-instruct.xinference",
    "mistralai-Mistral-Nemo-Instruct-2407",
}
"""Templates that print the tools at the last user message."""


@pytest.mark.slow
def test_templates_that_move_the_tools(load: Load, names: list[str]) -> None:
    found = {name for name in names for finding in lint(load(name), "PKV502", BELTS) if finding.path == "tools"}
    assert found == MOVING


def test_templates_that_escape(load: Load, names: list[str]) -> None:
    found = {name for name in templates_with("safe", load, names) if lint(load(name), "PKV504", BELTS)}
    assert found == {"meetkai-functionary-medium-v3.1"}


KEEPS = {
    "GLM-4.7-Flash": ("clear_thinking", "false"),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("truncate_history_thinking", "false"),
    "qwen3.6.xinference": ("preserve_thinking", "true"),
    "Qwen-Qwen3-0.6B": None,
    "MiniMax-M2": None,
}


@pytest.mark.parametrize("name", KEEPS)
def test_the_argument_that_keeps_reasoning(name: str, load: Load) -> None:
    thinking = {
        "role": "assistant",
        "content": "",
        "reasoning_content": "The plate has the number.",
        "tool_calls": [
            {
                "id": "a1b2c3d4e",
                "type": "function",
                "function": {"name": "find_part", "arguments": '{"number": "K 114"}'},
            }
        ],
    }
    result = {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "A belt of 900 mm, changed every 2,000 hours."}
    body = {**BELTS, "messages": [*BELTS["messages"], thinking, result]}
    (finding,) = lint(load(name), "PKV401", body)
    assert finding.path == "messages[2].reasoning_content" and finding.severity == "warning"
    switch = KEEPS[name]
    if switch is None:
        assert "chat_template_kwargs" not in finding.fix
        return
    assert f"chat_template_kwargs.{switch[0]} to {switch[1]}" in finding.fix
    kept = {**body, "chat_template_kwargs": {switch[0]: switch[1] == "true"}}
    assert lint(load(name), "PKV401", kept) == []


def test_openings_that_are_not_repeated(load: Load) -> None:
    (finding,) = lint(load("Qwen3-Next-Thinking.xinference"), "PKV403", PLAIN)
    assert (finding.severity, finding.path) == ("info", "messages[1]")
    assert lint(load("Qwen-Qwen3-0.6B"), "PKV403", PLAIN) == []
    (finding,) = lint(load("Qwen-Qwen3-0.6B"), "PKV403", {**PLAIN, "chat_template_kwargs": {"enable_thinking": False}})
    assert finding.severity == "info"
    # A tool call, which comes next as likely as an answer, does repeat it.
    assert lint(load("Qwen3-Next-Thinking.xinference"), "PKV403", BELTS) == []


@pytest.mark.slow
def test_gpt_oss_writes_the_date_itself(shared: Path, tmp_path: Path) -> None:
    pytest.importorskip("openai_harmony")
    for file in (shared / "data/tokenizers/gptoss").iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "config.json").write_text('{"model_type": "gpt_oss"}', encoding="utf-8")
    (finding,) = lint(Renderer.load(str(tmp_path)), "PKV501", PLAIN)
    assert (finding.severity, finding.evidence["pinned_by"]) == ("info", "VLLM_SYSTEM_START_DATE")
