"""Matrix products with fixed weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

ROW_MULTIPLES = (2, 4, 8, 16)


def linear_pointwise(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x W^T + b by oneDNN, whatever torch would choose for F.linear."""
    y: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")
    return y


class Linear:
    """x [rows, inputs] -> x W^T + b [rows, outputs].

    On CPUs that oneDNN has products for, the weight is kept in oneDNN's own blocked layout alone (measured: half the
    time of F.linear in float32 and in bfloat16, and a row's result does not depend on how many rows there are: see
    `row_multiple`).
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """`weight` [outputs, inputs] and `bias` [outputs] are of one dtype and on one device."""
        self.in_features = weight.shape[1]
        self._bias = bias
        self._packed = weight.device.type == "cpu" and _packs(weight.dtype)
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, 8) if self._packed else weight

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._packed:
            return linear_pointwise(x, self._weight, self._bias)
        return F.linear(x, self._weight, self._bias)


def _packs(dtype: torch.dtype) -> bool:
    """Whether oneDNN computes in this dtype on this processor."""
    if not torch.backends.mkldnn.is_available():
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


def row_multiple(product: Callable[[torch.Tensor], torch.Tensor], inputs: int, dtype: torch.dtype) -> int | None:
    """The least multiple to which the number of rows must be padded so that no row's result depends, bit for bit, on
    how many rows are computed with it. None where none of ROW_MULTIPLES will do.

    Libraries choose their loops by the number of rows, mostly so for one row. This probes numbers of rows up to 256.
    """
    probe = torch.randn(256, inputs, generator=torch.Generator().manual_seed(0)).to(dtype)
    whole = product(probe)
    for multiple in ROW_MULTIPLES:
        sizes = {size for size in (multiple, 2 * multiple, 3 * multiple, 32, 48, 64, 112, 144) if size % multiple == 0}
        if all(torch.equal(product(probe[:size]), whole[:size]) for size in sizes):
            return multiple
    return None
