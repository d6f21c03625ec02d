"""The loop: what the scheduler chose is computed, what came of it is taken in and told to whoever asked.

Knows nothing of models, HTTP or threads. The scheduler, its block pool and its cache manager are the simulator's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pkv_engine.detokenizer import Detokenizer
from pkv_engine.generation import Delta, EngineStats, FinishReason, GenerationRequest, SampledToken, SamplingParams
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.tokenizer import Tokenizer
from pkv_sim.exact.hashing import BlockHasher
from pkv_sim.exact.request import Request
from pkv_sim.exact.scheduler import Scheduler
from pkv_sim.exact.scheduler_config import SchedulerConfig
from pkv_sim.exact.scheduler_output import RequestOutput, SchedulerOutput, StepResult

logger = logging.getLogger(__name__)


class Runner(Protocol):
    """Computes steps: the model with its KV cache and its sampler."""

    def execute(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> Mapping[str, SampledToken]:
        """Computes one step and chooses a token, by its id, for each request that `samples`."""


class Observer(Protocol):
    """Is told what happens, in order (see `step_log.StepLog`)."""

    def arrival(self, request: Request) -> None: ...

    def aborted(self, request_ids: Iterable[str]) -> None: ...

    def reset(self) -> None: ...

    def step(self, output: SchedulerOutput, result: StepResult) -> None: ...


class KVCheckError(Exception):
    """A slot of the KV cache does not hold what its block table promises. Nothing that was computed can be trusted, so
    unlike other errors of a step it ends the engine."""


@dataclass(slots=True)
class _Live:
    """A request on its way, and the text of its tokens."""

    request: Request
    params: SamplingParams
    detokenizer: Detokenizer

    def delta(
        self,
        tokens: tuple[SampledToken, ...] = (),
        text: str = "",
        finish_reason: FinishReason | None = None,
        stop_reason: int | str | None = None,
    ) -> Delta:
        return Delta(
            request_id=self.request.request_id,
            tokens=tokens,
            text=text,
            num_cached_tokens=self.request.num_cached_tokens or 0,
            finish_reason=finish_reason,
            stop_reason=stop_reason,
        )


class Engine:
    """Continuous batching over one runner. Not for several threads (see `async_engine`)."""

    def __init__(
        self,
        config: SchedulerConfig,
        runner: Runner,
        *,
        vocab_size: int,
        eos_token_ids: Iterable[int] = (),
        tokenizer: Tokenizer | None = None,
        hasher: BlockHasher | None = None,
        observer: Observer | None = None,
    ) -> None:
        """`config` must be synchronous: a step's tokens are known before the next is scheduled. Without a `tokenizer`
        deltas have no text and there are no stop strings; `hasher` is vLLM's default one unless given.
        """
        if config.async_scheduling:
            raise ValueError("the engine schedules a step when it knows the tokens of the one before")
        self.scheduler = Scheduler(config)
        self.runner = runner
        self.vocab_size = vocab_size
        self.eos_token_ids = frozenset(eos_token_ids)
        self.tokenizer = tokenizer
        self._hasher = hasher or BlockHasher(config.block_size, profile=config.profile)
        self._observer = observer
        self._live: dict[str, _Live] = {}
        self._params: dict[str, SamplingParams] = {}
        self._num_steps = self._num_failed_steps = self._num_preemptions = 0
        self._prompt_tokens = self._generation_tokens = 0

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_unfinished_requests

    @property
    def request_ids(self) -> tuple[str, ...]:
        """The requests that wait or run."""
        return tuple(self._live)

    def add(self, request: GenerationRequest) -> None:
        """Puts a request in line. Raises InputError for one that can never run."""
        params, name = request.params, request.request_id
        if not request.prompt_token_ids:
            raise InputError(f"request {name}: the prompt is empty")
        for token_id in (min(request.prompt_token_ids), max(request.prompt_token_ids)):
            if not 0 <= token_id < self.vocab_size:
                raise InputError(f"request {name}: token id {token_id} is out of vocabulary ({self.vocab_size} tokens)")
        if params.stop and self.tokenizer is None:
            raise InputError(f"request {name}: stop strings need a tokenizer")
        room = self.scheduler.config.max_model_len - len(request.prompt_token_ids)
        queued = Request(
            name,
            request.prompt_token_ids,
            # Where there is no room for one token, the scheduler refuses the request.
            max_tokens=max(1, room if params.max_tokens is None else min(params.max_tokens, room)),
            hasher=self._hasher,
            arrival=request.arrival,
            priority=request.priority,
            stop_token_ids=params.stop_token_ids | (frozenset() if params.ignore_eos else self.eos_token_ids),
            cache_salt=request.cache_salt,
        )
        self.scheduler.add(queued)
        self._live[name] = _Live(queued, params, Detokenizer(self.tokenizer, request.prompt_token_ids, params))
        self._params[name] = params
        self._prompt_tokens += queued.num_prompt_tokens
        if self._observer is not None:
            self._observer.arrival(queued)

    def abort(self, request_ids: Iterable[str]) -> list[Delta]:
        """Ends requests that wait or run and frees their blocks; ignores unknown ids. The last delta of each."""
        return self._end(request_ids, "abort")

    def reset_prefix_cache(self) -> bool:
        """Forgets the prefix cache; refused (False) while any block is in use."""
        done = self.scheduler.reset()
        if done and self._observer is not None:
            self._observer.reset()
        return done

    def step(self) -> list[Delta]:
        """Computes one step. When computing fails, the requests of the step end with `error`, and the engine goes on.

        Raises KVCheckError.
        """
        output = self.scheduler.schedule()
        self._num_steps += 1
        self._num_preemptions += len(output.preempted)
        try:
            sampled = self.runner.execute(output, self._params)
        except KVCheckError:
            raise
        except Exception:
            logger.exception("a step failed; its %d requests end", len(output.scheduled))
            return self._fail(output)
        result = self.scheduler.update_from_output(
            output, {request_id: token.token_id for request_id, token in sampled.items()}
        )
        if self._observer is not None:
            self._observer.step(output, result)
        self._generation_tokens += len(result.outputs)
        return [self._tell(item, sampled[item.request.request_id]) for item in result.outputs]

    def _tell(self, item: RequestOutput, token: SampledToken) -> Delta:
        """The delta of a token that was chosen; a stop string ends the request here, where its text is known."""
        request_id = item.request.request_id
        live = self._live[request_id]
        finish_reason: FinishReason | None = None
        stop_reason: int | str | None = None
        if item.finish_reason == "stop":
            finish_reason = "stop"
            if token.token_id in live.params.stop_token_ids and (
                live.params.ignore_eos or token.token_id not in self.eos_token_ids
            ):
                stop_reason = token.token_id
            text = live.detokenizer.finish()
        else:
            text, stop = live.detokenizer.append(token.token_id)
            if stop is not None:
                finish_reason, stop_reason = "stop", stop
                self._abort([request_id])
            elif item.finish_reason is not None:
                finish_reason = "length"
                text += live.detokenizer.finish()
        if finish_reason is not None:
            self._forget(request_id)
        return live.delta((token,), text, finish_reason, stop_reason)

    def _fail(self, output: SchedulerOutput) -> list[Delta]:
        """Ends the requests of a step that failed. Blocks that became full in it were findable from when it was
        scheduled, but nobody knows what they hold: they lose their hash. Nobody outside of the step refers to them,
        because a request looks blocks up only when it is admitted."""
        self._num_failed_steps += 1
        size = self.scheduler.config.block_size
        for item in output.scheduled:
            (table,) = item.block_ids
            full = (item.first_position + item.num_new_tokens) // size
            self.scheduler.cache.pool.evict_blocks(table[item.first_position // size : full])
        return self._end([item.request.request_id for item in output.scheduled], "error")

    def _end(self, request_ids: Iterable[str], reason: FinishReason) -> list[Delta]:
        ended = [self._live[request_id] for request_id in request_ids if request_id in self._live]
        self._abort([live.request.request_id for live in ended])
        for live in ended:
            self._forget(live.request.request_id)
        return [live.delta(text=live.detokenizer.finish(), finish_reason=reason) for live in ended]

    def _abort(self, request_ids: Sequence[str]) -> None:
        self.scheduler.abort(request_ids)
        if self._observer is not None:
            self._observer.aborted(request_ids)

    def _forget(self, request_id: str) -> None:
        del self._live[request_id], self._params[request_id]

    def stats(self) -> EngineStats:
        scheduler = self.scheduler
        prefix = scheduler.cache.stats
        return EngineStats(
            num_running=len(scheduler.running),
            num_waiting=len(scheduler.waiting),
            kv_cache_usage=scheduler.cache.pool.usage,
            num_steps=self._num_steps,
            num_failed_steps=self._num_failed_steps,
            num_preemptions=self._num_preemptions,
            prompt_tokens=self._prompt_tokens,
            generation_tokens=self._generation_tokens,
            prefix_cache_queries=prefix.queries,
            prefix_cache_hits=prefix.hits,
        )
