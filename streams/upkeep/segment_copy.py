"""The committed cold copy of a segment: the descriptor, and what the segment was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from client.replica.commands import number_field
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import Timestamp
from streams.cold.copies import ColdCopy

_INT64: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class SegmentCopy:
    """One committed copy. It ends with a segment, and begins behind the copy before, or behind what was trimmed without one."""

    copy: ColdCopy
    completed: Timestamp
    """When it was decided what the segment holds: `cold_ttl` counts from here."""
    began: Timestamp | None = None
    """Of its first record; None, as in the following: not known."""
    ended: Timestamp | None = None
    """Of its last record."""
    first_txid: int | None = None
    last_txid: int | None = None

    @property
    def number(self) -> int:
        """Of the segment."""
        return self.copy.last.epoch

    def row(self) -> list[Any]:
        """For commands and snapshots."""
        return [self.copy.as_json(), self.completed, self.began, self.ended, self.first_txid, self.last_txid]

    @classmethod
    def from_row(cls, row: Any) -> SegmentCopy:
        """From `row`; ValueError for anything else."""
        described, completed, *rest = row
        began, ended, first, last = (None if each is None else number_field(each, -_INT64, _INT64 - 1) for each in rest)
        try:
            copy = ColdCopy.from_json(described)
        except LogDeviceError as error:
            raise ValueError(error.detail) from None
        return cls(
            copy,
            Timestamp(number_field(completed, -_INT64, _INT64 - 1)),
            None if began is None else Timestamp(began),
            None if ended is None else Timestamp(ended),
            first,
            last,
        )
