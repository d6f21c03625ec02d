"""One step on the device: the scheduler's output as a batch, through the decoder and the sampler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch

from pkv_engine.audit import KVAudit
from pkv_engine.generation import SampledToken, SamplingParams
from pkv_engine.model.batch import Batch, Share
from pkv_engine.sampling import Choice, Draw, sample
from pkv_sim.exact.request import Request
from pkv_sim.exact.scheduler_output import SchedulerOutput


class Device(Protocol):
    """Where the decoder runs, with its KV cache (see `model.cpu` and `model.cuda`)."""

    vocab_size: int
    row_multiple: int

    @property
    def draw(self) -> Draw:
        """Draws tokens from logits."""

    def forward(self, batch: Batch) -> torch.Tensor:
        """Logits [batch.num_sampled, vocab_size] of a batch that was built on the CPU."""


class ModelRunner:
    """Keeps the decoder, the KV cache and the seeds of requests that run."""

    def __init__(self, device: Device, block_size: int, *, seed: int = 0, audit: KVAudit | None = None) -> None:
        """`seed` is for requests that bring none."""
        self._device = device
        self._block_size = block_size
        self._audit = audit
        self._random = torch.Generator().manual_seed(seed)
        self._seeds: dict[str, int] = {}

    @torch.inference_mode()
    def execute(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> dict[str, SampledToken]:
        """Computes one step and chooses a token for each request that `samples`. Raises KVCheckError."""
        for request_id in output.finished:
            self._seeds.pop(request_id, None)
        if not output.scheduled:
            return {}
        batch = Batch.build(
            [
                Share(
                    item.request.token_ids[item.first_position : item.first_position + item.num_new_tokens],
                    item.first_position,
                    item.block_ids[0],
                    item.samples,
                )
                for item in output.scheduled
            ],
            self._block_size,
            self._device.row_multiple,
        )
        if self._audit is not None:
            self._audit.begin(output, batch)
        try:
            logits = self._device.forward(batch)
            requests = [item.request for item in output.scheduled if item.samples]
            tokens = sample(logits, [self._choice(request, params) for request in requests], self._device.draw)
        except Exception:
            if self._audit is not None:
                self._audit.fail(batch)
            raise
        return {request.request_id: token for request, token in zip(requests, tokens, strict=True)}

    def _choice(self, request: Request, params: Mapping[str, SamplingParams]) -> Choice:
        chosen = params[request.request_id]
        seed = chosen.seed
        if seed is None and not chosen.greedy:
            seed = self._seeds.get(request.request_id)
            if seed is None:
                seed = self._seeds[request.request_id] = int(torch.randint(2**62, (), generator=self._random))
        barred: tuple[int, ...] = ()
        if request.num_output_tokens < chosen.min_tokens:
            barred = tuple(token for token in request.stop_token_ids if token < self._device.vocab_size)
        return Choice(chosen, seed or 0, request.num_tokens, barred)
