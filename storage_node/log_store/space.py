"""The free-space guard: refuses entries before the disk is full, and takes them again by itself."""

from __future__ import annotations

from logdevice_py.core.marks import hit
from storage_node.log_store.settings import LogStoreSettings


class SpaceGuard:
    """Hysteresis on the free bytes of the shard's file system.

    What is kept free serves the write-ahead log, compaction, seals and trimming.
    """

    __slots__ = ("_free_min", "_free_min_share", "_resume_percent", "free", "refusing", "total")

    def __init__(self, *, free_min: int, free_min_percent: int, resume_percent: int) -> None:
        """
        Args:
            free_min: refuse below this many free bytes,
            free_min_percent: or below this share of the file system, whichever is the smaller demand.
            resume_percent: take entries again at this multiple of the limit, in percent.
        """
        assert resume_percent >= 100, resume_percent
        self._free_min = free_min
        self._free_min_share = free_min_percent
        self._resume_percent = resume_percent
        self.refusing = False
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
        )

    def missing(self, percent: int) -> int:
        """How many bytes are missing for that share to be free, as measured last; not above 0: none. 0 percent: nothing is asked for."""
        return self.total * percent // 100 - self.free if percent else 0

    def update(self, free: int, total: int) -> bool:
        """Take a measurement; returns whether entries are refused from here on."""
        self.free, self.total = free, total
        limit = min(self._free_min, total * self._free_min_share // 100)
        if self.refusing:
            limit = limit * self._resume_percent // 100
        refusing = free < limit
        if refusing != self.refusing:
            hit("log_store_no_space" if refusing else "log_store_space_again")
        self.refusing = refusing
        return refusing
