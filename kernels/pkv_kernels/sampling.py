"""Greedy and seeded random sampling of a batch, in one pass over its logits.

A draw from softmax(logits / temperature) is the argmax of logits / temperature + Gumbel noise. So one reduction does
for both kinds of rows, probabilities are never made, and logits of -inf stay out. What asks for a kernel is the noise:
each row has a seed of its own, so that a request gets the same tokens whatever shares its batch, and torch would need a
generator and a launch per row. Top-k and top-p need sorted logits, which is torch.sort's work: set the rest to -inf.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_WIDTH = 4096


@triton.jit
def sample_kernel(
    best_ptr, best_token_ptr, logits_ptr, temperature_ptr, seed_ptr, position_ptr, vocab_size, logits_stride,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """One program: the best of WIDTH tokens of one row."""
    row = tl.program_id(0)
    part = tl.program_id(1)
    token = part * WIDTH + tl.arange(0, WIDTH)
    exists = token < vocab_size
    score = tl.load(logits_ptr + row.to(tl.int64) * logits_stride + token, mask=exists, other=float("-inf"))
    score = score.to(tl.float32)
    temperature = tl.load(temperature_ptr + row)
    if temperature > 0:
        position = tl.load(position_ptr + row).to(tl.int32)
        zero = tl.zeros([WIDTH], tl.int32)
        bits, _, _, _ = tl.philox(tl.load(seed_ptr + row), token, zero + position, zero, zero)
        # 23 bits and a half: neither 0 nor 1, and exact in float32.
        uniform = ((bits >> 9).to(tl.int32).to(tl.float32) + 0.5) * (1 / 8388608)
        score = score / temperature - tl.log(-tl.log(uniform))
    best, best_index = tl.max(score, 0, return_indices=True)
    tl.store(best_ptr + row * tl.num_programs(1) + part, best)
    tl.store(best_token_ptr + row * tl.num_programs(1) + part, (part * WIDTH + best_index).to(tl.int64))


def sample(
    logits: torch.Tensor, temperatures: torch.Tensor, seeds: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """One token id (int64) per row, drawn with its own temperature; the argmax, lowest id first, where that is 0.

    logits [rows, vocab_size], contiguous in vocab_size; temperatures [rows] float32, not negative.
    seeds [rows] int64: of the requests. positions [rows], any integer dtype: of the tokens that are drawn.
    The noise comes from Philox-4x32-10 with the seed as key and the counter (token id, position, 0, 0).
    """
    rows, vocab_size = logits.shape
    parts = triton.cdiv(vocab_size, _WIDTH)
    best = torch.empty(rows, parts, dtype=torch.float32, device=logits.device)
    best_token = torch.empty(rows, parts, dtype=torch.int64, device=logits.device)
    sample_kernel[rows, parts](
        best, best_token, logits, temperatures, seeds, positions, vocab_size, logits.stride(0),
        WIDTH=_WIDTH, num_warps=8, enable_fp_fusion=True,
    )  # fmt: skip
    return best_token.gather(1, best.argmax(1, keepdim=True)).squeeze(1)
