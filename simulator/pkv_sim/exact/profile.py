"""What differs between vLLM releases, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pkv_lint.prompt.errors import InputError

Version = tuple[int, int, int]

OLDEST: Version = (0, 10, 2)
NEWEST: Version = (0, 33, 0)


@dataclass(frozen=True, slots=True)
class Profile:
    """The rules of one vLLM release, where releases disagree.

    Hashing: `lora_key` and `mm_key` say what of an adapter and of a multimodal item goes into a block's extra keys,
    `tagged_keys` whether every extra key carries its source's name; `fixed_none_hash_seed` whether the parent of first
    blocks is reproducible when PYTHONHASHSEED is unset; `xxhash` whether the xxhash algorithms exist.
    Eviction: `unhashed_first` puts freed blocks without a hash at the front of the free queue.
    Admission: `watermark` whether that option exists, `reserve_full_isl` the default of `scheduler_reserve_full_isl`,
    `long_prefill_alone` whether a request that is alone ignores `long_prefill_token_threshold`.
    Preemption: `stale_outputs` whether outputs in flight are tracked apart from a preempted request's counters; where
    they are not, asynchronous scheduling is not modelled.
    Reports: `stats_at_admission` counts a lookup only when the request is admitted, `preempted_stats_apart` counts
    re-admissions after a preemption apart, `cached_tokens_rewritten` lets a re-admission before the first output token
    overwrite the reported `cached_tokens`.
    """

    version: Version
    lora_key: Literal["int_id", "name", "name_and_path"]
    mm_key: Literal["identifier", "identifier_and_offset"]
    tagged_keys: bool
    fixed_none_hash_seed: bool
    xxhash: bool
    unhashed_first: bool
    watermark: bool
    reserve_full_isl: bool
    long_prefill_alone: bool
    stale_outputs: bool
    stats_at_admission: bool
    preempted_stats_apart: bool
    cached_tokens_rewritten: bool

    @classmethod
    def for_version(cls, version: str) -> Profile:
        """The profile of a release such as `0.33.0` or `0.24`.

        Raises InputError for text that is no version and for releases that are not modelled: before 0.10.2 block hashes
        came from Python's own `hash()`, and what is newer than the newest known release cannot be promised.
        """
        found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version.strip())
        if found is None:
            raise InputError(f"{version!r} is not a vLLM version such as 0.33.0")
        number: Version = (int(found[1]), int(found[2]), int(found[3] or 0))
        if number < OLDEST or number[:2] > NEWEST[:2]:
            raise InputError(f"vLLM {version.strip()} is not modelled: known are 0.10.2 to 0.33")
        return _profile(number)


def _profile(version: Version) -> Profile:
    tagged = version >= (0, 31, 0)
    return Profile(
        version=version,
        lora_key="name_and_path" if tagged else "name" if version >= (0, 11, 0) else "int_id",
        mm_key="identifier_and_offset" if version >= (0, 19, 0) else "identifier",
        tagged_keys=tagged,
        fixed_none_hash_seed=version >= (0, 29, 0),
        xxhash=version >= (0, 13, 0),
        unhashed_first=version >= (0, 24, 0),
        watermark=version >= (0, 24, 0),
        reserve_full_isl=version >= (0, 19, 1),
        long_prefill_alone=version >= (0, 31, 0),
        stale_outputs=version >= (0, 27, 0),
        stats_at_admission=version >= (0, 27, 0),
        preempted_stats_apart=version >= (0, 11, 2),
        cached_tokens_rewritten=(0, 20, 0) <= version < (0, 26, 0),
    )


DEFAULT_PROFILE = _profile(NEWEST)
