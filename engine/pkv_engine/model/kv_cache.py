"""The memory behind the block tables."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pkv_engine.model.config import DecoderConfig


@dataclass(frozen=True, slots=True)
class LayerCache:
    """Keys and values of one layer, [num_blocks, block_size, num_kv_heads, head_size] each. Token `p` of a request has
    slot `table[p // block_size] * block_size + p % block_size`."""

    keys: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True, slots=True)
class KVCache:
    """One LayerCache for each layer. Block 0 is the null block: no token is ever written there."""

    layers: tuple[LayerCache, ...]

    @classmethod
    def allocate(
        cls, config: DecoderConfig, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> KVCache:
        # Zeros, because slots behind a sequence's end are multiplied by a weight of zero, which NaN would survive.
        shape = (num_blocks, block_size, config.num_kv_heads, config.head_size)
        layers = tuple(
            LayerCache(torch.zeros(shape, dtype=dtype, device=device), torch.zeros(shape, dtype=dtype, device=device))
            for _ in range(config.num_layers)
        )
        return cls(layers)
