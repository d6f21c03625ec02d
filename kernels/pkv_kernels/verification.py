"""Compares every kernel with its float64 reference on random inputs, on a GPU or in Triton's interpreter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from pkv_kernels import reference
from pkv_kernels.activation import silu_mul
from pkv_kernels.attention import paged_attention
from pkv_kernels.kv_write import write_kv
from pkv_kernels.norm import add_rms_norm, rms_norm
from pkv_kernels.rotary import rotary_embedding
from pkv_kernels.sampling import sample

BATCHES = {
    "mixed": ((1, 1), (1, 33), (5, 5), (150, 150), (100, 421), (1, 512), (0, 0), (1, 0)),
    "decoding": ((1, 1), (1, 512), (1, 16), (1, 33), (0, 0), (1, 0)),
    "long decoding": ((1, 1), (1, 512), (1, 513), (1, 5000), (0, 0), (1, 0)),
}
"""Sequences of (query tokens, keys). Those without keys are padding."""
TOLERANCE = {torch.float32: 5e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""What `difference` may be: 42, 2 and 2.6 steps between numbers next to 1."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference of one result from its reference."""

    what: str
    difference: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """False for NaN too."""
        return self.difference <= self.tolerance

    def as_json(self) -> dict[str, object]:
        """With null for a difference that is no number."""
        finite = self.difference if math.isfinite(self.difference) else None
        return {"what": self.what, "difference": finite, "tolerance": self.tolerance, "passed": self.passed}


def difference(got: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest error, relative to what is exact where that exceeds 1."""
    return ((got.double() - exact).abs() / exact.abs().clamp(min=1)).max().item() if got.numel() else 0.0


@dataclass(frozen=True, slots=True)
class Batch:
    """The arguments of paged_attention between `out` and `scale`, and the last one."""

    query: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    block_tables: torch.Tensor
    query_start_locs: torch.Tensor
    seq_lens: torch.Tensor
    max_query_len: int

    def write_attention(self, out: torch.Tensor, function: Callable[..., None] = paged_attention) -> None:
        """Calls the kernel, or another function, with these arguments."""
        function(
            out, self.query, self.key_cache, self.value_cache, self.block_tables, self.query_start_locs, self.seq_lens,
            self.query.shape[2] ** -0.5, self.max_query_len,
        )  # fmt: skip

    def attention(self) -> torch.Tensor:
        """What the kernel gives."""
        out = torch.full_like(self.query, float("nan"))
        self.write_attention(out)
        return out

    def exact_attention(self) -> torch.Tensor:
        """What the reference gives, in float64."""
        out = torch.full_like(self.query, float("nan"), dtype=torch.float64)
        self.write_attention(out, reference.paged_attention)
        return out

    def difference(self) -> float:
        """Of paged_attention from its reference."""
        return difference(self.attention(), self.exact_attention())


def random_batch(
    lens: Sequence[tuple[int, int]],
    *,
    dtype: torch.dtype,
    kv_heads: int,
    group: int,
    head_size: int,
    block_size: int,
    context: int = 0,
    device: str = "cpu",
    seed: int = 0,
) -> Batch:
    """Sequences of (query tokens, keys) in scattered blocks, with block tables for at least `context` keys.

    All else in the caches is NaN: the null block 0, a block that nobody owns, and the ends of last blocks. Block tables
    end in null blocks.
    """
    generator = torch.Generator(device).manual_seed(seed)
    counts = [-(-keys // block_size) for _, keys in lens]
    width = max(*counts, -(-context // block_size), 1)
    order = (torch.randperm(sum(counts) + 1, generator=generator, device=device) + 1).tolist()
    query_lens = [query_len for query_len, _ in lens]

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    caches = torch.full((sum(counts) + 2, 2, block_size, kv_heads, head_size), float("nan"), dtype=dtype, device=device)
    tables = torch.zeros(len(lens), width, dtype=torch.int32, device=device)
    for table, count, (_, keys) in zip(tables, counts, lens, strict=True):
        blocks, order = order[:count], order[count:]
        table[:count] = torch.tensor(blocks, dtype=torch.int32)
        for index, block in enumerate(blocks):
            filled = min(block_size, keys - index * block_size)
            caches[block, :, :filled] = normal(2, filled, kv_heads, head_size)
    starts = torch.tensor([0, *query_lens], device=device).cumsum(0).to(torch.int32)
    seq_lens = torch.tensor([keys for _, keys in lens], dtype=torch.int32, device=device)
    query = normal(sum(query_lens), kv_heads * group, head_size)
    return Batch(query, caches[:, 0], caches[:, 1], tables, starts, seq_lens, max(query_lens))


def compare_others(dtype: torch.dtype, device: str = "cpu", *, tokens: int, width: int) -> Iterator[Comparison]:
    """All kernels but attention, with heads of 80 that do not fill a tile, and slices whose rows lie apart."""
    generator = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    def integers(low: int, high: int) -> torch.Tensor:
        return torch.randint(low, high, (tokens,), generator=generator, device=device)

    qkv = normal(tokens, 10, 80)
    query, key, value = qkv.split((6, 2, 2), 1)

    written = torch.zeros(2, tokens, 16, 2, 80, dtype=dtype, device=device)
    expected = torch.zeros_like(written)
    slots = torch.randperm(tokens * 16, generator=generator, device=device)[:tokens]
    slots[::5] = -1
    write_kv(key, value, written[0], written[1], slots)
    reference.write_kv(key, value, expected[0], expected[1], slots)
    yield Comparison("write_kv", difference(written, expected.double()), 0)

    tolerance = TOLERANCE[dtype]
    x, residual, weight = normal(tokens, width), normal(tokens, width), normal(width)
    exact_residual = residual.double()
    exact = reference.rms_norm(x.double(), weight, 1e-6)
    yield Comparison("rms_norm", difference(rms_norm(x, weight, 1e-6), exact), tolerance)
    exact = reference.add_rms_norm(x.double(), exact_residual, weight, 1e-6)
    yield Comparison("add_rms_norm", difference(add_rms_norm(x, residual, weight, 1e-6), exact), tolerance)
    yield Comparison("residual of add_rms_norm", difference(residual, exact_residual), tolerance)
    exact = reference.rms_norm(key.double(), weight[:80], 1e-6)
    yield Comparison("rms_norm of heads", difference(rms_norm(key, weight[:80], 1e-6), exact), tolerance)

    angles = torch.rand(100, 40, generator=generator, device=device) * 6
    cos_sin, positions = torch.cat((angles.cos(), angles.sin()), -1), integers(0, 100)
    exact_query, exact_key = query.double(), key.double()
    reference.rotary_embedding(exact_query, exact_key, cos_sin, positions)
    rotary_embedding(query, key, cos_sin, positions)
    yield Comparison("rotary_embedding of queries", difference(query, exact_query), tolerance)
    yield Comparison("rotary_embedding of keys", difference(key, exact_key), tolerance)

    gate_up = normal(tokens, 2 * width)
    yield Comparison("silu_mul", difference(silu_mul(gate_up), reference.silu_mul(gate_up.double())), tolerance)

    logits, seeds = normal(tokens, 9000), integers(-(2**62), 2**62)
    temperatures = torch.arange(tokens, device=device) % 3 / 2
    drawn, expected = (f(logits, temperatures, seeds, positions) for f in (sample, reference.sample))
    yield Comparison("rows of sample", (drawn != expected).sum().item(), 0)
