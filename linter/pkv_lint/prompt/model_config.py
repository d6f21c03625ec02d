"""What a model's config.json says about the length of a prompt and about the units of the KV cache."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pkv_lint.prompt.deployment import Deployment
from pkv_lint.prompt.errors import InputError
from pkv_lint.prompt.source import decode, parse

LayerKind = Literal["full", "sliding", "linear"]

# CacheConfig.DEFAULT_BLOCK_SIZE; most attention backends keep it on CUDA.
DEFAULT_BLOCK_SIZE = 16

_KINDS: dict[str, LayerKind] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    # config/vllm.py turns the hybrid manager off for chunked layers unless an environment variable allows it.
    "chunked_attention": "full",
    "linear_attention": "linear",
    "mamba": "linear",
    "conv": "linear",
}
# One layer in so many is not sliding, by transformers' default for the model.
_PATTERNS = {"gemma2": 2, "gemma3": 6, "cohere2": 4}
# ModelArchConfigConvertorBase.derive_max_model_len_and_key: the smallest of these counts.
_LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
# config/model.py:_get_and_verify_max_len: for these the stated length already is the scaled one.
_SCALED = ("default", "su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")

# Models whose layers vLLM runs as multi-head latent attention. Others with a `kv_lora_rank` keep more, or otherwise.
_LATENT = frozenset({"deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite"})
_HEADS = ("num_attention_heads", "n_head", "num_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_groups")
# Sizes of values and of keys that differ from the one of a head.
_OTHER_SIZES = ("v_head_dim", "kv_channels")
# Members under which models put numbers of heads that are not read here.
_ODD = ("attn_config", "block_configs")

_TOO_LARGE = 1 << 40
_MOST_LAYERS = 10_000

# Members of config.json that only models for images, audio or video have.
_MEDIA_CONFIGS = ("vision_config", "audio_config", "thinker_config", "vision_tower", "mm_vision_tower")


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer keeps: keys and values of `width` numbers each (`kv_heads` times head size) for all tokens or for
    the last `window` ones, or (linear) one state of fixed size. Without `kv_heads` it is one vector of `width` numbers
    for keys and values of all heads together (MLA). The width is 0 where config.json does not tell."""

    kind: LayerKind
    window: int | None
    width: int
    kv_heads: int = 0


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Layers that share block tables. `block_size` is in tokens; None where it follows from the size of a state."""

    layer: Layer
    num_layers: int
    block_size: int | None


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The part of config.json that prompts and cache depend on.

    `max_model_len` is the longest sequence (tokens) that vLLM takes when none is stated. `layers` are those that keep
    something, in order; empty when the file does not tell. `attention_heads` are those of the queries, 0 when it does
    not tell; `kv_cache_scheme` says that the checkpoint brings a number format of its own for the cache.
    `hidden_size`, `intermediate_size` and `vocab_size` are those of a dense model's matrices, 0 when it does not tell;
    `quantized` says that its weights have a format of their own.
    """

    model_type: str
    architectures: tuple[str, ...]
    dtype: str | None
    max_model_len: int | None
    layers: tuple[Layer, ...]
    multimodal: bool = False
    attention_heads: int = 0
    kv_cache_scheme: bool = False
    hidden_size: int = 0
    intermediate_size: int = 0
    vocab_size: int = 0
    quantized: bool = False

    @classmethod
    def load(cls, directory: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None) -> ModelConfig | None:
        """The config.json of a model directory with `--hf-overrides`; None when there is none. Raises InputError."""
        path = Path(directory, "config.json")
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"cannot be read ({(error.strerror or str(error)).lower()})", file=str(path)) from None
        raw = parse(decode(data, str(path)), str(path))
        if not isinstance(raw, dict):
            raise InputError("needs a JSON object", file=str(path))
        return cls.from_json(_overridden(raw, overrides or {}))

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ModelConfig:
        """The same from the parsed file. Members of wrong types count as missing."""
        text = next((part for name in ("text_config", "llm_config") if isinstance(part := raw.get(name), dict)), raw)
        architectures = raw.get("architectures")
        quantization = _quantization(raw, text)
        dtype = text.get("dtype") or text.get("torch_dtype") or raw.get("dtype") or raw.get("torch_dtype")
        return cls(
            model_type=raw["model_type"] if isinstance(raw.get("model_type"), str) else "",
            architectures=tuple(map(str, architectures)) if isinstance(architectures, list) else (),
            dtype=dtype if isinstance(dtype, str) else None,
            max_model_len=_max_model_len(text),
            layers=tuple(_layers(text)),
            multimodal=any(name in raw for name in _MEDIA_CONFIGS),
            attention_heads=_number(text, *_HEADS) or 0,
            kv_cache_scheme=_has_kv_cache_scheme(quantization),
            hidden_size=_number(text, "hidden_size") or 0,
            intermediate_size=_number(text, "intermediate_size") or 0,
            vocab_size=_number(text, "vocab_size") or 0,
            quantized=bool(quantization),
        )

    def cache_groups(self, deployment: Deployment) -> tuple[CacheGroup, ...]:
        """vLLM's KV cache groups (kv_cache_planning.py:get_kv_cache_groups, layer-outermost layout), in its order."""
        layers = self.layers
        mixed = {layer.kind for layer in layers} >= {"full", "sliding"}
        if mixed and deployment.disable_hybrid_kv_cache_manager:
            layers = tuple(
                replace(layer, kind="full", window=None) if layer.kind == "sliding" else layer for layer in layers
            )
        buckets: dict[Layer, int] = {}
        for layer in layers:
            buckets[layer] = buckets.get(layer, 0) + 1
        if not buckets:
            return ()
        block_size = deployment.block_size or DEFAULT_BLOCK_SIZE
        if len(kinds := {(layer.kind, layer.window) for layer in buckets}) == 1:
            # One type of layer is one group, whatever the widths.
            kind, _ = next(iter(kinds))
            return (CacheGroup(layers[0], len(layers), None if kind == "linear" else block_size),)
        fewest, most = min(buckets.values()), max(buckets.values())
        size = most if most < 1.5 * fewest else fewest
        linear = any(layer.kind == "linear" for layer in buckets)
        widest = max(layer.width for layer in buckets)
        groups: list[CacheGroup] = []
        for layer, count in buckets.items():
            # Pages are made equal: one that divides the largest gets more tokens, any other is padded.
            times = widest // layer.width if layer.width and widest % layer.width == 0 else 1
            number = math.ceil(count / size)
            for first in range(number):
                groups.append(
                    CacheGroup(layer, len(range(first, count, number)), None if linear else block_size * times)
                )
        return tuple(groups)

    def hit_unit(self, deployment: Deployment) -> int | None:
        """The tokens that every hit is a multiple of; None where only the server's log can tell.

        With several groups that is the least common multiple of their blocks (resolve_kv_cache_block_sizes).
        """
        sizes = [group.block_size for group in self.cache_groups(deployment)]
        known = [size for size in sizes if size is not None]
        if not sizes:
            return deployment.block_size or DEFAULT_BLOCK_SIZE
        return math.lcm(*known) if len(known) == len(sizes) else None

    def unmodelled(self, deployment: Deployment) -> tuple[str, ...]:
        """Why plain full attention does not describe this model's hits, as words for a message; empty if it does."""
        if not self.layers:
            return ("layers of unknown kinds",)
        kinds = {group.layer.kind for group in self.cache_groups(deployment)}
        names: dict[LayerKind, str] = {"sliding": "sliding-window layers", "linear": "linear-attention layers"}
        return tuple(name for kind, name in names.items() if kind in kinds)


