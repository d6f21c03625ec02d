"""What a decoder looks like, from a model's config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pkv_lint.prompt.errors import InputError

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary position embedding: frequencies theta ** (-2 i / head_size), scaled in one of the ways of
    `transformers/modeling_rope_utils.py`.

    `kind` is `default`, `linear`, `llama3` or `yarn`; `original_length` is the context length (tokens) that a scaled
    model was first trained with. The fields behind it belong to one kind each.
    """

    theta: float = 10000.0
    kind: str = "default"
    factor: float = 1.0
    original_length: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float = 0.0
    mscale_all_dim: float = 0.0
    truncate: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """A dense decoder of the Llama family: RMSNorm in front, grouped-query attention with rotary positions, gated MLP.

    `max_model_len` is the context length in tokens that the model allows. `qkv_bias`, `output_bias` and `mlp_bias` say
    which projections have a bias, `qk_norm` whether queries and keys are normalised head by head (Qwen3).
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    max_model_len: int
    rms_norm_eps: float
    rope: RopeConfig
    tie_word_embeddings: bool
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    eos_token_ids: frozenset[int] = frozenset()

    def kv_bytes_per_token(self, element_size: int) -> int:
        """Bytes of keys and values of one token in all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_size * element_size

    @classmethod
    def from_json(cls, config: Mapping[str, Any], file: str) -> DecoderConfig:
        """From a config.json; raises InputError, naming `file`, for models that this decoder cannot compute."""
        architecture = (config.get("architectures") or ["none stated"])[0]
        if architecture not in ARCHITECTURES:
            raise InputError(
                f"the architecture {architecture} is not supported, only {', '.join(ARCHITECTURES)}", file=file
            )
        if config.get("quantization_config"):
            method = config["quantization_config"].get("quant_method", "unknown")
            raise InputError(f"weights quantised with {method} are not supported", file=file)
        if (activation := config.get("hidden_act", "silu")) != "silu":
            raise InputError(f"the activation {activation} is not supported, only silu", file=file)
        qwen = architecture in ("Qwen2ForCausalLM", "Qwen3ForCausalLM")
        bias = bool(config.get("attention_bias", False))
        try:
            heads = config["num_attention_heads"]
            max_model_len = config["max_position_embeddings"]
            window = config.get("sliding_window")
            if window and config.get("use_sliding_window", not qwen):
                # Within its window such a model attends to everything; beyond it the cache would need other groups.
                max_model_len = min(max_model_len, window)
            return cls(
                vocab_size=config["vocab_size"],
                hidden_size=config["hidden_size"],
                intermediate_size=config["intermediate_size"],
                num_layers=config["num_hidden_layers"],
                num_heads=heads,
                num_kv_heads=config.get("num_key_value_heads") or heads,
                head_size=config.get("head_dim") or config["hidden_size"] // heads,
                max_model_len=max_model_len,
                rms_norm_eps=config["rms_norm_eps"],
                rope=_rope(config, file),
                tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
                qkv_bias=bias or architecture == "Qwen2ForCausalLM",
                output_bias=bias,
                mlp_bias=bool(config.get("mlp_bias", False)),
                qk_norm=architecture == "Qwen3ForCausalLM",
                eos_token_ids=token_ids(config.get("eos_token_id")),
            )
        except KeyError as error:
            raise InputError(f"has no {error.args[0]}", file=file) from None
        except TypeError:
            raise InputError("holds a value of an unusable type", file=file) from None


def token_ids(value: object) -> frozenset[int]:
    """`eos_token_id` as configurations have it: a number, a list of them, or nothing."""
    values = value if isinstance(value, list) else [value]
    return frozenset(item for item in values if isinstance(item, int) and not isinstance(item, bool))


def _rope(config: Mapping[str, Any], file: str) -> RopeConfig:
    # transformers 5 writes rope_parameters; older releases rope_theta and rope_scaling, first with `type`.
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = given.get("rope_type", given.get("type", "default"))
    if kind not in ("default", "linear", "llama3", "yarn"):
        raise InputError(f"rotary scaling of the kind {kind} is not supported", file=file)
    if (share := given.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))) != 1.0:
        raise InputError(f"rotary embedding of a share of {share} of each head is not supported", file=file)
    names = ("factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor")
    return RopeConfig(
        theta=given.get("rope_theta", config.get("rope_theta", 10000.0)),
        kind=kind,
        original_length=given.get("original_max_position_embeddings") or config["max_position_embeddings"],
        **{
            name: given[name]
            for name in (*names, "mscale", "mscale_all_dim", "truncate")
            if given.get(name) is not None
        },
    )
