"""The free-space guard: refuses entries before the disk is full, and takes them again by itself."""

from __future__ import annotations

from typing import Final

from logdevice_py.core.marks import hit
from storage_node.log_store.interface import Purpose, WriteBatch
from storage_node.log_store.metrics import LogStoreMetrics
from storage_node.log_store.settings import LogStoreSettings

_UNFLUSHED_SHARE_MAX: Final = 15
"""Percent of the file system."""


class SpaceGuard:
    """Hysteresis on the free bytes of the shard's file system.

    What is kept free serves the write-ahead log, compaction, seals and trimming, and half of it what must be stored so that space becomes free:
    without recovery nothing is released, and what is not released is kept. Copies that rebuilding brings must leave more than that, or they
    would use up the room of appends.
    """

    __slots__ = (
        "_free_min",
        "_free_min_share",
        "_rebuilding_percent",
        "_resume_percent",
        "_unflushed_max",
        "exhausted",
        "free",
        "refusing",
        "scarce",
        "total",
    )

    def __init__(
        self,
        *,
        free_min: int,
        free_min_percent: int,
        resume_percent: int,
        rebuilding_percent: int = 100,
        unflushed_max: int = 0,
    ) -> None:
        """
        Args:
            free_min: refuse below this many free bytes,
            free_min_percent: or below this share of the file system, whichever is the smaller demand.
            resume_percent: take entries again at this multiple of the limit below which they are refused, in percent.
            rebuilding_percent: refuse copies that rebuilding brings below this multiple of the limit, in percent.
            unflushed_max: so many bytes may wait in memory and in the write-ahead log to be written to files. Where that is more than the
                limit asks for, twice as much is kept free, though no more than a share of the file system.
        """
        assert resume_percent >= 100, resume_percent
        assert rebuilding_percent >= 100, rebuilding_percent
        self._free_min = free_min
        self._unflushed_max = unflushed_max
        self._free_min_share = free_min_percent
        self._resume_percent = resume_percent
        self._rebuilding_percent = rebuilding_percent
        self.scarce = False
        """Whether copies that rebuilding brings are refused."""
        self.refusing = False
        """Whether entries are; then those are as well."""
        self.exhausted = False
        """Whether essential ones are."""
        self.free = 0
        """As measured last."""
        self.total = 0

    @classmethod
    def of(cls, settings: LogStoreSettings) -> SpaceGuard:
        """As the settings say."""
        return cls(
            free_min=settings.free_space_min,
            free_min_percent=settings.free_space_min_percent,
            resume_percent=settings.free_space_resume_percent,
            rebuilding_percent=settings.free_space_rebuilding_percent,
            unflushed_max=settings.wal_bytes_max,
        )

    def missing(self, percent: int) -> int:
        """How many bytes are missing for that share to be free, as measured last; not above 0: none. 0 percent: nothing is asked for."""
        return self.total * percent // 100 - self.free if percent else 0

    @property
    def _limit(self) -> int:
        if not self._free_min:
            return 0
        unflushed = min(2 * self._unflushed_max, self.total * _UNFLUSHED_SHARE_MAX // 100)
        return max(min(self._free_min, self.total * self._free_min_share // 100), unflushed)

    @property
    def soon(self) -> int:
        """How many bytes may be written before the free space is to be measured again: each is written twice, to the log and to a file."""
        return max(self.free - self._limit, 0) // 4

    @property
    def spare(self) -> int:
        """How many bytes may be stored before copies that rebuilding brings are refused, as measured last."""
        return max(self.free - self._limit * self._rebuilding_percent // 100, 0)

    def update(self, free: int, total: int) -> bool:
        """Take a measurement; returns whether entries are refused from here on."""
        self.free, self.total = free, total
        limit = self._limit
        refusing = self._is_short_of(limit, self.refusing)
        if refusing != self.refusing:
            hit("log_store_no_space" if refusing else "log_store_space_again")
        self.refusing = refusing
        self.scarce = refusing or self._is_short_of(limit * self._rebuilding_percent // 100, self.scarce)
        self.exhausted = free < limit // 2
        return refusing

    def _is_short_of(self, limit: int, before: bool) -> bool:
        return self.free < (limit * self._resume_percent // 100 if before else limit)

    def report(self, metrics: LogStoreMetrics) -> None:
        """Set the gauges."""
        metrics.disk_bytes = self.total
        metrics.available_bytes = self.free
        metrics.no_space = int(self.refusing)
        metrics.no_space_for_rebuilding = int(self.scarce)

    def refuses(self, batch: WriteBatch) -> bool:
        """Whether the batch is refused as measured last."""
        if not batch.entries:
            return False
        if batch.purpose is Purpose.USUAL:
            return self.refusing
        return self.exhausted if batch.purpose is Purpose.ESSENTIAL else self.scarce
