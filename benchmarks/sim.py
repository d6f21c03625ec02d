"""How fast whole traffics are replayed by the fast core of the simulator.

    python benchmarks/sim.py [--runs N] [--alone]

1. 2,000 requests given as 32-bit token ids in memory (470,000 blocks of 16; 20,000 are usable), prefix tree included:
   against the exact core, vLLM's own KVCacheManager with its hashing (where vLLM, or its CPU build, can be imported)
   and kvlint's simulator.
2. A file of `hash_ids` (Mooncake, conversation) at 11 capacities, as a whole process: the fast core alone and the
   command `pkv-sim --sweep`, which also tells why tokens missed, what generated text matters and which size is enough,
   against kvcache-simulator.
3. The coding-agent trace (48,658 requests, 93.8 million blocks) at 5 capacities, as a whole process, with its memory.
4. What a request costs by the length of its context.

kvlint and kvcache-simulator are installed by pip into a temporary folder; peers that are not there are left out, all of
them with --alone. Medians of processor time; the sides of a comparison take turns. The data are those of the tests
(PKV_SHARED, or ../shared next to the repository).
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import importlib.util
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeAlias

from pkv_sim.exact.cache_group import CacheGroupSpec
from pkv_sim.exact.cache_manager import KVCacheManager
from pkv_sim.exact.hashing import BlockHasher
from pkv_sim.exact.request import Request
from pkv_sim.fast.cache import FastCache
from pkv_sim.fast.prefix_tree import BlockRequest, PrefixTree
from pkv_sim.fast.run_tree import BlockRunTree
from pkv_sim.fast.token_tree import BlockIdTree, TokenTree

ROOT = Path(__file__).resolve().parent.parent
TRACES = Path(os.environ.get("PKV_SHARED", ROOT.parent / "shared")) / "data" / "traces"
BLOCK_SIZE = 16
USABLE = 20_000
CAPACITIES = (22, 44, 88, 176, 352, 704, 1_409, 2_818, 5_637, 11_275, 22_550)
CODING_AGENT = (33_891, 100_000, 338_910, 1_000_000, None)

Tokens: TypeAlias = "list[array[int]]"
Side: TypeAlias = "Callable[[], object] | None"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--alone", action="store_true", help="without peers")
    parser.add_argument("--part", choices=list(PROCESSES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not TRACES.is_dir():
        print("the data are not here (set PKV_SHARED)", file=sys.stderr)
        return 2
    if options.part:
        PROCESSES[options.part]()
        return 0
    with tempfile.TemporaryDirectory() as folder:
        if not options.alone:
            install(folder, "kvlint", "--no-deps")
            install(folder, "kvcache-simulator")
        in_memory(options.runs, None if options.alone else Path(folder))
        block_ids(options.runs, None if options.alone else Path(folder))
        coding_agent(options.runs)
    curve(options.runs)
    return 0


def install(folder: str, *what: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, *what]
    subprocess.run(command, check=False, capture_output=True, timeout=300)


def in_memory(runs: int, peers: Path | None) -> None:
    prompts = sessions(random.Random(0))
    sides: dict[str, Side] = {"fast core": partial(fast, prompts), "exact core": partial(exact, prompts)}
    if peers is not None:
        sides |= {"vLLM": vllm_side(prompts), "kvlint": kvlint_side(prompts, peers)}
    blocks = sum(len(prompt) // BLOCK_SIZE for prompt in prompts)
    print(f"{len(prompts):,} requests of token ids, {blocks:,} blocks, {USABLE:,} usable; medians of {runs}")
    compare(sides, runs, alike=("fast core", "exact core", "vLLM"))


def sessions(rng: random.Random) -> Tokens:
    """Prompts of 40 sessions at once, which start with one of eight system prompts and grow from turn to turn."""

    def text(shortest: int, longest: int) -> array[int]:
        return array("i", (rng.randrange(150_000) for _ in range(rng.randint(shortest, longest))))

    systems = [text(800, 2_000) for _ in range(8)]
    running = [array("i", rng.choice(systems)) for _ in range(40)]
    prompts = []
    for _ in range(2_000):
        index = rng.randrange(len(running))
        running[index] += text(100, 1_100)
        prompts.append(array("i", running[index]))
        if len(running[index]) > 5_600:
            running[index] = array("i", rng.choice(systems))
    return prompts


def fast(prompts: Tokens) -> list[int]:
    tree = TokenTree(BLOCK_SIZE)
    return [hit or 0 for hit in FastCache(tree, USABLE + 1).replay(map(tree.request, prompts))]


def exact(prompts: Tokens) -> list[int]:
    group = CacheGroupSpec("full_attention", BLOCK_SIZE)
    manager = KVCacheManager(USABLE + 1, [group], max_model_len=1 << 20)
    hasher = BlockHasher(BLOCK_SIZE, "sha256", seed="0")
    hits = []
    for index, prompt in enumerate(prompts):
        request = Request(str(index), prompt, max_tokens=1, hasher=hasher)
        computed = manager.get_computed_blocks(request)
        manager.allocate_slots(request, len(prompt) - computed.num_tokens, computed)
        manager.free(request)
        hits.append(computed.num_tokens)
    return hits


def vllm_side(prompts: Tokens) -> Side:
    """vLLM's own lookup, allocation and freeing, with its hashing. It takes lists, which are made beforehand."""
    if importlib.util.find_spec("vllm") is None:
        return None
    load = importlib.import_module
    utils, interface = load("vllm.v1.core.kv_cache_utils"), load("vllm.v1.kv_cache_interface")
    spec = interface.FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=load("torch").float32)
    config = interface.KVCacheConfig(
        num_blocks=USABLE + 1, kv_cache_tensors=[], kv_cache_groups=[interface.KVCacheGroupSpec(["layer"], spec)]
    )
    digest = load("vllm.utils.hashing").get_hash_fn_by_name("sha256")
    utils.init_none_hash(digest)
    hasher = utils.get_request_block_hasher(BLOCK_SIZE, digest)
    parameters = load("vllm.sampling_params").SamplingParams(max_tokens=1)
    make_manager, make_request = load("vllm.v1.core.kv_cache_manager").KVCacheManager, load("vllm.v1.request").Request
    lists = [prompt.tolist() for prompt in prompts]

    def run() -> list[int]:
        manager = make_manager(
            config, max_model_len=1 << 20, scheduler_block_size=BLOCK_SIZE, hash_block_size=BLOCK_SIZE
        )
        hits = []
        for index, tokens in enumerate(lists):
            request = make_request(str(index), tokens, parameters, None, block_hasher=hasher)
            blocks, hit = manager.get_computed_blocks(request)[:2]
            manager.allocate_slots(request, len(tokens) - hit, num_new_computed_tokens=hit, new_computed_blocks=blocks)
            manager.free(request)
            hits.append(hit)
        return hits

    return run


