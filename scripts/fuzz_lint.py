"""Lint requests that were damaged at random: whatever they hold, the linter answers, soon, and never with a traceback.

    python scripts/fuzz_lint.py [COUNT] [--seed N]

Takes the bodies of examples/, and of the real data where they are ($PKV_SHARED, or ../shared), changes values and bytes
in them, and lints each file with the built-in layout or a real template, shows the findings in every format (a page for
one in ten) and fixes one in five, twice. Prints what went wrong and how to see it again; the exit status is 1 then.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pkv_lint.batch import Batch, lint_files
from pkv_lint.fixes.documents import Document, Documents
from pkv_lint.fixes.fixing import fixed
from pkv_lint.fixes.showing import diff, notes
from pkv_lint.linting import load_rules
from pkv_lint.outputs import lines
from pkv_lint.prompt.renderer import Renderer

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("PKV_SHARED", ROOT.parent / "shared")) / "data"
FORMATS = ("text", "concise", "json", "sarif", "github", "statistics")
TEMPLATES = ("Qwen-Qwen3-0.6B", "meta-llama-Llama-3.2-3B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407")
SECONDS = 5
"""Of processor time: another program that takes the processor is no hang of ours."""
LARGEST = 60_000
"""Characters of a file, beyond which it is cut: what is to be found is in the shape, not in the size."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    bodies, renderers, rules = corpus(), loaded(), load_rules()
    signal.signal(signal.SIGPROF, too_late)
    counts: Counter[str] = Counter()
    slowest, wrong = 0.0, 0
    for seed in range(options.seed, options.seed + options.count):
        rng = random.Random(seed)
        data = file_of(rng, bodies)
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            counts[judge(rng, data, rng.choice(renderers), rules)] += 1
        except Exception as error:
            wrong += 1
            frame = traceback.extract_tb(error.__traceback__)[-1]
            print(f"--seed {seed} 1: {type(error).__name__}: {str(error)[:200]} ({frame.filename}:{frame.lineno})")
        signal.setitimer(signal.ITIMER_PROF, 0)
        slowest = max(slowest, time.process_time() - start)
    total = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
    print(f"{options.count:,} files: {total}; {wrong:,} tracebacks or hangs; the slowest took {slowest:.1f} s")
    return int(wrong > 0)


