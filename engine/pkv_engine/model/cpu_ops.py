"""The layers' elementwise parts on CPUs: the functions of `pkv_kernels`, in torch operations, several at once where
torch has them."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, in float32 inside."""
    return F.rms_norm(x, weight.shape, weight, eps)


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Adds x to `residual` in place and gives the norm of the sum."""
    residual += x
    return rms_norm(residual, weight, eps)


def rotary_embedding(
    query: torch.Tensor, key: torch.Tensor, cos_sin_cache: torch.Tensor, positions: torch.Tensor
) -> None:
    """Turns the pairs (i, i + head_size / 2) of [rows, heads, head_size], in place. The table is `cos_sin_table`'s."""
    half = cos_sin_cache.shape[1] // 2
    table = cos_sin_cache.index_select(0, positions).unsqueeze(1)
    cos, sin = table[..., :half], table[..., half:]
    for x in (query, key):
        first, second = x[..., :half], x[..., half:]
        turned = torch.addcmul(first * cos, second, sin, value=-1)
        torch.addcmul(second * cos, first, sin, out=second)
        first.copy_(turned)


def sample(
    logits: torch.Tensor, temperatures: torch.Tensor, seeds: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """One token id (int64) for each row: the argmax where the temperature is 0, else a draw from the softmax of
    logits / temperature that depends on the row's seed and position alone.

    The same contract as `pkv_kernels.sampling.sample`, whose noise is another: the largest of logits / temperature with
    Gumbel noise is such a draw.
    """
    tokens = logits.argmax(-1)
    for row in temperatures.nonzero().flatten().tolist():
        generator = torch.Generator().manual_seed(hash((int(seeds[row]), int(positions[row]))))
        noise = torch.empty_like(logits[row]).exponential_(generator=generator)
        tokens[row] = (logits[row] / temperatures[row] - noise.log()).argmax()
    return tokens


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of [rows, 2 n] (gate, up)."""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate).mul_(up)
