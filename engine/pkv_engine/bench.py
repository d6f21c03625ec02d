"""`pkv-engine bench`: how fast a model runs here, and what the prefix cache changes about it."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import click

from pkv_engine.engine import Engine
from pkv_engine.generation import GenerationRequest, SamplingParams
from pkv_engine.options import EngineOptions, engine_options
from pkv_lint.command_line import write


@click.command("bench", context_settings={"help_option_names": ["-h", "--help"]})
@engine_options
@click.option("--prompt-tokens", type=click.IntRange(2), default=2000, show_default=True)
@click.option("--sequences", type=click.IntRange(1), default=8, show_default=True, help="That decode together.")
@click.option("--output-tokens", type=click.IntRange(2), default=64, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="The medians are shown.")
def command(engine: EngineOptions, prompt_tokens: int, sequences: int, output_tokens: int, rounds: int) -> int:
    """Measure time to first token, with and without a cached prefix, and the rate of decoding, with the prefix cache on
    and off. Prompts are random tokens."""
    from pkv_engine.loading import load

    measured = load(replace(engine, enable_prefix_caching=True)).engine
    prompts = RandomPrompts(measured.vocab_size)
    cold, cached, on, off = [], [], [], []
    without = without_prefix_caching(measured)
    for _ in range(rounds):
        prompt = prompts.draw(prompt_tokens)
        cold.append(time_to_first_token(measured, prompt))
        cached.append(time_to_first_token(measured, prompt))
        batch = [prompts.draw(100) for _ in range(sequences)]
        on.append(decode_rate(measured, batch, output_tokens))
        off.append(decode_rate(without, batch, output_tokens))
    first, again = statistics.median(cold), statistics.median(cached)
    served = (prompt_tokens - 1) // engine.block_size * engine.block_size
    write(
        [
            f"time to first token, {prompt_tokens:,} tokens        {first * 1000:10,.1f} ms",
            f"the same with {served:,} of them cached     {again * 1000:10,.1f} ms   {first / again:.1f} times shorter",
            f"decoding {sequences} sequences               {statistics.median(on):10,.1f} tokens/s",
            f"the same without prefix caching      {statistics.median(off):10,.1f} tokens/s",
        ]
    )
    return 0


def without_prefix_caching(engine: Engine) -> Engine:
    """Another engine on the same model and KV cache memory. Only one of them may have requests at a time."""
    config = replace(engine.scheduler.config, enable_prefix_caching=False)
    return Engine(config, engine.runner, vocab_size=engine.vocab_size)


class RandomPrompts:
    """Prompts that share nothing; the same ones in every run."""

    def __init__(self, vocab_size: int) -> None:
        self._random = random.Random(0)
        self._vocab_size = vocab_size

    def draw(self, length: int) -> list[int]:
        return [self._random.randrange(self._vocab_size) for _ in range(length)]


Clock = Callable[[], float]


def time_to_first_token(engine: Engine, prompt: Sequence[int], clock: Clock = time.perf_counter) -> float:
    """Seconds from the arrival of a request in an idle engine to its first token, scheduling and sampling included."""
    start = clock()
    engine.add(_request(f"{id(engine)}-first", prompt, 1))
    while engine.has_work:
        engine.step()
    return clock() - start


def decode_rate(
    engine: Engine, prompts: Sequence[Sequence[int]], num_tokens: int, clock: Clock = time.perf_counter
) -> float:
    """Tokens per second of all sequences together, from the step in which the last one got its first token."""
    for number, prompt in enumerate(prompts):
        engine.add(_request(f"{id(engine)}-{number}", prompt, num_tokens))
    started: set[str] = set()
    while len(started) < len(prompts):
        started |= {delta.request_id for delta in engine.step()}
    tokens, start = 0, clock()
    while engine.has_work:
        tokens += len(engine.step())
    return tokens / (clock() - start)


# Engines that share a runner need names of their own: it knows requests by them until the engine's next step.
def _request(request_id: str, prompt: Sequence[int], max_tokens: int) -> GenerationRequest:
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    return GenerationRequest(request_id=request_id, prompt_token_ids=prompt, params=params)
