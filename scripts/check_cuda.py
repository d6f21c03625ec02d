#!/usr/bin/env python
"""Hold the engine's CUDA path against its CPU path on a GPU, and time it: `python scripts/check_cuda.py`.

Small random models of each family in float32, one request at a time and several at once: the same tokens, and
log-probabilities as close as the order of sums allows. Then requests under memory pressure with --check-kv, and speed
in bfloat16 on random weights in the shapes of Qwen3 0.6B and 8B. Exits with 1 when tokens differ, 2 without a GPU.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from statistics import median

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.engine import families
from tests.engine.running import engine_on, greedy, run, tokens

from pkv_engine.bench import RandomPrompts, decode_rate, time_to_first_token
from pkv_engine.generation import Delta, GenerationRequest, SamplingParams
from pkv_engine.model.config import DecoderConfig
from pkv_engine.model.cuda import CudaDevice
from pkv_engine.model.weights import Source, Weights
from pkv_engine.runner import Device

CUDA = torch.device("cuda")
BLOCKS = 200
LENGTHS = (5, 73, 71, 110, 270)
SHAPES = {"0.6B": (1024, 3072, 28, 16), "8B": (4096, 12288, 36, 32)}
"""Hidden size, intermediate size, layers, heads; 8 KV heads of 128."""
VOCAB = 32768


@torch.inference_mode()
def main() -> int:
    if not torch.cuda.is_available():
        print("check_cuda: there is no CUDA device: nothing was checked", file=sys.stderr)
        return 2
    wrong = sum(not same_tokens(family) for family in families.FAMILIES)
    pressure()
    for name, shape in SHAPES.items():
        speed(name, *shape)
    return int(wrong > 0)


def on_cuda(family: str, dtype: torch.dtype = torch.float32, num_blocks: int = BLOCKS) -> CudaDevice:
    state = families.reference(family).state_dict()
    weights = Weights(lambda name, _: state.get(name), family, dtype, CUDA)
    decoder = CudaDevice.load_decoder(families.config(family), weights, families.SIZE["max_position_embeddings"])
    return CudaDevice(decoder, num_blocks, 16, max_num_seqs=64)


def same_tokens(family: str) -> bool:
    """Prints how the two paths agree; whether all tokens are equal."""
    source = random.Random(0)
    prompts = [source.choices(range(families.VOCAB), k=length) for length in LENGTHS]
    devices: tuple[Device, Device] = families.device(family, BLOCKS), on_cuda(family)
    alone = [[generated(device, [prompt])[0] for prompt in prompts] for device in devices]
    together = [generated(device, prompts) for device in devices]
    equal, far = 0, 0.0
    for cpu, cuda in zip((*alone[0], *together[0]), (*alone[1], *together[1]), strict=True):
        equal += tokens(cpu) == tokens(cuda)
        far = max([far, *(abs(a - b) for a, b in zip(logprobs(cpu), logprobs(cuda), strict=True))])
    print(f"{family}: {equal} of {2 * len(prompts)} replies equal, log-probabilities within {far:.1e}", flush=True)
    return equal == 2 * len(prompts)


def generated(device: Device, prompts: list[list[int]]) -> list[list[Delta]]:
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, logprobs=1)
    engine = engine_on(device, num_blocks=BLOCKS, max_num_batched_tokens=96)
    requests = [
        GenerationRequest(request_id=str(number), prompt_token_ids=prompt, params=params)
        for number, prompt in enumerate(prompts)
    ]
    found = run(engine, requests)
    return [found[request.request_id] for request in requests]


def logprobs(deltas: list[Delta]) -> list[float]:
    return [token.logprobs[0].logprob for delta in deltas for token in delta.tokens if token.logprobs]


def pressure() -> None:
    """Raises KVCheckError when a slot does not hold what its block table promises."""
    source = random.Random(0)
    lengths, replies = (5, 16, 33, 64, 120), (1, 20, 60)
    engine = engine_on(on_cuda("qwen3", torch.bfloat16, 60), num_blocks=60, max_num_batched_tokens=128)
    requests = [
        greedy(str(number), source.choices(range(20), k=source.choice(lengths)), source.choice(replies))
        for number in range(150)
    ]
    found, stats = run(engine, requests), engine.stats()
    print(
        f"--check-kv: {len(found)} requests, {stats.num_preemptions} preemptions, {stats.num_steps} steps", flush=True
    )


def speed(name: str, hidden: int, inner: int, layers: int, heads: int) -> None:
    raw = {
        "architectures": ["Qwen3ForCausalLM"], "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": 8, "head_dim": 128,
        "vocab_size": VOCAB, "max_position_embeddings": 16384, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
    }  # fmt: skip
    random_weights: Source = lambda _, shape: torch.randn(shape, device=CUDA, dtype=torch.bfloat16) * 0.02  # noqa: E731
    weights = Weights(random_weights, name, torch.bfloat16, CUDA)
    decoder = CudaDevice.load_decoder(DecoderConfig.from_json(raw, name), weights, 12000)
    device = CudaDevice(decoder, 6001, 16, max_num_seqs=64)
    engine = engine_on(device, num_blocks=6001, check_kv=False, max_model_len=12000, max_num_batched_tokens=8192)
    prompts = RandomPrompts(VOCAB)
    rows: list[tuple[float, ...]] = []
    for _ in range(6):
        short, long = prompts.draw(2000), prompts.draw(8000)
        first = [time_to_first_token(engine, prompt) * 1000 for prompt in (short, short, long, long)]
        rates = [decode_rate(engine, [prompts.draw(100) for _ in range(count)], 64) for count in (8, 32)]
        rows.append((*first, *rates))
    # The first round compiles kernels and captures graphs.
    cold, cached, long_cold, long_cached, eight, many = map(median, zip(*rows[1:], strict=True))
    print(f"{name}: first token {cold:.1f} ms of 2,000 tokens, {cached:.1f} ms with 1,984 of them cached;", end=" ")
    print(f"{long_cold:.1f} and {long_cached:.1f} ms of 8,000;", end=" ")
    print(f"decoding {eight:,.0f} tokens/s of 8 sequences, {many:,.0f} of 32", flush=True)


if __name__ == "__main__":
    sys.exit(main())
