"""What an epoch holds: counted by its sequencer entry by entry, summed up by the recovery that ends it."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from logdevice_py.core.lsn import EPOCH_INVALID, ESN_INVALID, Epoch, Esn
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Timestamp

_NO_TIME: Final = Timestamp(0)
_COUNTS: Final = struct.Struct(">QQqQQQQ")
_SUMMARY: Final = struct.Struct(">BIIIIIQQqqqQQ")
_ROW: Final = struct.Struct(">I")
SUMMARY_SIZE: Final = _SUMMARY.size
SUMMARY_ROW_SIZE: Final = _ROW.size + SUMMARY_SIZE
"""Bytes of an epoch's number and its summary."""


class EpochCounts(NamedTuple):
    """What an entry says of its epoch up to and with itself.

    It counts what got an LSN before it, and recovery may make holes of that: it is exact where everything up to the entry is replicated.
    """

    records: int = 0
    size: int = 0
    """Bytes of bodies as they are stored, one copy each."""
    begin: Timestamp = _NO_TIME
    """Of the epoch's first entry."""
    first_transaction: int = 0
    """The first transaction id of the epoch; 0: none."""
    last_transaction: int = 0
    own_first_transaction: int = 0
    """Of the entry itself."""
    own_last_transaction: int = 0

    def with_entry(
        self, records: int, size: int, timestamp: Timestamp, first_transaction: int, last_transaction: int
    ) -> EpochCounts:
        """Those that the next entry carries."""
        return EpochCounts(
            self.records + records,
            self.size + size,
            self.begin or timestamp,
            self.first_transaction or first_transaction,
            last_transaction or self.last_transaction,
            first_transaction,
            last_transaction,
        )

    def encode(self) -> bytes:
        """As entries carry them."""
        return _COUNTS.pack(*self)

    @classmethod
    def decode(cls, encoded: bytes) -> EpochCounts:
        """From `encode`; more may follow.

        Raises:
            CorruptEntryError: they are cut off.
        """
        if len(encoded) < _COUNTS.size:
            raise CorruptEntryError(f"{len(encoded)} bytes do not say what an epoch has up to an entry")
        return cls._make(_COUNTS.unpack_from(encoded))


class SummaryFlags(enum.IntFlag):
    """Flags of a summary. Values are on disk and on the wire: never reused."""

    NONE = 0
    COUNTED = 1  # records, bytes, first timestamp and transaction ids are known
    AUTHORITATIVE = 2  # enough shards were there to know everything
    LISTED = 4  # the epoch's first and last ESN and its number of entries are known


_COUNTED: Final = int(SummaryFlags.COUNTED)
_AUTHORITATIVE: Final = int(SummaryFlags.AUTHORITATIVE)
"""Numbers: a flag of an enumeration takes a microsecond to compare."""


class EpochSummary(NamedTuple):
    """What a recovered epoch holds, and how its recovery ended."""

    flags: int
    seal_epoch: Epoch = EPOCH_INVALID
    """Of the recovery: what a later one says counts."""
    first: Esn = ESN_INVALID
    """0: not known, or the epoch holds nothing."""
    last: Esn = ESN_INVALID
    """The last entry; 0: the epoch holds nothing."""
    entries: int = 0
    lost: int = 0
    """ESNs of which nothing was readable when it was recovered."""
    records: int = 0
    size: int = 0
    """Bytes of bodies as they are stored, one copy each."""
    first_timestamp: Timestamp = _NO_TIME
    last_timestamp: Timestamp = _NO_TIME
    completed: Timestamp = _NO_TIME
    """When recovery decided it, by the wall clock of the sequencer's node; 0: not known."""
    first_transaction: int = 0
    """0: there is none."""
    last_transaction: int = 0

    @property
    def counted(self) -> bool:
        """Records, bytes, first timestamp and transaction ids are known."""
        return bool(self.flags & _COUNTED)

    @property
    def authoritative(self) -> bool:
        """Enough shards were there to know everything."""
        return bool(self.flags & _AUTHORITATIVE)

    def encode(self) -> bytes:
        """As bridges, messages and shards have it."""
        return _SUMMARY.pack(*self)

    @classmethod
    def decode(cls, encoded: bytes) -> EpochSummary:
        """From `encode`; more may follow.

        Raises:
            CorruptEntryError: it is cut off.
        """
        if len(encoded) < SUMMARY_SIZE:
            raise CorruptEntryError(f"{len(encoded)} bytes do not say what an epoch holds")
        return cls._make(_SUMMARY.unpack_from(encoded))


def encode_rows(rows: Iterable[tuple[Epoch, bytes]]) -> bytes:
    """Epochs, ascending, each with its encoded summary."""
    return b"".join([_ROW.pack(epoch) + summary for epoch, summary in rows])


def decode_rows(encoded: bytes) -> Iterator[tuple[Epoch, EpochSummary]]:
    """From `encode_rows`.

    Raises:
        CorruptEntryError: the bytes are no rows.
    """
    if len(encoded) % SUMMARY_ROW_SIZE:
        raise CorruptEntryError(f"{len(encoded)} bytes are no rows of {SUMMARY_ROW_SIZE}")
    make = EpochSummary._make
    for row in _SUMMARY_ROWS.iter_unpack(encoded):
        yield Epoch(row[0]), make(row[1:])


_SUMMARY_ROWS: Final = struct.Struct(">I" + _SUMMARY.format.removeprefix(">"))
