"""From logits to tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from pkv_engine.generation import SampledToken, SamplingParams, TokenLogprob

Draw = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""`sample(logits, temperatures, seeds, positions)` of `model.cpu_ops` or of `pkv_kernels.sampling`."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One row of logits: how to choose from it, the position of the token to be chosen, and the tokens that must not
    be (`min_tokens` is not reached)."""

    params: SamplingParams
    seed: int
    position: int
    barred: Sequence[int] = ()


def sample(logits: torch.Tensor, choices: Sequence[Choice], draw: Draw) -> list[SampledToken]:
    """A token for each row of `logits` [len(choices), vocab_size], any float dtype.

    Filters work as in vLLM: on the distribution at the request's temperature; top_k first, then top_p of what is left,
    then min_p. Log-probabilities are those before temperature and filters.
    """
    logits = logits.float()
    allowed = logits
    if any(_narrows(choice) for choice in choices):
        allowed = logits.clone()
        for row, choice in zip(allowed, choices, strict=True):
            _narrow(row, choice)
    if all(choice.params.greedy for choice in choices):
        tokens = allowed.argmax(-1)
    else:
        device = logits.device
        temperatures = [0.0 if choice.params.greedy else choice.params.temperature for choice in choices]
        tokens = draw(
            allowed,
            torch.tensor(temperatures, dtype=torch.float32, device=device),
            torch.tensor([choice.seed for choice in choices], device=device),
            torch.tensor([choice.position for choice in choices], device=device),
        )
    return [
        SampledToken(token, None if choice.params.logprobs is None else _logprobs(row, token, choice.params.logprobs))
        for row, token, choice in zip(logits, tokens.tolist(), choices, strict=True)
    ]


def _narrows(choice: Choice) -> bool:
    params = choice.params
    return bool(choice.barred) or (not params.greedy and (params.top_k > 0 or params.top_p < 1 or params.min_p > 0))


def _narrow(row: torch.Tensor, choice: Choice) -> None:
    """Sets what may not be chosen from a row to minus infinity, in place."""
    params = choice.params
    if choice.barred:
        row[list(choice.barred)] = -math.inf
    if params.greedy:
        return
    if 0 < params.top_k < len(row):
        row[row < row.topk(params.top_k).values[-1]] = -math.inf
    if params.top_p < 1 or params.min_p > 0:
        probabilities = (row / params.temperature).softmax(-1)
        if params.top_p < 1:
            ordered, tokens = probabilities.sort(descending=True, stable=True)
            # A token stays where those that are likelier do not make up top_p; the likeliest always does.
            dropped = tokens[ordered.cumsum(-1) - ordered >= params.top_p]
            row[dropped] = -math.inf
            probabilities[dropped] = 0
        row[probabilities < params.min_p * probabilities.max()] = -math.inf


def _logprobs(row: torch.Tensor, token: int, count: int) -> tuple[TokenLogprob, ...]:
    logprobs = row.log_softmax(-1)
    chosen = logprobs[token]
    best = logprobs.topk(min(count, len(row)))
    return (
        TokenLogprob(token, float(chosen), 1 + int((logprobs > chosen).sum())),
        *(
            TokenLogprob(other, value, rank)
            for rank, (other, value) in enumerate(zip(best.indices.tolist(), best.values.tolist(), strict=True), 1)
        ),
    )
