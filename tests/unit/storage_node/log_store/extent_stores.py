"""Stores in extents, for tests."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from storage_node.log_store.extents.disk import StoreDisk
from storage_node.log_store.extents.real_disk import RealDisk
from storage_node.log_store.extents.simulated_disk import SimulatedDisk
from storage_node.log_store.extents.store import ExtentLogStore
from storage_node.log_store.settings import LogStoreSettings


def salts(seed: int = 1) -> Callable[[], int]:
    """Random numbers that are the same each time."""
    rng = random.Random(seed)
    return lambda: rng.getrandbits(64)


_SALTS = salts()


def open_extents(where: Path | SimulatedDisk, settings: LogStoreSettings, *, boot: str = "boot 1") -> ExtentLogStore:
    """Open a store in a directory, or on a simulated disk."""
    disk: StoreDisk
    if isinstance(where, SimulatedDisk):
        disk = where
    else:
        disk = RealDisk(str(where), open_files_max=settings.open_files_max)
    return ExtentLogStore(disk, settings, boot=boot, where=str(where), new_salt=_SALTS)


def do_chores(store: ExtentLogStore) -> int:
    """All work that is to be done in other threads; returns how much that was."""
    count = 0
    while (chore := store.next_chore()) is not None:
        chore()
        count += 1
    return count
