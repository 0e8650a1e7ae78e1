"""How the recoveries of one log's epochs ended, packed: a node holds hundreds of thousands of logs, most of them with one such epoch."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from logdevice_py.core.epoch_summary import SUMMARY_SIZE, EpochSummary, SummaryFlags
from logdevice_py.core.lsn import Epoch, Esn, epoch_of, esn_of
from storage_node.stored_metadata import RECOVERED_EPOCH_SIZE, RecoveredEpoch

_EPOCH: Final = struct.Struct(">I")


class _Rows:
    """Values of one size by epoch, ascending, in one bytes object."""

    __slots__ = ("_rows", "_width")

    def __init__(self, size: int) -> None:
        self._width = _EPOCH.size + size
        self._rows = b""

    def __len__(self) -> int:
        return len(self._rows) // self._width

    def between(self, first: int, last: int) -> Iterator[tuple[Epoch, bytes]]:
        """The rows from `first` to `last` as of now."""
        rows, width = self._rows, self._width
        for at in range(self._place(first), len(rows), width):
            epoch = Epoch(_EPOCH.unpack_from(rows, at)[0])
            if epoch > last:
                return
            yield epoch, rows[at + _EPOCH.size : at + width]

    def get(self, epoch: int) -> bytes | None:
        """The value of an epoch."""
        at = self._place(epoch)
        return self._rows[at + _EPOCH.size : at + self._width] if self._epoch_at(at) == epoch else None

    def put(self, epoch: int, value: bytes) -> None:
        """Set the value of an epoch; empty: it has none."""
        at = self._place(epoch)
        after = at + self._width if self._epoch_at(at) == epoch else at
        row = _EPOCH.pack(epoch) + value if value else b""
        self._rows = b"".join((self._rows[:at], row, self._rows[after:]))

    def forget_before(self, epoch: int) -> list[Epoch]:
        """Drop the rows of the epochs before; returns them, ascending."""
        at = self._place(epoch)
        dropped = [Epoch(_EPOCH.unpack_from(self._rows, place)[0]) for place in range(0, at, self._width)]
        self._rows = self._rows[at:]
        return dropped

    def _place(self, epoch: int) -> int:
        """Where the first row of that epoch or a later one begins."""
        rows, width, low, high = self._rows, self._width, 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if _EPOCH.unpack_from(rows, middle * width)[0] < epoch:
                low = middle + 1
            else:
                high = middle
        return low * width

    def _epoch_at(self, place: int) -> int | None:
        return _EPOCH.unpack_from(self._rows, place)[0] if place < len(self._rows) else None


class RecoveredEpochs:
    """The epochs of a log of which it is known, with their encoded `RecoveredEpoch`, ascending."""

    __slots__ = ("_ends", "_summaries")

    def __init__(self) -> None:
        self._ends = _Rows(RECOVERED_EPOCH_SIZE)
        self._summaries: _Rows | None = None
        """None: no epoch is counted."""

    def __iter__(self) -> Iterator[Epoch]:
        return (epoch for epoch, _ in self._ends.between(0, 1 << 32))

    def __len__(self) -> int:
        return len(self._ends)

    def __contains__(self, epoch: int) -> bool:
        return self._ends.get(epoch) is not None

    def get(self, epoch: int) -> RecoveredEpoch | None:
        """How the recovery of an epoch ended; None when that is not known here."""
        end = self._ends.get(epoch)
        if end is None:
            return None
        summary = None if self._summaries is None else self._summaries.get(epoch)
        return RecoveredEpoch.decode(end + (summary or b""))

    def between(self, first: int, last: int) -> Iterator[tuple[Epoch, RecoveredEpoch]]:
        """How the recoveries of the epochs from `first` to `last` ended that are known as of now, ascending."""
        for epoch, end, summary in self._with_summaries(first, last):
            yield epoch, RecoveredEpoch.decode(end + summary)

    def summaries(self, first: int, last: int) -> Iterator[tuple[Epoch, bytes]]:
        """The encoded `EpochSummary` of each epoch from `first` to `last` that is known, ascending; of one that is not counted it says where it ends."""
        for epoch, end, summary in self._with_summaries(first, last):
            yield epoch, summary or _summary(epoch, RecoveredEpoch.decode(end)).encode()

    def _with_summaries(self, first: int, last: int) -> Iterator[tuple[Epoch, bytes, bytes]]:
        summaries = iter(()) if self._summaries is None else self._summaries.between(first, last)
        counted, summary = next(summaries, _NONE)
        for epoch, end in self._ends.between(first, last):
            if counted == epoch:
                yield epoch, end, summary
                counted, summary = next(summaries, _NONE)
            else:
                yield epoch, end, b""

    def put(self, epoch: int, value: bytes) -> None:
        """Note an encoded `RecoveredEpoch`, in place of what was known of the epoch.

        Raises:
            CorruptEntryError: it is none.
        """
        RecoveredEpoch.decode(value)
        self._ends.put(epoch, value[:RECOVERED_EPOCH_SIZE])
        summary = value[RECOVERED_EPOCH_SIZE:]
        if summary and self._summaries is None:
            self._summaries = _Rows(SUMMARY_SIZE)
        if self._summaries is not None:
            self._summaries.put(epoch, summary)

    def forget_before(self, epoch: int) -> list[Epoch]:
        """Drop what is known of the epochs before; returns them, ascending."""
        if self._summaries is not None:
            self._summaries.forget_before(epoch)
        return self._ends.forget_before(epoch)


_NONE: Final = (Epoch(0), b"")


def _summary(epoch: Epoch, end: RecoveredEpoch) -> EpochSummary:
    """What is known of an epoch whose entries are not counted."""
    holds = epoch_of(end.tail_lsn) == epoch
    return EpochSummary(
        int(SummaryFlags.AUTHORITATIVE if end.authoritative else SummaryFlags.NONE),
        end.seal_epoch,
        last=esn_of(end.tail_lsn) if holds else Esn(0),
        last_timestamp=end.tail_timestamp,
    )
