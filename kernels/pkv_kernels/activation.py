"""The gate of a SwiGLU feed-forward layer."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_WIDTH = 1024


@triton.jit
def silu_mul_kernel(out_ptr, gate_up_ptr, width, out_stride, gate_up_stride, WIDTH: tl.constexpr):
    """One program: WIDTH elements of one token."""
    token = tl.program_id(0).to(tl.int64)
    element = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    exists = element < width
    gate_up_ptr += token * gate_up_stride
    gate = tl.load(gate_up_ptr + element, mask=exists, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + width + element, mask=exists, other=0.0).to(tl.float32)
    out = gate * tl.sigmoid(gate) * up
    tl.store(out_ptr + token * out_stride + element, out.to(out_ptr.dtype.element_ty), mask=exists)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, computed in float32, as a new tensor [tokens, width].

    gate_up [tokens, 2 * width]: gate, then up; contiguous in its rows.
    """
    tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(tokens, width, dtype=gate_up.dtype, device=gate_up.device)
    silu_mul_kernel[tokens, triton.cdiv(width, _WIDTH)](
        out, gate_up, width, out.stride(0), gate_up.stride(0), WIDTH=_WIDTH, num_warps=4, enable_fp_fusion=True
    )
    return out
