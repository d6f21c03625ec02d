"""KV memory of running requests: blocks taken as they fill, against one contiguous reservation for each request.

The comparison of the PagedAttention paper (Kwon et al., SOSP 2023, sections 3.1 and 6.1) for any traffic. A slot is
the room for keys and values of one token. At any time a request holds slots that are

- used: a token's keys and values are in them,
- reserved: nothing is in them yet, but this request will fill them,
- internal fragmentation: this request will never fill them (reserved for a longer reply, or the end of a last block),
- external fragmentation: added by the allocator. Contiguous reservations come from a buddy allocator, as the paper
  assumes: it hands out powers of two. Holes between them depend on who runs beside whom and are not counted, so that
  contiguous reservation looks better here than it is. Blocks of one size leave no such slots.

Waste is what is not used. All are averages over the steps of all requests (token-steps): a request takes one step for
each token that it generates, the first of them with its prompt, and holds one token more in each. No slot is shared:
neither with a prefix that is cached nor with one that another request runs on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pkv_sim.traffic.generated import with_next_turns
from pkv_sim.traffic.workload import TrafficRequest, Workload

Policy = Literal["maximum", "power_of_two", "exact", "paged"]
BLOCK_SIZES = (8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class Holding:
    """The slots that a request holds under a policy, as means over all token-steps. `block_size` is that of `paged`.

    `maximum` reserves the longest sequence that the server takes, `power_of_two` the prompt and the next power of two
    of the reply, `exact` what the request fills in the end (Orca's Max, Pow2 and Oracle in the paper).
    """

    policy: Policy
    block_size: int | None
    used: float
    reserved: float
    internal: float
    external: float

    @property
    def held(self) -> float:
        return self.used + self.reserved + self.internal + self.external

    @property
    def waste(self) -> float:
        """The share of the held slots that is not used."""
        return 1 - self.used / self.held

    def sequences(self, slots: int) -> float:
        """How many requests a memory of so many slots holds at once, in the mean."""
        return slots / self.held


@dataclass(frozen=True, slots=True)
class Reservations:
    """`holdings` for the `requests` whose reply has a known length, none where there is no such request; of `unknown`
    ones it is not known. `max_model_len` is what `maximum` reserves (tokens), `stated` whether the server says so; else
    it is the longest sequence of the traffic."""

    holdings: tuple[Holding, ...]
    requests: int
    unknown: int
    steps: int
    max_model_len: int
    stated: bool


@dataclass(frozen=True, slots=True)
class Life:
    """A request has `prompt` tokens in its first step, one more in each of its `steps`, and `total` in the last."""

    prompt: int
    steps: int

    @property
    def total(self) -> int:
        """The last sampled token is never put into a slot."""
        return self.prompt + self.steps - 1


def reservations_of(workload: Workload, max_model_len: int | None = None) -> Reservations:
    """Replies that are not recorded are as long as the next turn has them. `max_model_len` is in tokens."""
    return reservations(with_next_turns(workload.requests, workload.block_size, workload.end_token), max_model_len)


def reservations(requests: Sequence[TrafficRequest], max_model_len: int | None = None) -> Reservations:
    """Of requests that tell how many tokens they generated."""
    lives = [
        Life(request.num_prompt_tokens, max(1, request.num_generated_tokens))
        for request in requests
        if request.num_generated_tokens is not None
    ]
    longest = max((life.prompt + life.steps for life in lives), default=0)
    longest = max(longest, max_model_len or 0)
    policies: dict[Policy, Callable[[Life], int]] = {
        "maximum": lambda life: longest,
        "power_of_two": lambda life: life.prompt + power_of_two(life.steps),
        "exact": lambda life: life.total,
    }
    holdings = []
    if lives:
        holdings += [contiguous(policy, size_of, lives) for policy, size_of in policies.items()]
        holdings += [paged(block_size, lives) for block_size in BLOCK_SIZES]
    steps = sum(life.steps for life in lives)
    return Reservations(
        tuple(holdings), len(lives), len(requests) - len(lives), steps, longest, max_model_len is not None
    )


def contiguous(policy: Policy, size_of: Callable[[Life], int], lives: Iterable[Life]) -> Holding:
    """Each request holds `size_of` it from its first step to its last."""
    steps = used = reserved = internal = external = 0
    for life in lives:
        size = size_of(life)
        steps += life.steps
        used += sum_of(life.prompt, life.total)
        reserved += life.steps * life.total - sum_of(life.prompt, life.total)
        internal += life.steps * (size - life.total)
        external += life.steps * (power_of_two(size) - size)
    return Holding(policy, None, used / steps, reserved / steps, internal / steps, external / steps)


def paged(block_size: int, lives: Iterable[Life]) -> Holding:
    """Each request holds the blocks that its tokens have begun."""
    steps = used = held = internal = 0
    for life in lives:
        steps += life.steps
        used += sum_of(life.prompt, life.total)
        held += block_size * (blocks_up_to(life.total, block_size) - blocks_up_to(life.prompt - 1, block_size))
        # The last block, from the step on in which it is begun.
        end = -(-life.total // block_size) * block_size
        internal += (end - life.total) * (life.total - max(life.prompt, end - block_size + 1) + 1)
    return Holding("paged", block_size, used / steps, (held - used - internal) / steps, internal / steps, 0.0)


def sum_of(first: int, last: int) -> int:
    """first + ... + last"""
    return (first + last) * (last - first + 1) // 2


def blocks_up_to(tokens: int, block_size: int) -> int:
    """The blocks of a sequence of one token, of two and so on up to `tokens`, all together."""
    full, rest = divmod(tokens, block_size)
    return block_size * full * (full + 1) // 2 + rest * (full + 1)


def power_of_two(number: int) -> int:
    """The smallest one that is not less."""
    return 1 << (number - 1).bit_length()
