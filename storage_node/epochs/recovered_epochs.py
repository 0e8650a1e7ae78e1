"""How the recoveries of one log's epochs ended, packed: a node holds hundreds of thousands of logs, most of them with one such epoch."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from logdevice_py.core.lsn import Epoch
from logdevice_py.core.status import CorruptEntryError
from storage_node.stored_metadata import RECOVERED_EPOCH_SIZE, RecoveredEpoch

_EPOCH: Final = struct.Struct(">I")
_WIDTH: Final = _EPOCH.size + RECOVERED_EPOCH_SIZE


class RecoveredEpochs:
    """The epochs of a log of which it is known, with their encoded `RecoveredEpoch`, ascending."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows = b""

    def __iter__(self) -> Iterator[Epoch]:
        rows = self._rows
        for at in range(0, len(rows), _WIDTH):
            yield Epoch(_EPOCH.unpack_from(rows, at)[0])

    def __len__(self) -> int:
        return len(self._rows) // _WIDTH

    def __contains__(self, epoch: int) -> bool:
        return self._epoch_at(self._place(epoch)) == epoch

    def get(self, epoch: int) -> RecoveredEpoch | None:
        """How the recovery of an epoch ended; None when that is not known here."""
        at = self._place(epoch)
        if self._epoch_at(at) != epoch:
            return None
        return RecoveredEpoch.decode(self._rows[at + _EPOCH.size : at + _WIDTH])

    def between(self, first: int, last: int) -> Iterator[tuple[Epoch, RecoveredEpoch]]:
        """How the recoveries of the epochs from `first` to `last` ended that are known as of now, ascending."""
        rows = self._rows
        for at in range(self._place(first), len(rows), _WIDTH):
            epoch = Epoch(_EPOCH.unpack_from(rows, at)[0])
            if epoch > last:
                return
            yield epoch, RecoveredEpoch.decode(rows[at + _EPOCH.size : at + _WIDTH])

    def put(self, epoch: int, value: bytes) -> None:
        """Note an encoded `RecoveredEpoch`, in place of what was known of the epoch.

        Raises:
            CorruptEntryError: it is none.
        """
        if len(value) != RECOVERED_EPOCH_SIZE:
            raise CorruptEntryError(f"{len(value)} bytes do not say how the recovery of an epoch ended")
        at = self._place(epoch)
        after = at + _WIDTH if self._epoch_at(at) == epoch else at
        self._rows = b"".join((self._rows[:at], _EPOCH.pack(epoch), value, self._rows[after:]))

    def forget_before(self, epoch: int) -> list[Epoch]:
        """Drop what is known of the epochs before; returns them, ascending."""
        at = self._place(epoch)
        dropped = [Epoch(_EPOCH.unpack_from(self._rows, place)[0]) for place in range(0, at, _WIDTH)]
        self._rows = self._rows[at:]
        return dropped

    def _place(self, epoch: int) -> int:
        """Where the first row of that epoch or a later one begins."""
        rows, low, high = self._rows, 0, len(self._rows) // _WIDTH
        while low < high:
            middle = (low + high) // 2
            if _EPOCH.unpack_from(rows, middle * _WIDTH)[0] < epoch:
                low = middle + 1
            else:
                high = middle
        return low * _WIDTH

    def _epoch_at(self, place: int) -> int | None:
        return _EPOCH.unpack_from(self._rows, place)[0] if place < len(self._rows) else None
