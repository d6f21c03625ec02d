"""Block hashes: vLLM's own digests, and the rules behind them."""

from __future__ import annotations

import json
import pickle
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pkv_lint.prompt.errors import InputError
from pkv_sim.exact.cbor import CanonicalCbor
from pkv_sim.exact.events import external_block_hash
from pkv_sim.exact.extra_keys import event_extra_keys, extra_keys
from pkv_sim.exact.hashing import BlockHasher, HashAlgorithm, hash_block_tokens, none_hash
from pkv_sim.exact.profile import DEFAULT_PROFILE, Profile
from pkv_sim.exact.request import Lora, MultiModalItem, Request

RANGE40 = range(40)


def algorithm(name: str) -> HashAlgorithm:
    if name.startswith("xxhash"):
        pytest.importorskip("xxhash")
    return HashAlgorithm.named(name)


def mm_items(rows: list[list[Any]], *, one_object: bool) -> list[MultiModalItem]:
    # Whether equal identifiers are one object decides the pickle digests.
    names: dict[str, str] = {}
    items = []
    for name, offset, length in rows:
        identifier = names.setdefault(name, name) if one_object else name.encode().decode()
        items.append(MultiModalItem(identifier, offset, length))
    return items


def golden_request(tokens: list[int], extra: dict[str, Any], *, one_object: bool, hasher: BlockHasher) -> Request:
    return Request(
        "r",
        tokens,
        max_tokens=1,
        hasher=hasher,
        cache_salt=extra.get("salt"),
        lora=Lora(*extra["lora"]) if "lora" in extra else None,
        mm_items=mm_items(extra.get("mm", []), one_object=one_object),
    )


def as_json(keys: tuple[Any, ...] | None) -> Any:
    return json.loads(json.dumps(keys))


@pytest.mark.parametrize("file", ["hashes", "legacy_022_hashes"])
@pytest.mark.parametrize("name", ["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"])
def test_golden_digests(shared: Path, file: str, name: str) -> None:
    golden = json.loads((shared / "golden" / f"{file}.json").read_text())
    profile = Profile.for_version(golden["vllm_version"])
    algo = algorithm(name)
    for row in golden["none_hash"]:
        if row["algo"] == name:
            assert none_hash(algo, row["pythonhashseed"], profile).hex() == row["hex"], row
    count = 0
    for row in golden["vectors"]:
        if row["algo"] != name:
            continue
        count += 1
        tokens = golden["sequences"][row["sequence"]]
        seed, size = row["pythonhashseed"], row["block_size"]
        if max(tokens) >= 1 << 31:
            # More than a request holds; the hash function itself takes them.
            assert row["extra"] == "none"
            parent = none_hash(algo, seed, profile)
            for index, expected in enumerate(row["hashes"]):
                parent = hash_block_tokens(algo, parent, tokens[index * size : (index + 1) * size])
                assert parent.hex() == expected
            continue
        extra = golden["extras"][row["extra"]]
        one_object = row["extra"] != "mm_same_id_two_objects"
        hasher = BlockHasher(size, name, seed=seed, profile=profile)
        request = golden_request(tokens, extra, one_object=one_object, hasher=hasher)
        assert [block_hash.hex() for block_hash in request.block_hashes] == row["hashes"], row
        if row["extra_keys"] is not None:
            starts = range(0, len(row["hashes"]) * size, size)
            found = [extra_keys(request, start, start + size, profile) for start in starts]
            assert as_json(tuple(found)) == row["extra_keys"], row
    assert count > 20


@pytest.mark.parametrize("name", ["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"])
def test_golden_serialisation(shared: Path, name: str) -> None:
    golden = json.loads((shared / "golden" / "hashes.json").read_text())
    algo = algorithm(name)
    values = (
        (bytes(range(32)), (1, 300, 70000), None),
        (bytes(range(32)), (1, 300, 70000), (("lora", "sql", "/p"), ("cache_salt", "s"))),
    )
    for value, row in zip(values, golden["serialisation"], strict=True):
        assert algo.serialise(value).hex() == row["cbor_hex" if name.endswith("cbor") else "pickle_hex"]
        assert algo(value).hex() == row[name]
    example = golden["group_key_example"]
    assert str(external_block_hash(bytes.fromhex(example["block_hash"]))) == example["external_int"]


