"""Snapshots that are cut into records: chunks, and behind them a commit record. Only what is whole and matches its checksum is a snapshot.

Which one is believed: docs/protocol.md, section 9. Of those that go as far as the commands are trimmed the earliest counts, as the commands that
are left say the rest. The two that go furthest are kept, with the commands behind the earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import msgpack
from google_crc32c import value as crc32c

from client.replica.applied_state import AppliedState, StateKind, StateMachine
from client.replica.commands import number_field, unique_field, unpack_array
from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError

SNAPSHOT_BYTES_MAX: Final = 64 << 20
CHUNK_OVERHEAD: Final = 64
"""Bytes of a chunk's record besides its own, at most."""
_CHUNKS_MAX: Final = 1 << 20
_OPEN_MAX: Final = 8
"""Snapshots that are put together at a time. More writers than that at a time lose theirs, and write again."""
_CHUNK: Final = 1
_COMMIT: Final = 2

T = TypeVar("T", bound=StateMachine)


def cut_snapshot(data: bytes, unique: bytes, chunk_bytes: int) -> list[bytes]:
    """The records of a snapshot, in the order in which they are to be appended.

    Args:
        unique: nobody else's snapshot has it.
        chunk_bytes: of each record at most.
    """
    size = chunk_bytes - CHUNK_OVERHEAD
    starts = range(0, len(data), size)
    chunks = [msgpack.packb([_CHUNK, unique, index, data[at : at + size]]) for index, at in enumerate(starts)]
    return [*chunks, msgpack.packb([_COMMIT, unique, len(chunks), len(data), crc32c(data)])]


@dataclass(slots=True)
class _Open:
    """A snapshot of which no commit record was seen yet."""

    first: Lsn
    chunks: list[bytes] = field(default_factory=list)
    size: int = 0


@dataclass(frozen=True, slots=True, order=True)
class _Whole:
    """A snapshot that is there with all its records."""

    version: Lsn
    last: Lsn
    first: Lsn
    position: Lsn


class ChunkedSnapshots(Generic[T]):
    """Puts together what stands in a log of snapshots, and chooses. What is none is skipped and counted."""

    def __init__(self, kind: StateKind[T], needed: Lsn) -> None:
        self.needed = needed
        self.skipped = 0
        """Records that belong to no snapshot, and snapshots that are damaged."""
        self._kind = kind
        self._open: dict[bytes, _Open] = {}
        """Those that were added to last come last."""
        self._found: list[_Whole] = []
        self._earliest: AppliedState[T] | None = None
        """Of those that go as far as is needed."""
        self._latest: AppliedState[T] | None = None
        """Of the others."""

    def offer(self, snapshot: bytes, lsn: Lsn) -> None:
        """Look at the next record."""
        try:
            fields = unpack_array(snapshot)
            if fields[0] == _CHUNK:
                self._add(fields, lsn)
            elif fields[0] == _COMMIT:
                self._commit(fields, lsn)
            else:
                raise ValueError("a chunk or a commit record expected")
        except (ValueError, msgpack.UnpackException, CorruptEntryError):
            hit("replica_snapshot_record_is_skipped")
            self.skipped += 1

    def _add(self, fields: list[object], lsn: Lsn) -> None:
        _, unique, index, chunk = fields
        unique, index = unique_field(unique), number_field(index, 0, _CHUNKS_MAX)
        found = self._open.pop(unique, None)
        if found is None:
            found = _Open(lsn)
        if type(chunk) is not bytes or found.size + len(chunk) > SNAPSHOT_BYTES_MAX:
            raise ValueError("a chunk of a snapshot of bounded size expected")
        if index == len(found.chunks):
            found.chunks.append(chunk)
            found.size += len(chunk)
        elif index > len(found.chunks) or found.chunks[index] != chunk:
            hit("replica_chunk_is_missing")
            raise ValueError("a chunk before this one is missing, or was another one")
        self._open[unique] = found
        while len(self._open) > _OPEN_MAX:
            hit("replica_snapshot_is_never_committed")
            del self._open[next(iter(self._open))]

    def _commit(self, fields: list[object], lsn: Lsn) -> None:
        _, unique, count, size, checksum = fields
        found = self._open.pop(unique_field(unique), None)
        if found is None or (len(found.chunks), found.size) != (count, size):
            hit("replica_chunk_is_missing")
            raise ValueError("some of its chunks are missing")
        data = b"".join(found.chunks)
        if crc32c(data) != checksum:
            raise ValueError("the checksum is another one")
        state = AppliedState.decode(data, self._kind)
        self._found.append(_Whole(state.version, lsn, found.first, state.position.lsn))
        if state.version >= self.needed:
            if self._earliest is None or state.version < self._earliest.version:
                self._earliest = state
        elif self._latest is None or state.version > self._latest.version:
            self._latest = state

    def choose(self, tail: Lsn, state: AppliedState[T]) -> AppliedState[T]:
        """The state to go on with; `state`: what is known without snapshots."""
        if state.version >= self.needed:
            return state
        found = self._earliest
        if found is not None and found.position.lsn > tail:
            hit("replica_snapshot_of_the_future")
            found = None
        if found is None:
            found = self._latest  # the other one is not there yet; meanwhile as much as is known
        return state if found is None or found.position <= state.position else found

    def removable(self, tail: Lsn, written: Lsn) -> tuple[Lsn, Lsn]:
        """Up to where commands and snapshots can go: the one that was written at `written` was read back, and it and another one are kept."""
        kept = sorted(each for each in self._found if each.position <= tail)[-2:]
        if len(kept) < 2 or kept[-1].last != written:
            return LSN_INVALID, LSN_INVALID
        return kept[0].version, Lsn(min(each.first for each in kept) - 1)
