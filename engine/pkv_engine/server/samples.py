"""The samples that one HTTP request asks for, and what comes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from pkv_engine.generation import Delta, FinishReason, SampledToken
from pkv_lint.prompt.prompt import Prompt


@dataclass(slots=True)
class Sample:
    """One choice of a reply as far as it has come. `number` counts the samples of a prompt, `index` those of the whole
    request; `text_offset` is where the next token's text begins in that of all tokens so far."""

    index: int
    number: int
    prompt: Prompt
    text: str = ""
    tokens: list[SampledToken] = field(default_factory=list)
    num_cached_tokens: int = 0
    text_offset: int = 0
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None

    def take(self, delta: Delta) -> None:
        self.text += delta.text
        self.tokens += delta.tokens
        self.num_cached_tokens = delta.num_cached_tokens
        self.finish_reason, self.stop_reason = delta.finish_reason, delta.stop_reason


def samples_of(prompts: Sequence[Prompt], count: int) -> list[Sample]:
    """`count` samples of each prompt."""
    return [
        Sample(index=place * count + number, number=number, prompt=prompt)
        for place, prompt in enumerate(prompts)
        for number in range(count)
    ]


def usage(samples: Sequence[Sample]) -> dict[str, Any]:
    """Each prompt counts once, with the tokens that the cache had for its first sample: the others find what that one
    wrote."""
    prompts = [sample for sample in samples if sample.number == 0] or samples
    prompt_tokens = sum(len(sample.prompt.token_ids) for sample in prompts)
    completion_tokens = sum(len(sample.tokens) for sample in samples)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(sample.num_cached_tokens for sample in prompts)},
    }


Deltas = AsyncGenerator[tuple[Sample, Delta], None]


async def merged(streams: Sequence[tuple[Sample, AsyncGenerator[Delta, None]]]) -> Deltas:
    """The deltas of several samples in the order in which they come. The first stream that fails ends them all, and so
    does closing this one."""
    arrived: asyncio.Queue[tuple[Sample, Delta] | Exception] = asyncio.Queue()

    async def read(sample: Sample, stream: AsyncGenerator[Delta, None]) -> None:
        try:
            async with aclosing(stream):
                async for delta in stream:
                    arrived.put_nowait((sample, delta))
        except Exception as error:
            arrived.put_nowait(error)

    tasks = [asyncio.create_task(read(sample, stream)) for sample, stream in streams]
    left = len(tasks)
    try:
        while left:
            item = await arrived.get()
            if isinstance(item, Exception):
                raise item
            left -= item[1].finish_reason is not None
            yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
