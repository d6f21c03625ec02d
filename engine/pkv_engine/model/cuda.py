"""A decoder on a CUDA GPU: Triton kernels, and CUDA graphs for steps in which every sequence has one new token."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from pkv_engine.model import cuda_ops
from pkv_engine.model.batch import Batch
from pkv_engine.model.config import DecoderConfig
from pkv_engine.model.decoder import Decoder
from pkv_engine.model.kv_cache import KVCache, LayerCache
from pkv_engine.model.weights import Weights
from pkv_kernels.attention import paged_attention
from pkv_kernels.kv_write import write_kv

GRAPH_SIZES = (1, 2, 4, *range(8, 257, 8))
"""Numbers of sequences for which graphs are captured; a step takes the next larger one."""
MEMORY_SHARE = 0.9
"""Of the device's memory, for weights, activations and KV cache together."""


@dataclass(frozen=True, slots=True)
class CudaAttention:
    """The attention of one step (see `decoder.Attention`)."""

    batch: Batch
    scale: float

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cache: LayerCache) -> torch.Tensor:
        batch = self.batch
        write_kv(key, value, cache.keys, cache.values, batch.slot_mapping)
        out = torch.empty_like(query, memory_format=torch.contiguous_format)
        paged_attention(
            out,
            query,
            cache.keys,
            cache.values,
            batch.block_tables,
            batch.query_start_locs,
            batch.seq_lens,
            self.scale,
            batch.max_query_len,
        )
        return out


class CudaDevice:
    """Computes steps with the Triton kernels. No claim is made that results do not depend on the batch: the matrix
    products are the library's, which chooses them by the number of rows."""

    draw = staticmethod(cuda_ops.sample)
    row_multiple = 1
    batch_invariant = False

    def __init__(self, decoder: Decoder, num_blocks: int, block_size: int, max_num_seqs: int) -> None:
        config = decoder.config
        self._decoder = decoder
        self._device = decoder.device
        self._cache = KVCache.allocate(config, num_blocks, block_size, decoder.dtype, self._device)
        self._scale = 1 / math.sqrt(config.head_size)
        self.vocab_size = config.vocab_size
        self._graph_sizes = [size for size in GRAPH_SIZES if size < max_num_seqs] + [min(max_num_seqs, GRAPH_SIZES[-1])]
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}
        most_blocks = -(-decoder.max_model_len // block_size)
        self._inputs = Batch.padding(self._graph_sizes[-1], most_blocks).to(self._device)

    @staticmethod
    def load_decoder(config: DecoderConfig, weights: Weights, max_model_len: int) -> Decoder:
        return Decoder(config, weights, cuda_ops, max_model_len)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Logits [batch.num_sampled, vocab_size]."""
        count = len(batch.num_new)
        if batch.max_query_len > 1 or batch.num_sampled < count or count > self._graph_sizes[-1]:
            return self._compute(batch.to(self._device))
        size = next(size for size in self._graph_sizes if size >= count)
        self._inputs.head(size).fill(batch)
        if size not in self._graphs:
            self._graphs[size] = self._capture(self._inputs.head(size))
        graph, logits = self._graphs[size]
        graph.replay()
        return logits[:count]

    def _compute(self, batch: Batch) -> torch.Tensor:
        return self._decoder.forward(batch, CudaAttention(batch, self._scale), self._cache)

    def _capture(self, batch: Batch) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
        """Records the step over the addresses of `batch`. It is computed once before, as kernels are compiled and
        libraries set up at their first call; that writes the same keys and values as the replay."""
        warm_up = torch.cuda.Stream()
        warm_up.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm_up):
            self._compute(batch)
        torch.cuda.current_stream().wait_stream(warm_up)
        graph = torch.cuda.CUDAGraph()
        # Only one step is under way at a time, so that all graphs can use the same memory.
        pool = next(iter(self._graphs.values()))[0].pool() if self._graphs else None
        with torch.cuda.graph(graph, pool=pool):
            logits = self._compute(batch)
        return graph, logits


def free_memory(config: DecoderConfig, dtype: torch.dtype, max_num_batched_tokens: int) -> int:
    """Bytes that the KV cache can have, once the weights are loaded."""
    free, total = torch.cuda.mem_get_info()
    activations = 3 * (config.hidden_size + config.intermediate_size) * max_num_batched_tokens * dtype.itemsize
    return max(0, int(free - (1 - MEMORY_SHARE) * total) - activations)
