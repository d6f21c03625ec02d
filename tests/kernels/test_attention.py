"""Paged attention in Triton's interpreter, against the float64 reference. Caches are NaN where nothing was written."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from pkv_kernels import split_attention  # noqa: E402
from pkv_kernels.attention_tile import choose_tile  # noqa: E402
from pkv_kernels.verification import TOLERANCE, Batch, random_batch  # noqa: E402

PARAMETERS = {
    "dtype": list(TOLERANCE),
    "head_size": [64, 80, 96, 128, 256],
    "block_size": [16, 32, 64, 128],
    "group": [1, 2, 3, 4, 5, 7, 8, 16],
}


def pairwise() -> list[dict[str, object]]:
    """Few combinations that have every pair of values of two parameters: each next one has the most new pairs."""
    every = [dict(zip(PARAMETERS, values, strict=True)) for values in itertools.product(*PARAMETERS.values())]
    missing = {pair for case in every for pair in itertools.combinations(case.items(), 2)}
    cases = []
    while missing:
        case = max(every, key=lambda case: len(missing.intersection(itertools.combinations(case.items(), 2))))
        missing.difference_update(itertools.combinations(case.items(), 2))
        cases.append(case)
    return cases


CASES = pairwise()


def sequence(batch: Batch, index: int, start: int = 0, end: int | None = None) -> Batch:
    """One sequence of a batch, or some of its query tokens with the keys up to the last of them."""
    first, last = batch.query_start_locs[index : index + 2].tolist()
    end = last - first if end is None else end
    unseen = last - first - end
    return replace(
        batch,
        query=batch.query[first + start : first + end],
        block_tables=batch.block_tables[index : index + 1],
        query_start_locs=torch.tensor([0, end - start], dtype=torch.int32),
        seq_lens=batch.seq_lens[index : index + 1] - unseen,
        max_query_len=end - start,
    )


@pytest.mark.parametrize("number", range(len(CASES)))
def test_equals_the_reference_in_pairwise_shapes(number: int) -> None:
    case, draw = CASES[number], random.Random(number)
    block_size = case["block_size"]
    decoding = number % 3 == 0
    lens = [(1, draw.choice([1, block_size - 1, block_size, block_size + 1, 200])) for _ in range(2)]
    if not decoding:
        prompt, context = draw.randint(2, 40), draw.choice([0, 1, block_size, 70])
        lens += [(prompt, prompt + context), (block_size, block_size)]
    batch = random_batch(
        lens, kv_heads=1 + number % 2, context=600 if number % 6 == 0 else 0, seed=number, **case
    )  # fmt: skip
    assert batch.difference() <= TOLERANCE[case["dtype"]]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    lens=st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 80)).map(lambda lens: (lens[0], sum(lens))), min_size=1, max_size=5
    ),
    case=st.sampled_from(CASES),
    context=st.sampled_from([0, 0, 1100, 20000]),
)
def test_equals_the_reference_in_any_batch(lens: list[tuple[int, int]], case: dict, context: int) -> None:
    batch = random_batch(lens, kv_heads=1, context=context, **case)
    assert batch.difference() <= TOLERANCE[case["dtype"]]


@pytest.mark.parametrize("query_len", [1, 30])
def test_sequences_around_whole_blocks_and_tiles(query_len: int) -> None:
    lens = [(query_len, keys) for keys in (31, 32, 33, 63, 64, 65)]
    batch = random_batch(lens, dtype=torch.float32, kv_heads=1, group=4, head_size=64, block_size=32)
    assert batch.difference() <= TOLERANCE[torch.float32]


@pytest.mark.parametrize("query_len", [1, 200])
@pytest.mark.parametrize("context", [0, 5000])
def test_padding_of_a_batch_gives_zeros_and_disturbs_nobody(query_len: int, context: int) -> None:
    shape = {"dtype": torch.float32, "kv_heads": 1, "group": 4, "head_size": 64, "block_size": 16}
    batch = random_batch([(1, 40), (1, 0), (0, 0), (query_len, 0)], context=context, **shape)
    assert not batch.attention()[1:].any()
    assert batch.difference() <= TOLERANCE[torch.float32]


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_chunks_of_whole_tiles_give_the_bits_of_the_whole_prompt(dtype: torch.dtype) -> None:
    whole = random_batch([(90, 90)], dtype=dtype, kv_heads=1, group=4, head_size=64, block_size=16)
    queries = choose_tile(whole.query, whole.key_cache, short=False).rows // 4
    chunks = [sequence(whole, 0, start, end) for start, end in ((0, queries), (queries, 90))]
    assert torch.equal(torch.cat([chunk.attention() for chunk in chunks]), whole.attention())


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_chunks_of_any_length_are_as_close_to_the_reference_as_the_whole_prompt(dtype: torch.dtype) -> None:
    # A row's sums are rounded in another order at another place in a tile (numpy's products), and in a short tile.
    whole = random_batch([(90, 90)], dtype=dtype, kv_heads=1, group=4, head_size=64, block_size=16)
    for start, end in ((0, 7), (7, 41), (41, 88), (88, 90)):
        assert sequence(whole, 0, start, end).difference() <= TOLERANCE[dtype]


@pytest.mark.parametrize("lens", [[(1, 700), (1, 3), (1, 1300)], [(20, 33), (1, 64), (50, 50)]])
def test_a_sequence_gives_the_same_bits_alone(lens: list[tuple[int, int]]) -> None:
    batch = random_batch(lens, dtype=torch.float32, kv_heads=2, group=3, head_size=64, block_size=16)
    out = batch.attention()
    for index, (start, end) in enumerate(itertools.pairwise(batch.query_start_locs.tolist())):
        alone = replace(sequence(batch, index), max_query_len=batch.max_query_len)
        assert torch.equal(alone.attention(), out[start:end])


def test_splitting_does_not_depend_on_the_number_of_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = random_batch([(1, 1500), (2, 700)], dtype=torch.float32, kv_heads=1, group=4, head_size=64, block_size=16)
    many = batch.attention()
    monkeypatch.setattr(split_attention, "PROGRAMS", 1)
    assert torch.equal(batch.attention(), many)


def test_long_tables_split_what_short_ones_do_not() -> None:
    batch = random_batch([(1, 500)], dtype=torch.float32, kv_heads=1, group=4, head_size=64, block_size=16)
    wide = replace(batch, block_tables=torch.nn.functional.pad(batch.block_tables, (0, 2000)))
    assert (wide.attention() - batch.attention()).abs().max() <= TOLERANCE[torch.float32]


def test_takes_caches_and_results_with_rows_apart() -> None:
    batch = random_batch([(1, 20), (3, 40)], dtype=torch.float32, kv_heads=2, group=2, head_size=80, block_size=16)
    by_head = replace(
        batch,
        key_cache=batch.key_cache.transpose(1, 2).contiguous().transpose(1, 2),
        value_cache=batch.value_cache.transpose(1, 2).contiguous().transpose(1, 2),
        query=torch.cat((batch.query, batch.query), 2)[:, :, 80:],
    )
    assert by_head.key_cache.stride() != batch.key_cache.stride()
    assert torch.equal(by_head.attention(), batch.attention())


def test_the_reference_is_torchs_attention() -> None:
    batch = random_batch([(40, 40)], dtype=torch.float64, kv_heads=2, group=3, head_size=64, block_size=16)
    key, value = (
        cache[batch.block_tables[0].long()].flatten(0, 1)[:40].transpose(0, 1)
        for cache in (batch.key_cache, batch.value_cache)
    )
    expected = torch.nn.functional.scaled_dot_product_attention(
        batch.query.transpose(0, 1), key, value, is_causal=True, enable_gqa=True
    )
    torch.testing.assert_close(batch.exact_attention(), expected.transpose(0, 1))
