"""KV write, norms, rotary embedding, SiLU and sampling in Triton's interpreter, and their references against torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from pkv_kernels import reference  # noqa: E402
from pkv_kernels.kv_write import write_kv  # noqa: E402
from pkv_kernels.norm import rms_norm  # noqa: E402
from pkv_kernels.sampling import sample  # noqa: E402
from pkv_kernels.verification import TOLERANCE, compare_others  # noqa: E402


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_equal_their_references(dtype: torch.dtype) -> None:
    assert [comparison for comparison in compare_others(dtype, tokens=7, width=576) if not comparison.passed] == []


@pytest.mark.parametrize("integers", [torch.int32, torch.int64])
def test_write_kv_touches_its_slots_only(integers: torch.dtype) -> None:
    caches = torch.full((2, 3, 16, 2, 64), float("nan"))
    key, value = torch.randn(2, 4, 2, 64)
    write_kv(key, value, caches[0], caches[1], torch.tensor([47, -1, 16, 15], dtype=integers))
    slots = caches.flatten(1, 2)
    assert torch.equal(slots[0, [47, 16, 15]], key[[0, 2, 3]])
    assert torch.equal(slots[1, [47, 16, 15]], value[[0, 2, 3]])
    assert slots[:, :, 0, 0].isnan().sum() == 2 * (48 - 3)


def test_rms_norm_takes_rows_of_a_wider_tensor() -> None:
    wide, weight = torch.randn(3, 5, 64), torch.randn(64)
    assert torch.equal(rms_norm(wide[:, 2:4], weight, 1e-5), rms_norm(wide[:, 2:4].contiguous(), weight, 1e-5))


def test_sample_is_greedy_at_temperature_0_and_takes_the_first_of_equals() -> None:
    logits = torch.zeros(2, 5000)
    logits[0, [4500, 4200, 77]] = 3.0
    zeros = torch.zeros(2, dtype=torch.int64)
    assert sample(logits, torch.zeros(2), zeros, zeros).tolist() == [77, 0]


def test_sample_follows_the_distribution() -> None:
    probabilities = torch.tensor([0.5, 0.25, 0.15, 0.1, 0.0])
    rows = 300
    logits, temperatures = (probabilities.log() * 2).expand(rows, 5), torch.full((rows,), 2.0)
    drawn = sample(logits, temperatures, torch.arange(rows), torch.zeros(rows, dtype=torch.int64))
    counts = drawn.bincount(minlength=5)
    assert counts[4] == 0
    chi_squared = ((counts - probabilities * rows) ** 2)[:4] / (probabilities[:4] * rows)
    assert chi_squared.sum() < 16.3  # exceeded once in 1,000 seeds, with 3 degrees of freedom


def test_sample_depends_on_the_row_alone() -> None:
    logits, temperatures = torch.randn(6, 300), torch.tensor([1.0, 0.0, 0.7, 1.3, 1.0, 1.0])
    seeds, positions = torch.tensor([5, 6, 7, -1, 2**62, 5]), torch.tensor([0, 1, 2, 3, 4, 5])
    together = sample(logits, temperatures, seeds, positions)
    for row in range(6):
        alone = slice(row, row + 1)
        assert sample(logits[alone], temperatures[alone], seeds[alone], positions[alone]).item() == together[row].item()
    same_logits = sample(logits[:1].expand(50, -1), torch.ones(50), torch.full((50,), 5), torch.arange(50))
    assert len(same_logits.unique()) > 10


def test_the_noise_is_philox() -> None:
    # Known answer of Random123: philox4x32-10, counter and key 0.
    zero = torch.zeros(1, dtype=torch.int64)
    assert reference._philox(zero, zero, zero).item() == 0x6627E8D5


def test_references_are_what_torch_computes() -> None:
    x, weight = torch.randn(4, 64, dtype=torch.float64), torch.randn(64, dtype=torch.float64)
    torch.testing.assert_close(
        reference.rms_norm(x, weight, 1e-6), torch.nn.functional.rms_norm(x, (64,), weight, 1e-6)
    )
    torch.testing.assert_close(reference.silu_mul(x), torch.nn.functional.silu(x[:, :32]) * x[:, 32:])
    angles = torch.rand(10, 32, dtype=torch.float64)
    positions = torch.tensor([3, 0, 9, 3])
    query, key = torch.randn(4, 2, 64, dtype=torch.float64), torch.randn(4, 1, 64, dtype=torch.float64)
    turned = torch.complex(*query.chunk(2, -1)) * torch.exp(1j * angles[positions])[:, None]
    reference.rotary_embedding(query, key, torch.cat((angles.cos(), angles.sin()), 1), positions)
    torch.testing.assert_close(query, torch.cat((turned.real, turned.imag), -1))