def kvlint_side(prompts: Tokens, peers: Path) -> Side:
    if not (peers / "kvlint").is_dir():
        return None
    # Behind all others, so that nothing else comes from there.
    sys.path.append(str(peers))
    simulator = importlib.import_module("kvlint.sim.vllm_blocks").VLLMBlockSimulator

    def run() -> list[int]:
        feed = simulator(BLOCK_SIZE, USABLE).feed_tokens
        return [feed(str(index), prompt).cached_tokens for index, prompt in enumerate(prompts)]

    return run


def block_ids(runs: int, peers: Path | None) -> None:
    print(f"Mooncake conversation, a whole process at {len(CAPACITIES)} capacities; medians of {runs}")
    trace = TRACES / "mooncake_conversation_trace.jsonl"
    blocks = ",".join(str(usable + 1) for usable in CAPACITIES)
    whole = [sys.executable, "-m", "pkv_sim.cli", str(trace), "--sweep", blocks, "--format", "json"]
    sides: dict[str, Side] = {
        "fast core": partial(process, own_command("sweep")),
        "pkv-sim --sweep": partial(process, whole),
    }
    if peers is not None:
        sides["kvcache-simulator"] = None
        if (peers / "kvcache_sim").is_dir():
            budgets = ",".join(str(1 << power) for power in range(len(CAPACITIES)))
            options = f"--model glm-5.2 --block-size 512 --policies lru --budgets-gib {budgets} --format json"
            command = [sys.executable, "-m", "kvcache_sim", "sweep", "--trace", str(trace), *options.split()]
            sides["kvcache-simulator"] = partial(process, command, PYTHONPATH=str(peers))
    # The first runs compile: our modules, its core in C++.
    compare(sides, runs)


def own_command(part: str) -> list[str]:
    return [sys.executable, __file__, "--part", part]


def process(command: Sequence[str], **variables: str) -> None:
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **variables})


def sweep() -> None:
    tree = BlockIdTree(512)
    with open(TRACES / "mooncake_conversation_trace.jsonl", encoding="utf-8") as file:
        requests = [tree.request(row["hash_ids"], row["input_length"]) for row in map(json.loads, file)]
    show_rates(tree, requests, CAPACITIES)


