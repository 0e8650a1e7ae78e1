"""How much of a raw log is not dealt yet, and since when it waits."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.units import Timestamp

BUCKET_BYTES: Final = 1_000_000
BUCKET_US: Final = 1_000_000


@dataclass(slots=True)
class _Bucket:
    """Neighbours that are counted together."""

    last: int
    records: int
    bytes: int
    since: Timestamp


class Backlog:
    """What was read of a raw log and is not dealt, as far as that is known: up to a megabyte, or what came within a second, counts until all of it is dealt."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self._buckets: deque[_Bucket] = deque()

    @property
    def since(self) -> Timestamp | None:
        """When the oldest of it was sequenced; None: there is none."""
        return self._buckets[0].since if self._buckets else None

    def add(self, lsn: int, size: int, time: Timestamp) -> None:
        """A record was read."""
        self.records += 1
        self.bytes += size
        newest = self._buckets[-1] if self._buckets else None
        if newest is None or newest.bytes >= BUCKET_BYTES or time - newest.since >= BUCKET_US:
            self._buckets.append(_Bucket(lsn, 1, size, time))
        else:
            newest.last = lsn
            newest.records += 1
            newest.bytes += size

    def deal(self, lsn: int) -> None:
        """All up to an LSN is dealt."""
        while self._buckets and self._buckets[0].last <= lsn:
            gone = self._buckets.popleft()
            self.records -= gone.records
            self.bytes -= gone.bytes
