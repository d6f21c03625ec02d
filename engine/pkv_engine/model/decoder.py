"""The forward pass of Llama, Mistral, Qwen2 and Qwen3: from a batch's tokens to logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from pkv_engine.model.batch import Batch
from pkv_engine.model.config import DecoderConfig
from pkv_engine.model.kv_cache import KVCache, LayerCache
from pkv_engine.model.linear import Linear
from pkv_engine.model.rotary import cos_sin_table
from pkv_engine.model.weights import Weights


class Ops(Protocol):
    """The elementwise parts: `cpu_ops` or `cuda_ops`, which both say what they compute."""

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor: ...

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor: ...

    def rotary_embedding(
        self, query: torch.Tensor, key: torch.Tensor, cos_sin_cache: torch.Tensor, positions: torch.Tensor
    ) -> None: ...

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor: ...


class Attention(Protocol):
    """The attention of one step (see `CpuAttention`). It writes the keys and values of the whole batch before it reads
    any: a request may have hit blocks that another one fills in the same step."""

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cache: LayerCache
    ) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: torch.Tensor
    qkv: Linear
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    output: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class Decoder:
    """Weights in the layout in which they are used: query, key and value are one product, gate and up another."""

    def __init__(self, config: DecoderConfig, weights: Weights, ops: Ops, max_model_len: int) -> None:
        """`weights` have the dtype and the device of the model. Raises InputError for weights that are missing or of
        another shape."""
        self.config = config
        self.max_model_len = max_model_len
        self._ops = ops
        self.dtype, self.device = weights.dtype, weights.device
        self._embedding = weights.get("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
        self._layers = tuple(self._load_layer(weights, f"model.layers.{index}") for index in range(config.num_layers))
        self._norm = weights.get("model.norm.weight", config.hidden_size)
        self.head = Linear(
            self._embedding
            if config.tie_word_embeddings
            else weights.get("lm_head.weight", config.vocab_size, config.hidden_size)
        )
        table = cos_sin_table(config.rope, config.head_size, max_model_len, weights.rope_factors)
        # In the model's dtype, as vLLM and transformers have it.
        self._cos_sin = table.to(self._embedding)

    def _load_layer(self, weights: Weights, name: str) -> _Layer:
        config = self.config
        hidden, inner, size = config.hidden_size, config.intermediate_size, config.head_size
        query, kv = config.num_heads * size, config.num_kv_heads * size

        def linear(inputs: int, bias: bool, outputs: Mapping[str, int]) -> Linear:
            """The products that take the same input, as one."""
            matrices = [weights.get(f"{name}.{part}.weight", width, inputs) for part, width in outputs.items()]
            offsets = [weights.get(f"{name}.{part}.bias", width) for part, width in outputs.items()] if bias else None
            return Linear(torch.cat(matrices), torch.cat(offsets) if offsets else None)

        def norm(part: str, width: int) -> torch.Tensor:
            return weights.get(f"{name}.{part}.weight", width)

        return _Layer(
            attention_norm=norm("input_layernorm", hidden),
            qkv=linear(
                hidden, config.qkv_bias, {"self_attn.q_proj": query, "self_attn.k_proj": kv, "self_attn.v_proj": kv}
            ),
            query_norm=norm("self_attn.q_norm", size) if config.qk_norm else None,
            key_norm=norm("self_attn.k_norm", size) if config.qk_norm else None,
            output=linear(query, config.output_bias, {"self_attn.o_proj": hidden}),
            mlp_norm=norm("post_attention_layernorm", hidden),
            gate_up=linear(hidden, config.mlp_bias, {"mlp.gate_proj": inner, "mlp.up_proj": inner}),
            down=linear(inner, config.mlp_bias, {"mlp.down_proj": hidden}),
        )

    @property
    def products(self) -> tuple[Linear, ...]:
        """One product of each shape (the layers are alike)."""
        layer = self._layers[0]
        return layer.qkv, layer.output, layer.gate_up, layer.down, self.head

    def forward(self, batch: Batch, attention: Attention, cache: KVCache) -> torch.Tensor:
        """Computes the batch's tokens, writes their keys and values, and gives the logits [sampled rows, vocab_size] of
        `batch.sampled_rows`, in the model's dtype."""
        eps, ops = self.config.rms_norm_eps, self._ops
        residual = self._embedding.index_select(0, batch.token_ids)
        x = torch.zeros_like(residual)
        for layer, layer_cache in zip(self._layers, cache.layers, strict=True):
            x = ops.add_rms_norm(x, residual, layer.attention_norm, eps)
            x = self._attend(layer, x, batch, attention, layer_cache)
            x = ops.add_rms_norm(x, residual, layer.mlp_norm, eps)
            x = layer.down(ops.silu_mul(layer.gate_up(x)))
        rows = batch.sampled_rows
        return self.head(ops.rms_norm(x.index_select(0, rows) + residual.index_select(0, rows), self._norm, eps))

    def _attend(
        self, layer: _Layer, x: torch.Tensor, batch: Batch, attention: Attention, cache: LayerCache
    ) -> torch.Tensor:
        config = self.config
        heads, kv_heads = config.num_heads, config.num_kv_heads
        qkv = layer.qkv(x).view(len(x), heads + 2 * kv_heads, config.head_size)
        query, key, value = qkv[:, :heads], qkv[:, heads:-kv_heads], qkv[:, -kv_heads:]
        if layer.query_norm is not None and layer.key_norm is not None:
            query = self._ops.rms_norm(query, layer.query_norm, config.rms_norm_eps)
            key = self._ops.rms_norm(key, layer.key_norm, config.rms_norm_eps)
        self._ops.rotary_embedding(query, key, self._cos_sin, batch.positions)
        return layer.output(attention(query, key, value, cache).flatten(1))