def show_rates(tree: PrefixTree, requests: Sequence[BlockRequest], capacities: Iterable[int | None]) -> None:
    for usable in capacities:
        cache = FastCache(tree, None if usable is None else usable + 1)
        cache.replay(requests)
        blocks = "unbounded" if usable is None else f"{usable:,} blocks"
        print(f"  {blocks:>16} {cache.stats.hits / cache.stats.queries:7.4f}")


def coding_agent(runs: int) -> None:
    command = own_command("coding-agent")
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds = median(timed(partial(process, command)) for _ in range(runs))
    print(f"coding-agent trace, a whole process at {len(CODING_AGENT)} capacities; median of {runs}")
    print(f"  {seconds:.2f} s of processor time\n{shown}", end="")


def replay_coding_agent() -> None:
    start = time.process_time()
    rows: list[tuple[float, str, int, list[list[int]]]] = []
    with gzip.open(TRACES / "weka_claude_code_traces_rle.jsonl.gz", "rt", encoding="utf-8") as file:
        for session in map(json.loads, file):
            rows += [
                (row["t"], session["id"], row["in"], row["hash_ids_rle"])
                for row in session["requests"]
                if "hash_ids_rle" in row
            ]
    rows.sort(key=lambda item: item[0])
    read = time.process_time()
    tree = BlockRunTree(64)
    requests = [tree.request(runs, length, namespace=name) for _, name, length, runs in rows]
    made = time.process_time()
    show_rates(tree, requests, CODING_AGENT)
    done = time.process_time()
    print(f"  reading {read - start:.2f} s, prefix tree {made - read:.2f} s, replay {done - made:.2f} s")
    # Not getrusage: its maximum counts the process that started this one.
    status = Path("/proc/self/status")
    if status.exists():
        highest = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        assert highest is not None
        print(f"  {int(highest[1]) / 1000:.0f} MB of memory at most")


PROCESSES: dict[str, Callable[[], None]] = {"sweep": sweep, "coding-agent": replay_coding_agent}


def curve(runs: int) -> None:
    """Sessions of 100 turns in a context that grows by a twentieth in all, at half the room that they need."""
    print(f"microseconds of processor time for a request, by the length of its context in tokens; medians of {runs}")
    print(f"  {'context':>10} {'blocks':>8} {'block id runs':>14} {'token ids':>10} {'exact core':>11}")
    for length in (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000):
        turns = [length + length * turn // 2_000 for turn in range(100)]
        text = array("i", range(turns[-1]))
        prompts = [text[:turn] for turn in turns]
        usable = 2 * (turns[-1] // BLOCK_SIZE + 1)

        def replay_runs(turns: Sequence[int] = turns, usable: int = usable) -> None:
            tree = BlockRunTree(BLOCK_SIZE)
            requests = (tree.request([(1, turn)], turn) for turn in turns)
            FastCache(tree, usable + 1).replay(requests)

        def replay_tokens(prompts: Tokens = prompts, usable: int = usable) -> None:
            tree = TokenTree(BLOCK_SIZE)
            FastCache(tree, usable + 1).replay(map(tree.request, prompts))

        sides: list[Callable[[], object]] = [replay_runs, replay_tokens]
        if length <= 30_000:
            sides.append(partial(exact, prompts))
        costs = [median(timed(side) for _ in range(runs)) / len(turns) * 1e6 for side in sides]
        print(f"  {length:10,} {length // BLOCK_SIZE:8,} {costs[0]:14.1f} {costs[1]:10.1f}", end="")
        print(f" {costs[2]:11.1f}" if len(costs) > 2 else "")


def compare(sides: dict[str, Side], runs: int, alike: Iterable[str] = ()) -> None:
    """Times sides in turns, after one run of each that does not count. The results of some must be alike."""
    present = {name: side for name, side in sides.items() if side is not None}
    results = {name: side() for name, side in present.items()}
    wanted = [results[name] for name in alike if name in results]
    assert all(result == wanted[0] for result in wanted), "the hits differ"
    seconds: dict[str, list[float]] = {name: [] for name in present}
    for _ in range(runs):
        for name, side in present.items():
            seconds[name].append(timed(side))
    first = median(next(iter(seconds.values())))
    for name in sides:
        if name in present:
            print(f"  {name:18} {median(seconds[name]):9.4f} s {median(seconds[name]) / first:8.1f} times the time")
        else:
            print(f"  {name:18} peer not installed")


def timed(work: Callable[[], object]) -> float:
    """Processor time in seconds, that of processes that were waited for included."""
    start = processor_time()
    work()
    return processor_time() - start


def processor_time() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    sys.exit(main())
