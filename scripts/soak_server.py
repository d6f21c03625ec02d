"""Lets many clients ask a server at once, some of whom leave in the middle, and checks that nothing is lost or leaks.

Replies that are read to their end must be whole, and equal to what the same prompt gives alone (greedy). In the end no
request may be left, no block in use and the prefix cache must be forgettable.

    pkv-engine serve --model tiny --port 8000 &
    python scripts/soak_server.py --url http://127.0.0.1:8000 --clients 200 --seconds 60
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

LENGTH = 48
"""Most tokens of a reply."""
LEAVES = 0.4
"""The share of clients that do not wait for the end."""


@dataclass
class Soak:
    """What came of the requests: `answers` by outcome, seconds to first tokens, and what went wrong."""

    url: str
    answers: Counter[str] = field(default_factory=Counter)
    first_tokens: list[float] = field(default_factory=list)
    num_tokens: int = 0
    faults: list[str] = field(default_factory=list)
    alone: dict[int, list[int]] = field(default_factory=dict)

    async def run(self, num_clients: int, seconds: float, seed: int = 0) -> None:
        prompts = [f"Story {number}. " + "It was a dark and stormy night. " * (5 * number) for number in range(12)]
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=self.url, timeout=120, limits=limits, trust_env=False) as client:
            for number, prompt in enumerate(prompts):
                answer = await client.post("/v1/completions", json=body(prompt, LENGTH, stream=False))
                self.alone[number] = answer.json()["choices"][0]["token_ids"]
            end = time.monotonic() + seconds
            await asyncio.gather(
                *(self._visit(client, prompts, random.Random(seed + number), end) for number in range(num_clients))
            )
            await self._check_idle(client)

    async def _visit(self, client: httpx.AsyncClient, prompts: list[str], rng: random.Random, end: float) -> None:
        while time.monotonic() < end:
            number, length, stream = rng.randrange(len(prompts)), rng.randint(1, LENGTH), rng.random() < 0.7
            patience = rng.expovariate(2) if rng.random() < LEAVES else None
            try:
                async with asyncio.timeout(patience):
                    ids = await self._ask(client, body(prompts[number], length, stream=stream))
            except TimeoutError:
                self.answers["left"] += 1
                continue
            except httpx.HTTPError as error:
                self.faults.append(f"{type(error).__name__}: {error}")
                continue
            if ids is None:
                self.answers["refused"] += 1
                await asyncio.sleep(0.1)
            elif ids != self.alone[number][: len(ids)] or (len(ids) < length and ids != self.alone[number]):
                self.faults.append(f"prompt {number}: {ids} of {length}, alone {self.alone[number]}")
            else:
                self.answers["whole"] += 1
                self.num_tokens += len(ids)

    async def _ask(self, client: httpx.AsyncClient, asked: dict[str, object]) -> list[int] | None:
        """The ids of a reply; None when the server has too much to do."""
        start = time.perf_counter()
        async with client.stream("POST", "/v1/completions", json=asked) as response:
            if response.status_code == 429:
                return None
            if response.status_code != 200:
                raise httpx.HTTPError(f"{response.status_code}: {(await response.aread())[:200]!r}")
            if not asked["stream"]:
                reply = json.loads(await response.aread())
                return complete(reply["choices"][0]["token_ids"], reply["usage"])
            ids: list[int] = []
            usage = None
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    return complete(ids, usage)
                if line:
                    chunk = json.loads(line.removeprefix("data: "))
                    if not ids:
                        self.first_tokens.append(time.perf_counter() - start)
                    ids += [token for choice in chunk["choices"] for token in choice["token_ids"]]
                    usage = chunk.get("usage")
            raise httpx.HTTPError("the stream ended before the reply")

    async def _check_idle(self, client: httpx.AsyncClient) -> None:
        end = time.monotonic() + 5
        while (busy := await self._busy(client)) and time.monotonic() < end:
            await asyncio.sleep(0.05)
        if busy:
            self.faults.append(f"not idle after 5 s: {busy}")
        if (reset := await client.post("/reset_prefix_cache")).status_code != 200:
            self.faults.append(f"blocks are in use: {reset.text}")

    async def _busy(self, client: httpx.AsyncClient) -> dict[str, str]:
        text = (await client.get("/metrics")).text
        found = re.findall(r"^pkv:(num_requests_\w+|kv_cache_usage_perc){.*} (\S+)$", text, re.MULTILINE)
        return {name: value for name, value in found if float(value)}


def body(prompt: str, length: int, *, stream: bool) -> dict[str, object]:
    made = {"prompt": prompt, "max_tokens": length, "temperature": 0, "return_token_ids": True, "stream": stream}
    return {**made, "stream_options": {"include_usage": True}} if stream else made


def complete(ids: list[int], usage: dict[str, int] | None) -> list[int]:
    if usage is None or usage["completion_tokens"] != len(ids):
        raise httpx.HTTPError(f"{len(ids)} tokens came, and the usage is {usage}")
    return ids


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    soak = Soak(arguments.url)
    asyncio.run(soak.run(arguments.clients, arguments.seconds))
    for outcome, count in sorted(soak.answers.items()):
        print(f"{count:8,} {outcome}")
    if soak.first_tokens:
        print(f"{statistics.median(soak.first_tokens):8.3f} s to the first token (median)")
    print(f"{soak.num_tokens / arguments.seconds:8,.0f} tokens/s in whole replies")
    print(f"{len(soak.faults):8,} faults")
    for fault in soak.faults[:10]:
        print(f"  {fault}")
    return 1 if soak.faults else 0


if __name__ == "__main__":
    sys.exit(main())