@pytest.mark.parametrize(
    ("name", "digests"),
    [
        (
            "sha256",
            (
                "6358e31578a64b75ebe28cdb99d3beae65de82a2087321dc6ec84ae048faaaa6",
                "3c3c50f324aefbdfbb124dfdc541efac3e94e59c40f4be08afe70601eeca92c8",
            ),
        ),
        (
            "sha256_cbor",
            (
                "d830de3d42c00f25a2949b5d12d98642664a44872c1614c5b0147556276afc9c",
                "fedd9e4abebebbe6f6cf96b682f08d316063fe2f22a5c552192dd62904fcccac",
            ),
        ),
    ],
)
def test_digests_of_the_tokens_0_to_39(name: str, digests: tuple[str, ...]) -> None:
    # From vLLM with PYTHONHASHSEED=0; 8 tokens are left over and have no hash.
    request = Request("r", RANGE40, max_tokens=20, hasher=BlockHasher(16, name, seed="0"))
    assert tuple(block_hash.hex() for block_hash in request.block_hashes) == digests


def test_none_hash_is_reproducible_since_0_29() -> None:
    sha256 = algorithm("sha256")
    assert none_hash(sha256).hex() == "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198"
    assert none_hash(sha256, "0").hex() == "1973e23848344dc43a988a9b478663803cfffe1243480253f9a3cf004b14aa7c"
    older = Profile.for_version("0.28.0")
    assert none_hash(sha256, "0", older) == none_hash(sha256, "0")
    assert none_hash(sha256, None, older) != none_hash(sha256, None, older)


def test_none_hash_of_xxhash_is_random() -> None:
    xxhash = algorithm("xxhash")
    assert len(none_hash(xxhash)) == 16
    assert none_hash(xxhash) != none_hash(xxhash)


def test_hashing_goes_on_where_it_stopped() -> None:
    hasher = BlockHasher(4)
    grown = Request("grown", range(6), max_tokens=20, hasher=hasher, cache_salt="s")
    for token in range(6, 17):
        grown.append_output_token(token)
    whole = Request("whole", array("i", range(17)), max_tokens=20, hasher=hasher, cache_salt="s")
    assert grown.block_hashes == whole.block_hashes
    assert len(whole.block_hashes) == 4


def test_extra_keys_by_release() -> None:
    request = Request(
        "r",
        range(32),
        max_tokens=1,
        cache_salt="salt",
        lora=Lora("sql", "/adapters/sql", 7),
        mm_items=[MultiModalItem("second", 20, 4), MultiModalItem("first", 4, 14)],
        prompt_embeds=[bytes([row]) for row in range(32)],
    )
    digest = bytes.fromhex("be45cb2605bf36bebde684841a28f0fd43c69850a3dce5fedba69928ee3a8991")

    def keys(version: str, start: int) -> tuple[Any, ...] | None:
        return extra_keys(request, start, start + 16, Profile.for_version(version))

    assert keys("0.33.0", 0) == (
        ("lora", "sql", "/adapters/sql"),
        ("mm", "first", 4),
        ("cache_salt", "salt"),
        ("prompt_embeds", digest),
    )
    assert (keys("0.33.0", 16) or ())[:3] == (
        ("lora", "sql", "/adapters/sql"),
        ("mm", "first", -12),
        ("mm", "second", 4),
    )
    assert keys("0.22.0", 0) == ("sql", ("first", 4), "salt", digest)
    assert keys("0.18.1", 0) == ("sql", "first", "salt", digest)
    assert keys("0.10.2", 0) == (7, "first", "salt", digest)
    # Events never carry the tags.
    assert event_extra_keys(keys("0.33.0", 0), DEFAULT_PROFILE) == keys("0.22.0", 0)


