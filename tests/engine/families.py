"""Small random models of each supported family, as transformers makes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from pkv_engine.model import cpu_ops
from pkv_engine.model.config import DecoderConfig
from pkv_engine.model.cpu import CpuDevice
from pkv_engine.model.decoder import Decoder
from pkv_engine.model.weights import Weights

VOCAB = 512
SIZE = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 256}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama3": ("Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "llama_biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama_linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}}),
    "llama_multi_head": ("Llama", {"num_key_value_heads": 4}),
    "mistral": ("Mistral", {"sliding_window": None, "head_dim": 24, "num_key_value_heads": 1}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2_yarn": ("Qwen2", {"rope_parameters": YARN}),
    "qwen3": ("Qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    "qwen3_yarn": ("Qwen3", {"head_dim": 32, "rope_parameters": YARN}),
}


@cache
def reference(family: str) -> Any:
    """transformers' own model, in float32, with weights large enough that its choices are clear."""
    import transformers

    name, changes = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZE | changes, eos_token_id=None, bos_token_id=None)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.15)
    return model


def config(family: str) -> DecoderConfig:
    """What a config.json of the model says."""
    model = reference(family)
    return DecoderConfig.from_json(model.config.to_dict() | {"architectures": [type(model).__name__]}, family)


def weights(family: str, dtype: torch.dtype = torch.float32) -> Weights:
    state = reference(family).state_dict()
    source: Callable[[str, tuple[int, ...]], torch.Tensor | None] = lambda name, _: state.get(name)  # noqa: E731
    return Weights(source, family, dtype, torch.device("cpu"))


def device(family: str, num_blocks: int = 80, block_size: int = 16, dtype: torch.dtype = torch.float32) -> CpuDevice:
    decoder = Decoder(config(family), weights(family, dtype), cpu_ops, SIZE["max_position_embeddings"])
    return CpuDevice(decoder, num_blocks, block_size, max_num_seqs=64)
