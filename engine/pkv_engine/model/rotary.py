"""The table of cosines and sines behind rotary position embedding."""

from __future__ import annotations

import math

import torch

from pkv_engine.model.config import RopeConfig


def cos_sin_table(rope: RopeConfig, head_size: int, length: int, factors: torch.Tensor | None = None) -> torch.Tensor:
    """float32 [length, head_size]: for each position the cosines of its head_size / 2 angles, then the sines.

    `factors` [head_size / 2] divide the frequencies (GGUF files state llama3 scaling in this form).
    """
    frequencies, magnitude = _frequencies(rope, head_size)
    if factors is not None:
        frequencies = frequencies / factors
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    return torch.cat((angles.cos(), angles.sin()), -1) * magnitude


def _frequencies(rope: RopeConfig, head_size: int) -> tuple[torch.Tensor, float]:
    """Radians per position [head_size / 2], and the factor on cosines and sines."""
    plain = 1.0 / rope.theta ** (torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
    if rope.kind == "linear":
        return plain / rope.factor, 1.0
    if rope.kind == "llama3":
        return _llama3(rope, plain), 1.0
    if rope.kind == "yarn":
        return _yarn(rope, plain, head_size), _yarn_magnitude(rope)
    return plain, 1.0


def _llama3(rope: RopeConfig, plain: torch.Tensor) -> torch.Tensor:
    """Low frequencies are divided by the factor, high ones stay, those between are blended."""
    turns = rope.original_length * plain / (2 * math.pi)
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blend = blend.clamp(0, 1)
    return (1 - blend) * plain / rope.factor + blend * plain


def _yarn(rope: RopeConfig, plain: torch.Tensor, head_size: int) -> torch.Tensor:
    """YaRN (Peng et al., 2023): a ramp over the dimensions instead of over the frequencies."""

    def dimension(turns: float) -> float:
        """The dimension that makes this many turns within the original length."""
        return head_size * math.log(rope.original_length / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_size - 1)
    if low == high:
        high += 0.001
    ramp = ((torch.arange(head_size // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    return plain / rope.factor * ramp + plain * (1 - ramp)


def _yarn_magnitude(rope: RopeConfig) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor

    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(rope.factor) + 1.0 if rope.factor > 1 else 1.0

    if rope.mscale and rope.mscale_all_dim:
        return scale(rope.mscale) / scale(rope.mscale_all_dim)
    return scale(1.0)
