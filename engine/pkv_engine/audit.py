"""`--check-kv`: every slot of the KV cache remembers what was written there, and every read is held to it.

This knows nothing of hashes, reference counts or queues: it looks at the slots and block tables that the kernels are
given, and compares them with the tokens that the sequence really has.
"""

from __future__ import annotations

import hashlib
from array import array

import numpy as np
import numpy.typing as npt

from pkv_engine.engine import KVCheckError
from pkv_engine.model.batch import Batch
from pkv_sim.exact.request import Request
from pkv_sim.exact.scheduler_output import SchedulerOutput

Record = npt.NDArray[np.void]
RECORD = np.dtype([("token", np.int64), ("position", np.int64), ("prefix", np.uint64)])
NOTHING = np.array((-1, -1, 0), RECORD)


class KVAudit:
    """One record for each slot: the token, its position and a hash of all tokens up to it (with the cache salt)."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._slots = np.full((num_blocks, block_size), NOTHING, RECORD)
        self._histories: dict[str, _History] = {}

    def begin(self, output: SchedulerOutput, batch: Batch) -> None:
        """Records the writes of a step, and checks its reads: in each layer, they come after all its writes.

        Raises KVCheckError.
        """
        for request_id in output.finished:
            self._histories.pop(request_id, None)
        records = [self._history(item.request).records for item in output.scheduled]
        starts = batch.query_start_locs.tolist()
        slots = batch.slot_mapping.numpy()
        flat = self._slots.reshape(-1)
        for item, record, start, end in zip(output.scheduled, records, starts[:-1], starts[1:], strict=True):
            first = item.first_position
            flat[slots[start:end]] = record[first : first + item.num_new_tokens]
        for item, record, table, length in zip(
            output.scheduled, records, batch.block_tables.numpy(), batch.seq_lens.tolist(), strict=True
        ):
            held = self._slots[table].reshape(-1)[:length]
            if not np.array_equal(held, record[:length]):
                position = int(np.flatnonzero(held != record[:length])[0])
                raise KVCheckError(
                    f"request {item.request.request_id} reads position {position} in block "
                    f"{table[position // self._slots.shape[1]]}, which holds {held[position]} "
                    f"instead of {record[position]}"
                )

    def fail(self, batch: Batch) -> None:
        """Forgets the writes of a step that failed: nobody knows how far it came."""
        self._slots.reshape(-1)[batch.slot_mapping.numpy()] = NOTHING

    def _history(self, request: Request) -> _History:
        history = self._histories.get(request.request_id)
        if history is None:
            history = self._histories[request.request_id] = _History(request.cache_salt or "")
        history.extend(request.token_ids)
        return history


class _History:
    """The records that a request's tokens ought to have."""

    def __init__(self, salt: str) -> None:
        self._state = hashlib.blake2b(salt.encode(errors="surrogatepass"), digest_size=8)
        self._rows = np.empty(64, RECORD)
        self._length = 0

    @property
    def records(self) -> Record:
        return self._rows[: self._length]

    def extend(self, token_ids: array[int]) -> None:
        if len(token_ids) > len(self._rows):
            self._rows = np.resize(self._rows, 2 * len(token_ids))
        for position in range(self._length, len(token_ids)):
            token = token_ids[position]
            self._state.update(token.to_bytes(4, "little"))
            self._rows[position] = (token, position, int.from_bytes(self._state.digest(), "little"))
        self._length = len(token_ids)
