"""What goes into the engine and what comes out of it. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.sampling import GREEDY

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are chosen and when a request ends; names and meanings are vLLM's (`sampling_params.py`).

    `temperature` 0 chooses the likeliest token. `top_k` 0 or -1, `top_p` 1 and `min_p` 0 leave the distribution whole.
    With a `seed` the tokens do not depend on what else runs. `max_tokens` None goes on to the end of the context.
    A token of `stop_token_ids` ends the request and shows no text; so does one that ends the sequence, unless
    `ignore_eos`. A `stop` string ends it as well and is cut off, unless `include_stop_str_in_output`. Nothing ends it
    before `min_tokens` but `max_tokens`. `logprobs` is the number of alternatives to report beside the chosen token,
    None for no report.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None

    def __post_init__(self) -> None:
        """Raises InputError for values that vLLM refuses."""
        for holds, message in (
            (math.isfinite(self.temperature) and self.temperature >= 0, "temperature must be a number of at least 0"),
            (0 < self.top_p <= 1, "top_p must be in (0, 1]"),
            (self.top_k >= -1, "top_k must be 0 (all tokens) or at least 1"),
            (0 <= self.min_p <= 1, "min_p must be in [0, 1]"),
            (self.max_tokens is None or self.max_tokens >= 1, "max_tokens must be at least 1"),
            (self.min_tokens >= 0, "min_tokens must be at least 0"),
            (self.max_tokens is None or self.min_tokens <= self.max_tokens, "min_tokens must not exceed max_tokens"),
            ("" not in self.stop, "stop strings must not be empty"),
            (self.logprobs is None or self.logprobs >= 0, "logprobs must be at least 0"),
        ):
            if not holds:
                raise InputError(message)

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """A prompt to go on with. `n` samples of a prompt are `n` requests: they share its full blocks through the cache.

    `arrival` (any unit) and `priority` order requests under the priority policy, lower is sooner.
    """

    request_id: str
    prompt_token_ids: Sequence[int]
    params: SamplingParams = field(default_factory=SamplingParams)
    cache_salt: str | None = None
    priority: int = 0
    arrival: float = 0.0


class TokenLogprob(NamedTuple):
    """The natural logarithm of a token's probability before temperature and filters; rank 1 is the likeliest token."""

    token_id: int
    logprob: float
    rank: int


class SampledToken(NamedTuple):
    """A token that was chosen. `logprobs` has the chosen token first and then the likeliest ones, when asked for."""

    token_id: int
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What a step brought one request.

    `text` is what is certain by now: characters that are still incomplete, and the start of what may become a stop
    string, come later. `num_cached_tokens` is the prefix that the cache served at the first admission.
    `finish_reason` comes with the last one: `stop`, `length`, `abort`, or `error` when the step that computed it
    failed. `stop_reason` is the stop string or the id among `stop_token_ids` that ended it.
    """

    request_id: str
    tokens: tuple[SampledToken, ...] = ()
    text: str = ""
    num_cached_tokens: int = 0
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None

    @property
    def token_ids(self) -> list[int]:
        return [token.token_id for token in self.tokens]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """A look at the engine: what is there now, and counters since its start (tokens, unless named otherwise).

    `kv_cache_usage` is the share of blocks in use, 0 to 1. Queries and hits of the prefix cache leave out
    re-admissions after a preemption, as vLLM's metrics do.
    """

    num_running: int
    num_waiting: int
    kv_cache_usage: float
    num_steps: int
    num_failed_steps: int
    num_preemptions: int
    prompt_tokens: int
    generation_tokens: int
    prefix_cache_queries: int
    prefix_cache_hits: int
