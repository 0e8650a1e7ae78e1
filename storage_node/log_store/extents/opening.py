"""Opens the store in extents of a shard's directory."""

from __future__ import annotations

import os
import secrets
from functools import partial
from typing import Final

from logdevice_py.core.status import LogDeviceError, Status
from storage_node.log_store.extents.inspecting import StoreReport, inspect_store
from storage_node.log_store.extents.real_disk import RealDisk
from storage_node.log_store.extents.store import ExtentLogStore
from storage_node.log_store.settings import LogStoreSettings

EXTENTS: Final = "extents"
"""Of the directory within the shard's."""


def holds_extents(directory: str) -> bool:
    """Whether a shard's directory has a store in extents."""
    return os.path.isdir(os.path.join(directory, EXTENTS))


def inspect_directory(directory: str) -> StoreReport:
    """Look at the store in a shard's directory; nothing is changed, not even a lock.

    Raises:
        LogDeviceError: FAILED: there is none.
    """
    if not holds_extents(directory):
        raise LogDeviceError(
            Status.FAILED,
            f"{directory} holds no store in extents (no directory {EXTENTS}): name the directory of a shard, like DATA/n0/shard0",
        )
    return inspect_store(RealDisk(os.path.join(directory, EXTENTS), locked=False))


def open_extents(directory: str, settings: LogStoreSettings, *, boot: str = "") -> ExtentLogStore:
    """Open the store in a shard's directory, creating it where there is none.

    Args:
        boot: boot id of the operating system; empty: unknown.

    Raises:
        LogDeviceError: FAILED: it is damaged, or another process has it open.
    """
    disk = RealDisk(os.path.join(directory, EXTENTS), open_files_max=settings.open_files_max)
    try:
        return ExtentLogStore(disk, settings, boot=boot, where=directory, new_salt=partial(secrets.randbits, 64))
    except BaseException:
        disk.close()
        raise
