"""What look-ups answer."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from logdevice_py.core.lsn import LSN
from logdevice_py.core.units import Timestamp, utc_datetime


@dataclass(frozen=True, slots=True, repr=False)
class LogHead:
    """Where the readable part of a log begins."""

    trim_point: LSN
    """Everything up to here is trimmed; 0: nothing is. Shards that did not answer may know a greater one."""
    lsn: LSN | None
    """Of the first record that can be read; None: there is none."""
    timestamp: Timestamp | None
    """Of the first record."""

    @property
    def datetime(self) -> dt.datetime | None:
        """The timestamp as a datetime in UTC."""
        return None if self.timestamp is None else utc_datetime(self.timestamp)

    def __repr__(self) -> str:
        return f"LogHead(trim_point={self.trim_point}, lsn={self.lsn}, datetime={self.datetime})"


@dataclass(frozen=True, slots=True)
class TrimPreview:
    """What a trim would take."""

    trim_point: LSN
    """Everything up to here would be trimmed."""
    records: int
    """That can be read now and could not be then."""
    bytes: int
    """Of these records; those that are encrypted count as they are stored."""


@dataclass(frozen=True, slots=True, repr=False)
class LogTail:
    """Where a log ends."""

    lsn: LSN
    """The last LSN that can be read; nothing acknowledged before the question lies above. 0: nothing was ever written."""
    record_lsn: LSN | None
    """Of the last entry with records, trimmed or not; None: there never was one."""
    timestamp: Timestamp | None
    """Of that entry."""

    @property
    def datetime(self) -> dt.datetime | None:
        """The timestamp as a datetime in UTC."""
        return None if self.timestamp is None else utc_datetime(self.timestamp)

    def __repr__(self) -> str:
        return f"LogTail(lsn={self.lsn}, record_lsn={self.record_lsn}, datetime={self.datetime})"