def test_only_the_first_block_carries_the_salt_and_an_empty_one_is_none() -> None:
    salted = Request("r", range(32), max_tokens=1, cache_salt="s")
    assert extra_keys(salted, 0, 16, DEFAULT_PROFILE) == (("cache_salt", "s"),)
    assert extra_keys(salted, 16, 32, DEFAULT_PROFILE) is None
    empty = Request("r", range(32), max_tokens=1, cache_salt="")
    assert extra_keys(empty, 0, 16, DEFAULT_PROFILE) is None


def test_pickle_tells_one_identifier_from_two_equal_ones() -> None:
    def hashes(name: str, *, one_object: bool) -> list[bytes]:
        items = mm_items([["image", 2, 3], ["image", 6, 4]], one_object=one_object)
        return Request("r", range(16), max_tokens=1, mm_items=items, hasher=BlockHasher(16, name)).block_hashes

    assert hashes("sha256", one_object=True) != hashes("sha256", one_object=False)
    assert hashes("sha256_cbor", one_object=True) == hashes("sha256_cbor", one_object=False)


def test_events_carry_the_low_64_bits() -> None:
    digest = bytes(range(32))
    assert external_block_hash(digest) == int.from_bytes(digest, "big") & ((1 << 64) - 1)
    assert external_block_hash(digest, as_int=False) == digest


def test_what_cannot_be_hashed_is_refused() -> None:
    with pytest.raises(InputError, match="unknown hash algorithm 'md5'"):
        BlockHasher(16, "md5")
    with pytest.raises(InputError, match=r"xxhash_cbor came with vLLM 0\.13"):
        BlockHasher(16, "xxhash_cbor", profile=Profile.for_version("0.12.0"))


def test_xxhash_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "xxhash", None)
    with pytest.raises(InputError, match="pip install xxhash"):
        HashAlgorithm.named("xxhash")


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        # RFC 8949, appendix A.
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (255, "18ff"),
        (256, "190100"),
        (65536, "1a00010000"),
        (1000000000000, "1b000000e8d4a51000"),
        (-1, "20"),
        (-1000, "3903e7"),
        (None, "f6"),
        (b"\x01\x02\x03\x04", "4401020304"),
        ("ü", "62c3bc"),
        ((), "80"),
        ((1, (2, 3), (4, 5)), "8301820203820405"),
        ((1, "a", None), "830161" + "61f6"),
        (tuple(range(1, 26)), "98190102030405060708090a0b0c0d0e0f101112131415161718181819"),
    ],
)
def test_canonical_cbor(value: object, encoded: str) -> None:
    assert CanonicalCbor().dumps(value).hex() == encoded


@pytest.mark.parametrize("value", [1.5, [1], True, (1, 1.5, 2), 1 << 64, {}])
def test_cbor_refuses_the_rest(value: object) -> None:
    with pytest.raises(TypeError):
        CanonicalCbor().dumps(value)


VALUES = st.recursive(
    st.integers(-(1 << 64), (1 << 64) - 1) | st.text() | st.binary() | st.none(), lambda inner: st.tuples(inner, inner)
)


@given(VALUES)
def test_cbor_equals_cbor2(value: object) -> None:
    cbor2 = pytest.importorskip("cbor2")
    assert CanonicalCbor().dumps(value) == cbor2.dumps(value, canonical=True)


@given(st.lists(st.integers(0, (1 << 31) - 1), min_size=16, max_size=16))
def test_sha256_is_the_pickle_of_the_tuple(tokens: list[int]) -> None:
    # Whatever sequence the tokens come in, plain ints in a tuple are hashed.
    sha256 = algorithm("sha256")
    parent = none_hash(sha256)
    expected = sha256.digest(pickle.dumps((parent, tuple(tokens), None), protocol=5))
    assert hash_block_tokens(sha256, parent, array("i", tokens)) == expected