def _overridden(raw: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(raw)
    for name, value in overrides.items():
        old = out.get(name)
        out[name] = _overridden(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return out


def _quantization(*parts: Mapping[str, Any]) -> Mapping[str, Any]:
    """How the checkpoint is quantised (llm-compressor, modelopt and others), by the first part that says so."""
    found = (part.get(name) for part in parts for name in ("quantization_config", "compression_config"))
    return next((stated for stated in found if isinstance(stated, dict)), {})


def _has_kv_cache_scheme(quantization: Mapping[str, Any]) -> bool:
    """Whether it names a number format for the cache."""
    inner = quantization.get("quantization")  # modelopt's own file
    return any(
        bool(part.get("kv_cache_scheme") or part.get("kv_cache_quant_algo"))
        for part in (quantization, inner)
        if isinstance(part, dict)
    )


def _number(text: Mapping[str, Any], *names: str) -> int | None:
    """The first of these members that is a positive whole number of a size that a model may have."""
    for name in names:
        value = text.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _TOO_LARGE:
            return value
    return None


def _max_model_len(text: Mapping[str, Any]) -> int | None:
    lengths = [length for name in _LENGTHS if (length := _number(text, name)) is not None]
    longest = _number(text, "model_max_length") or (min(lengths) if lengths else None)
    if longest is None:
        return None
    factor: float = 1
    for rope in _ropes(text):
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind == "longrope":
            return _number(text, "original_max_position_embeddings") or longest
        given = rope.get("factor")
        if kind in _SCALED or "gemma3" in str(text.get("model_type")):
            continue
        if isinstance(given, int | float) and 0 < given < _TOO_LARGE:
            factor = given
    return int(longest * factor)


def _ropes(text: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The rotary settings: one object, or (rope_parameters of mixed models) one for each type of layer."""
    for name in ("rope_parameters", "rope_scaling"):
        rope = text.get(name)
        if isinstance(rope, dict):
            inner = [part for part in rope.values() if isinstance(part, dict)]
            yield from inner or [rope]
            return


def _layers(text: Mapping[str, Any]) -> Iterator[Layer]:
    count = _number(text, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    kinds = _kinds(text, count) if count and count <= _MOST_LAYERS else []
    shared = _number(text, "num_kv_shared_layers") or 0  # the last ones read another layer's keys and values
    heads, size = _kv_shape(text)
    full_heads = _number(text, "num_global_key_value_heads") or heads
    full_width = (full_heads or 1) * (_number(text, "global_head_dim") or size)
    window = _number(text, "sliding_window")
    if window is not None and str(text.get("model_type")).startswith("cohere2"):
        window += 1  # models/commandr.py: its layers see the position `sliding_window` back as well
    for kind in kinds[: len(kinds) - shared]:
        if kind == "sliding":
            yield Layer(kind, window, heads * size, heads)
        elif kind == "full":
            yield Layer(kind, None, full_width, full_heads)
        elif kind == "linear":
            yield Layer(kind, None, 0)


def _kv_shape(text: Mapping[str, Any]) -> tuple[int, int]:
    """KV heads of a layer and the size of one; no heads and the size of the latent vector for MLA, 0 where neither can
    be told."""
    model_type = text.get("model_type")
    latent = _number(text, "kv_lora_rank")
    if latent is not None:
        return 0, latent + (_number(text, "qk_rope_head_dim") or 0) if model_type in _LATENT else 0
    attention_heads = _number(text, *_HEADS) or 0
    size = _number(text, "head_dim")
    if size is None and attention_heads:
        size = (_number(text, "hidden_size", "n_embd", "d_model") or 0) // attention_heads
    heads = _number(text, *_KV_HEADS)
    # FalconModelArchConfigConvertor.get_total_num_kv_heads: the new architecture states its heads.
    if text.get("multi_query") is True and not text.get("new_decoder_architecture"):
        heads = 1
    elif heads is None and not any(isinstance(text.get(name), list) for name in _KV_HEADS):
        heads = attention_heads
    alike = all(_number(text, name) in (None, size) for name in _OTHER_SIZES)
    if not heads or not size or not alike or any(name in text for name in _ODD):
        return 0, 0
    return heads, size


def _kinds(text: Mapping[str, Any], count: int) -> list[LayerKind | None]:
    """The kind of each layer (None: keeps nothing); empty when that cannot be told."""
    if text.get("is_encoder_decoder") is True or "cross_attention_layers" in text:
        return []  # such layers keep what another input is made of
    model_type = str(text.get("model_type"))
    slides = _number(text, "sliding_window") is not None and text.get("use_sliding_window") is not False
    local: LayerKind = "sliding" if slides else "full"
    if model_type == "gpt_oss":  # models/gpt_oss.py goes by the index, not by layer_types
        return [local if index % 2 == 0 else "full" for index in range(count)]
    types = text.get("layer_types", text.get("layers_block_type"))
    if isinstance(types, list):
        if len(types) != count or any(not isinstance(name, str) or name not in _KINDS for name in types):
            return []
        return [local if name == "sliding_attention" else _KINDS[name] for name in types]
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str):  # Nemotron-H: Mamba, attention, and layers that keep nothing
        marks: dict[str, LayerKind] = {"M": "linear", "*": "full"}
        return [marks.get(mark) for mark in pattern]
    if (period := _number(text, "attn_layer_period")) is not None:  # Jamba
        offset = text.get("attn_layer_offset", 0)
        return ["full" if index % period == offset else "linear" for index in range(count)]
    if (interval := _number(text, "full_attention_interval")) is not None:  # Qwen3-Next
        return ["full" if (index + 1) % interval == 0 else "linear" for index in range(count)]
    if any(name.startswith(("mamba_", "ssm_", "linear_")) or name == "state_size" for name in text):
        attention = "mamba" not in model_type or _number(text, "num_attention_heads") is not None
        return [] if attention else ["linear"] * count
    every = _number(text, "sliding_window_pattern") or _PATTERNS.get(model_type.removesuffix("_text"))
    if slides and every:
        return ["sliding" if (index + 1) % every else "full" for index in range(count)]
    return [local] * count
