"""Block hashes, bit-equal to vLLM's (`utils/hashing.py`, `v1/core/kv_cache_utils.py`).

A block's hash is H((parent, tokens, extra_keys)): the parent's digest, or NONE_HASH for a first block; a tuple of
exactly block-size plain ints; None or the tuple of extra keys. One digest therefore names a whole prefix.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pkv_lint.prompt.errors import InputError
from pkv_sim.exact.cbor import CanonicalCbor
from pkv_sim.exact.extra_keys import ExtraKeys, extra_keys
from pkv_sim.exact.profile import DEFAULT_PROFILE, Profile
from pkv_sim.exact.request import Request

HASH_ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")

# kv_cache_utils.DEFAULT_NONE_HASH_SEED
DEFAULT_NONE_HASH_SEED = "vllm-none-hash"


@dataclass(frozen=True, slots=True)
class HashAlgorithm:
    """One of vLLM's `--prefix-caching-hash-algo`: a serialisation of the block and a digest over it.

    `collision_resistant` algorithms may have a public NONE_HASH seed.
    """

    name: str
    serialise: Callable[[object], bytes]
    digest: Callable[[bytes], bytes]
    collision_resistant: bool

    def __call__(self, value: object) -> bytes:
        """The raw digest of a value: 32 bytes (sha256…) or 16 bytes (xxhash…)."""
        return self.digest(self.serialise(value))

    @classmethod
    def named(cls, name: str) -> HashAlgorithm:
        """The algorithm of that name. Raises InputError for an unknown name and when xxhash is not installed."""
        if name not in HASH_ALGORITHMS:
            raise InputError(f"unknown hash algorithm {name!r}: known are {', '.join(HASH_ALGORITHMS)}")
        strong = name.startswith("sha256")
        return cls(
            name=name,
            serialise=CanonicalCbor().dumps if name.endswith("_cbor") else _pickle,
            digest=_sha256 if strong else _xxh3_128(),
            collision_resistant=strong,
        )


def _pickle(value: object) -> bytes:
    # vLLM asks for HIGHEST_PROTOCOL, which is 5 in every Python it runs on. The pickler writes an object that it has
    # seen before as a reference, so equal extra keys may serialise differently; nothing but the real pickler gets
    # that right.
    return pickle.dumps(value, protocol=5)


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _xxh3_128() -> Callable[[bytes], bytes]:
    try:
        import xxhash
    except ImportError:
        raise InputError("the xxhash algorithms need the package xxhash: pip install xxhash (or use sha256)") from None
    digest: Callable[[bytes], bytes] = xxhash.xxh3_128_digest
    return digest


def none_hash(algorithm: HashAlgorithm, seed: str | None = None, profile: Profile = DEFAULT_PROFILE) -> bytes:
    """The parent of first blocks. `seed` is the server's PYTHONHASHSEED, None when the variable is unset.

    Without a seed it is random where it is in vLLM: for all algorithms before 0.29, for the xxhash ones since.
    """
    if seed is not None:
        return algorithm(seed)
    if not profile.fixed_none_hash_seed:
        return os.urandom(32)
    return algorithm(DEFAULT_NONE_HASH_SEED if algorithm.collision_resistant else os.urandom(32).hex())


def hash_block_tokens(
    algorithm: HashAlgorithm, parent: bytes, token_ids: Sequence[int], extra: ExtraKeys | None = None
) -> bytes:
    """The hash of one full block: `parent` is the digest of the block before it, or `none_hash(…)`."""
    return algorithm((parent, tuple(token_ids), extra))


class BlockHasher:
    """Gives a request the hashes of its full blocks, each computed once (vLLM: `get_request_block_hasher`)."""

    def __init__(
        self,
        block_size: int,
        algorithm: str = "sha256",
        *,
        seed: str | None = None,
        profile: Profile = DEFAULT_PROFILE,
    ) -> None:
        """`block_size` is in tokens, `algorithm` one of HASH_ALGORITHMS, `seed` as for `none_hash`.

        Raises InputError for an algorithm that is unknown, not installed or not in that vLLM release.
        """
        if algorithm.startswith("xxhash") and not profile.xxhash:
            raise InputError(f"the hash algorithm {algorithm} came with vLLM 0.13")
        self.block_size = block_size
        self.algorithm = HashAlgorithm.named(algorithm)
        self.profile = profile
        self.none_hash = none_hash(self.algorithm, seed, profile)

    def extend(self, request: Request) -> None:
        """Appends the hashes of the blocks that became full since the last call to `request.block_hashes`."""
        size = self.block_size
        tokens = request.token_ids
        hashes = request.block_hashes
        start = len(hashes) * size
        if start + size > len(tokens):
            return
        serialise, digest = self.algorithm.serialise, self.algorithm.digest
        parent = hashes[-1] if hashes else self.none_hash
        plain = not request.has_extra_keys
        for first in range(start, len(tokens) - size + 1, size):
            end = first + size
            extra = None if plain else extra_keys(request, first, end, self.profile)
            parent = digest(serialise((parent, tuple(tokens[first:end]), extra)))
            hashes.append(parent)
