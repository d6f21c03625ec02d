"""A decoder on CPUs."""

from __future__ import annotations

import torch

from pkv_engine.model import cpu_ops
from pkv_engine.model.attention_plan import Shape
from pkv_engine.model.batch import Batch
from pkv_engine.model.config import DecoderConfig
from pkv_engine.model.cpu_attention import CpuAttention, is_stable
from pkv_engine.model.decoder import Decoder
from pkv_engine.model.kv_cache import KVCache
from pkv_engine.model.linear import row_multiple
from pkv_engine.model.weights import Weights

FALLBACK_MULTIPLE = 8


class CpuDevice:
    """Computes steps in torch operations. `batch_invariant` tells that on this machine a token's logits are the same,
    bit for bit, whatever is computed with it and however its prompt was cut (probed when it is made)."""

    draw = staticmethod(cpu_ops.sample)

    def __init__(self, decoder: Decoder, num_blocks: int, block_size: int, max_num_seqs: int) -> None:
        config = decoder.config
        self._decoder = decoder
        self._cache = KVCache.allocate(config, num_blocks, block_size, decoder.dtype, torch.device("cpu"))
        self._shape = Shape(
            num_kv_heads=config.num_kv_heads,
            group_size=config.num_heads // config.num_kv_heads,
            head_size=config.head_size,
            block_size=block_size,
            dtype=decoder.dtype,
        )
        self.vocab_size = config.vocab_size
        multiples = [row_multiple(product, product.in_features, decoder.dtype) for product in decoder.products]
        known = [multiple for multiple in multiples if multiple is not None]
        self.row_multiple = max(known, default=FALLBACK_MULTIPLE)
        self.batch_invariant = len(known) == len(multiples) and is_stable(self._shape)

    @staticmethod
    def load_decoder(config: DecoderConfig, weights: Weights, max_model_len: int) -> Decoder:
        return Decoder(config, weights, cpu_ops, max_model_len)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Logits [batch.num_sampled, vocab_size]."""
        attention = CpuAttention(batch, self._shape)
        return self._decoder.forward(batch, attention, self._cache)[: batch.num_sampled]
