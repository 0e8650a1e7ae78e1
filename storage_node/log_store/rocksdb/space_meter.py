"""Measures the free space of a store's file system."""

from __future__ import annotations

import os
from typing import Final

from storage_node.log_store.settings import LogStoreSettings
from storage_node.log_store.space import SpaceGuard

_MEASURE_BYTES_MIN: Final = 64 << 10
"""Free space is not measured more often than that."""


class SpaceMeter:
    """Keeps a `SpaceGuard` informed: the less is free, the fewer bytes may be written until it is measured again."""

    __slots__ = ("_check_bytes", "_directory", "_left", "guard")

    def __init__(self, directory: str, settings: LogStoreSettings) -> None:
        self.guard = SpaceGuard.of(settings)
        self._directory = directory
        self._check_bytes = settings.free_space_check_bytes
        self._left = 0
        """Bytes that may be written before it is measured again."""
        self.measure()

    def measure(self) -> None:
        """Measure the free space."""
        measured = os.statvfs(self._directory)
        self.guard.update(measured.f_bavail * measured.f_frsize, measured.f_blocks * measured.f_frsize)
        self._left = min(self._check_bytes, max(self.guard.soon, _MEASURE_BYTES_MIN))

    def wrote(self, size: int) -> None:
        """So many bytes were written."""
        self._left -= size
        if self._left <= 0:
            self.measure()
