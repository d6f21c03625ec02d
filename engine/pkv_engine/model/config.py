"""What a decoder looks like, from a model's config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

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
        named = config.get("architectures")
        architecture = named[0] if isinstance(named, list) and named else named or "none stated"
        if architecture not in ARCHITECTURES:
            raise InputError(
                f"the architecture {architecture} is not supported, only {', '.join(ARCHITECTURES)}", file=file
            )
        try:
            given = _ConfigFile.model_validate(_without_nulls(config))
        except ValidationError as error:
            raise _unusable(error, file) from None
        if given.quantization_config:
            method = given.quantization_config.get("quant_method", "unknown")
            raise InputError(f"weights quantised with {method} are not supported", file=file)
        if given.hidden_act != "silu":
            raise InputError(f"the activation {given.hidden_act} is not supported, only silu", file=file)
        qwen = architecture in ("Qwen2ForCausalLM", "Qwen3ForCausalLM")
        heads = given.num_attention_heads
        kv_heads = given.num_key_value_heads or heads
        head_size = given.head_dim or given.hidden_size // heads
        if heads % kv_heads:
            raise InputError(f"{heads} query heads cannot share {kv_heads} KV heads evenly", file=file)
        if head_size < 2 or head_size % 2:
            raise InputError(f"heads of {head_size} values have no pairs to turn", file=file)
        max_model_len = given.max_position_embeddings
        if given.sliding_window and (not qwen if given.use_sliding_window is None else given.use_sliding_window):
            # Within its window such a model attends to everything; beyond it the cache would need other groups.
            max_model_len = min(max_model_len, given.sliding_window)
        return cls(
            vocab_size=given.vocab_size,
            hidden_size=given.hidden_size,
            intermediate_size=given.intermediate_size,
            num_layers=given.num_hidden_layers,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_size=head_size,
            max_model_len=max_model_len,
            rms_norm_eps=given.rms_norm_eps,
            rope=_rope(given, file),
            tie_word_embeddings=given.tie_word_embeddings,
            qkv_bias=given.attention_bias or architecture == "Qwen2ForCausalLM",
            output_bias=given.attention_bias,
            mlp_bias=given.mlp_bias,
            qk_norm=architecture == "Qwen3ForCausalLM",
            eos_token_ids=token_ids(config.get("eos_token_id")),
        )


Count = Annotated[int, Field(ge=1, lt=1 << 31)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _RopeFile(BaseModel):
    """`rope_parameters` of transformers 5; older releases have rope_theta beside `rope_scaling`, first with `type`."""

    rope_type: str | None = None
    type: str = "default"
    rope_theta: Positive | None = None
    original_max_position_embeddings: Count | None = None
    partial_rotary_factor: float | None = None
    factor: Positive = 1.0
    low_freq_factor: Positive = 1.0
    high_freq_factor: Positive = 4.0
    beta_fast: Positive = 32.0
    beta_slow: Positive = 1.0
    attention_factor: Positive | None = None
    mscale: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    mscale_all_dim: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    truncate: bool = True


class _ConfigFile(BaseModel):
    """config.json as far as it says what is to be computed."""

    quantization_config: dict[str, Any] = {}
    hidden_act: str = "silu"
    vocab_size: Count
    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None
    max_position_embeddings: Count
    sliding_window: Annotated[int, Field(ge=0)] = 0
    use_sliding_window: bool | None = None
    rms_norm_eps: Positive
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    rope_theta: Positive = 10000.0
    partial_rotary_factor: float = 1.0
    rope_parameters: _RopeFile | None = None
    rope_scaling: _RopeFile | None = None


def _without_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    """A null says nothing: it is as if the member were not there."""
    return {
        name: _without_nulls(member) if isinstance(member, Mapping) else member
        for name, member in value.items()
        if member is not None
    }


def _unusable(error: ValidationError, file: str) -> InputError:
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return InputError(f"has no {name}", file=file)
    return InputError(f"{name} cannot be used: {first['msg']}", file=file)


def token_ids(value: object) -> frozenset[int]:
    """`eos_token_id` as configurations have it: a number, a list of them, or nothing."""
    values = value if isinstance(value, list) else [value]
    return frozenset(item for item in values if isinstance(item, int) and not isinstance(item, bool))


def _rope(config: _ConfigFile, file: str) -> RopeConfig:
    given = config.rope_parameters or config.rope_scaling or _RopeFile()
    kind = given.rope_type or given.type
    if kind not in ("default", "linear", "llama3", "yarn"):
        raise InputError(f"rotary scaling of the kind {kind} is not supported", file=file)
    share = given.partial_rotary_factor or config.partial_rotary_factor
    if share != 1.0:
        raise InputError(f"rotary embedding of a share of {share} of each head is not supported", file=file)
    return RopeConfig(
        theta=given.rope_theta or config.rope_theta,
        kind=kind,
        original_length=given.original_max_position_embeddings or config.max_position_embeddings,
        factor=given.factor,
        low_freq_factor=given.low_freq_factor,
        high_freq_factor=given.high_freq_factor,
        beta_fast=given.beta_fast,
        beta_slow=given.beta_slow,
        attention_factor=given.attention_factor,
        mscale=given.mscale,
        mscale_all_dim=given.mscale_all_dim,
        truncate=given.truncate,
    )
