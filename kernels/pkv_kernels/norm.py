"""Root mean square normalisation, alone or behind the addition of the residual."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(
    out_ptr, x_ptr, residual_ptr, weight_ptr, eps, heads, out_stride_token, out_stride_head,
    x_stride_token, x_stride_head, residual_stride_token, residual_stride_head,
    ADD: tl.constexpr, WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr,
):  # fmt: skip
    """One program: one row, that is one head of one token."""
    token = (tl.program_id(0) // heads).to(tl.int64)
    head = tl.program_id(0) % heads
    element = tl.arange(0, WIDTH_PAD)
    exists = element < WIDTH
    x = tl.load(x_ptr + token * x_stride_token + head * x_stride_head + element, mask=exists, other=0.0).to(tl.float32)
    if ADD:
        residual_ptr += token * residual_stride_token + head * residual_stride_head
        x += tl.load(residual_ptr + element, mask=exists, other=0.0).to(tl.float32)
        tl.store(residual_ptr + element, x.to(residual_ptr.dtype.element_ty), mask=exists)
    scale = tl.rsqrt(tl.sum(x * x, 0) / WIDTH + eps)
    out = x * scale * tl.load(weight_ptr + element, mask=exists, other=0.0).to(tl.float32)
    out_ptr += token * out_stride_token + head * out_stride_head
    tl.store(out_ptr + element, out.to(out_ptr.dtype.element_ty), mask=exists)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight, computed in float32: a new tensor like x.

    x [tokens, width] or [tokens, heads, width], contiguous in width; weight [width].
    """
    return _launch(x, None, weight, eps)


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Adds x to residual in place, and gives `rms_norm` of the sum before it was rounded to residual's dtype.

    x, residual [tokens, width], contiguous in width; weight [width].
    """
    return _launch(x, residual, weight, eps)


def _launch(x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    heads, width = (x.shape[1] if x.dim() == 3 else 1), x.shape[-1]
    width_pad = triton.next_power_of_2(width)
    added = x if residual is None else residual
    rms_norm_kernel[(x.shape[0] * heads,)](
        out, x, added, weight, eps, heads, *out.stride()[:2], *x.stride()[:2], *added.stride()[:2],
        ADD=residual is not None, WIDTH=width, WIDTH_PAD=width_pad,
        num_warps=min(16, max(1, width_pad // 512)), enable_fp_fusion=True,
    )  # fmt: skip
    return out