def too_late(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def judge(rng: random.Random, data: bytes, renderer: Renderer, rules: list[Any]) -> str:
    """What came out, in one word."""
    now = datetime(2026, 11, 29, 12)
    documents = Documents("stdin", {"stdin": Document.of(data)})

    def lint(version: Documents) -> Batch:
        return lint_files(["-"], rules, lambda line: renderer, lambda _: 16, zone=UTC, now=now, source=version.source)

    batch = lint(documents)
    if batch.failed:
        return "unreadable"
    # A page takes longer than all the others together.
    for name in (*FORMATS, "html") if rng.random() < 0.1 else FORMATS:
        for line in lines(name, batch.reports):
            line.encode(errors="backslashreplace")
    if rng.random() < 0.2:
        outcome = fixed(lint, documents, unsafe=True)
        list(notes(outcome, made=True))
        if list(diff(documents, outcome.documents)):
            again = fixed(lint, outcome.documents, unsafe=True)
            assert not list(diff(outcome.documents, again.documents)), "a second run changes something"
            return "fixed"
    if batch.incomplete:
        return "refused"
    return "found" if any(report.findings for report in batch.reports) else "clean"


def corpus() -> list[dict[str, Any]]:
    files = sorted((ROOT / "examples").glob("*.json*")) + sorted(DATA.glob("requests/[0-9g]*.json*"))
    values = [value for file in files for value in read(file) if isinstance(value, dict)]
    small = [value for value in values if len(json.dumps(value)) < LARGEST]
    return small or values


def read(file: Path) -> list[Any]:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    value = json.loads(text)
    return value if isinstance(value, list) else [value]


def loaded() -> list[Renderer]:
    """The built-in layout, and real templates with a real vocabulary."""
    renderers = [Renderer.load()]
    if DATA.is_dir():
        for name in TEMPLATES:
            template = str(DATA / "templates" / f"{name}.jinja")
            renderers.append(Renderer.load(chat_template=template, tokenizer=str(DATA / "tokenizers" / "qwen3")))
    return renderers


def file_of(rng: random.Random, bodies: list[dict[str, Any]]) -> bytes:
    """Some versions of one body, each damaged on its own, as a file."""
    body = rng.choice(bodies)
    count = rng.choice((1, 2, 2, 3, 5))
    versions = [turn(deepcopy(body), number, count) for number in range(count)]
    for version in versions:
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            change(rng, version)
        if rng.random() < 0.3:
            damage(rng, version, bodies)
    if rng.random() < 0.3:
        versions = [{"request": version, "session_id": rng.choice(("s", "t", 1, None, []))} for version in versions]
    ascii_only = rng.random() < 0.5
    if rng.random() < 0.2:
        text = json.dumps(versions, ensure_ascii=ascii_only, indent=rng.choice((None, 1)))
    else:
        text = "\n".join(json.dumps(version, ensure_ascii=ascii_only) for version in versions)
    data = bytearray(text[:LARGEST].encode(errors="surrogatepass"))
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        damage_bytes(rng, data)
    return bytes(data)


def turn(value: dict[str, Any], number: int, count: int) -> dict[str, Any]:
    """The request as it was some turns before."""
    body = value.get("request", value.get("body", value))
    messages = body.get("messages", body.get("input")) if isinstance(body, dict) else None
    if isinstance(messages, list):
        del messages[max(2, len(messages) * (number + 1) // count) :]
    return value


def change(rng: random.Random, root: Any) -> None:
    """Change one value as clients do: another text, another order, less of it."""
    holder, key = rng.choice(walk(root))
    value = holder[key]
    if isinstance(value, str):
        if key not in ("role", "type"):
            holder[key] = changed_text(rng, value)
    elif isinstance(value, list):
        rng.shuffle(value)
    elif isinstance(value, dict):
        items = list(value.items())
        rng.shuffle(items)
        holder[key] = dict(items)


def damage(rng: random.Random, root: Any, bodies: list[dict[str, Any]]) -> None:
    """Change one value somewhere."""
    places = list(walk(root))
    holder, key = rng.choice(places)
    new = odd(rng, bodies)
    match rng.randrange(5):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, new)
        case 1:
            holder[rng.choice(NAMES)] = new
        case 2 if isinstance(holder, dict):
            holder[rng.choice(NAMES)] = holder.pop(key)
        case 3:
            other, place = rng.choice(places)
            holder[key] = deepcopy(other[place]) if other is not holder else new
        case _:
            holder[key] = new


def walk(value: Any) -> list[tuple[Any, Any]]:
    """All places in a value, each as what holds it and the key there."""
    places: list[tuple[Any, Any]] = []
    for key in list(value if isinstance(value, dict) else range(len(value))):
        places.append((value, key))
        if isinstance(value[key], (dict, list)):
            places += walk(value[key])
    return places


NAMES = (
    *("role", "content", "type", "text", "name", "function", "tools", "tool_calls", "arguments", "id", "tool_call_id"),
    *("messages", "system", "input", "prompt", "instructions", "cache_control", "tool_choice", "chat_template_kwargs"),
    *("cache_salt", "n", "logprobs", "prompt_logprobs", "model", "reasoning_content", "image_url", "parameters", ""),
    *("chat_template", "documents", "add_generation_prompt", "continue_final_message", "required", "enum", "\ud800"),
)
STRINGS = (
    *("", "x", "\0", "\ud800", "\udfff\ud800", "\u202e", "{", "{}", "[]", '{"a": 1}', "null", "<|im_end|>", "{{ 1 }}"),
    *(
        "2026-11-29 14:05:33",
        "550e8400-e29b-41d4-a716-446655440000",
        "tool",
        "assistant",
        "system",
        "ephemeral",
        "none",
    ),
    *("\n" * 300, "word " * 500, "9" * 400, "a" * 5000, "\N{GRINNING FACE}" * 50, "e\u0301" * 40, "\r\n\u2028\x85"),
)


def odd(rng: random.Random, bodies: list[dict[str, Any]]) -> Any:
    """A value that nobody expects."""
    match rng.randrange(8):
        case 0:
            return rng.choice((None, True, False))
        case 1:
            return rng.choice((0, -1, 1, 2**31, 2**63, -(10**40), 1.5, 1e308, float("nan"), float("inf")))
        case 2:
            return rng.choice(STRINGS)
        case 3:
            return {rng.choice(NAMES): rng.choice(STRINGS) for _ in range(rng.randrange(4))}
        case 4:
            return [rng.choice(STRINGS) for _ in range(rng.randrange(4))]
        case 5:
            return nested(rng, rng.choice((3, 30, 90, 250)))
        case _:
            holder, key = rng.choice(walk(rng.choice(bodies)))
            return deepcopy(holder[key])


def nested(rng: random.Random, depth: int) -> Any:
    value: Any = rng.choice(STRINGS)
    wrap: Callable[[Any], Any] = rng.choice((lambda inner: [inner], lambda inner: {"a": inner}))
    for _ in range(depth):
        value = wrap(value)
    return value


def changed_text(rng: random.Random, text: str) -> str:
    start = rng.randrange(len(text) + 1)
    end = min(len(text), start + rng.choice((0, 1, 5, 1000)))
    return text[:start] + rng.choice(STRINGS) + text[end:]


def damage_bytes(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    match rng.randrange(4):
        case 0:
            del data[at : at + rng.choice((1, 1, 50, 100_000))]
        case 1:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 6)))
        case 2:
            data[at:at] = data[at : at + 200]
        case 3:
            data[at:at] = rng.choice((b"\xef\xbb\xbf", b"\n", b"\r", b"\0", b",", b"]", b"}", b'"', b"\\", b"\xff\xfe"))


if __name__ == "__main__":
    sys.exit(main())
