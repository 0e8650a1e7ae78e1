"""Opens a store's database, and keeps the notes beside it that say how it may be opened."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from logdevice_py.core.marks import hit
from logdevice_py.core.status import LogDeviceError, Status
from storage_node.log_store.rocksdb.families import DATABASE, Families
from storage_node.log_store.rocksdb.files import fsync_directory, read_text, repair_current, write_text
from storage_node.log_store.rocksdb.wal_check import find_wal_damage
from storage_node.log_store.settings import LogStoreSettings

_FAILED: Final = "failed"
_OPENED: Final = "opened"
"""Holds the boot id of the operating system that the store was last opened under."""


class StoreNotes:
    """The notes in a store's directory."""

    def __init__(self, directory: str) -> None:
        self._failed = os.path.join(directory, _FAILED)
        self._opened = os.path.join(directory, _OPENED)

    @property
    def failed(self) -> bool:
        """Whether the last run noted that a write or sync failed."""
        return os.path.exists(self._failed)

    @property
    def opened_under(self) -> str:
        """The boot id that the store was last opened under; empty: unknown."""
        return read_text(self._opened)

    def note_opened(self, boot: str) -> None:
        """A run begins; what is said of the last one holds no longer."""
        with suppress(FileNotFoundError):
            os.unlink(self._failed)
        write_text(self._opened, boot)

    def note_failed(self, reason: str) -> None:
        """A write or sync failed."""
        # where even this cannot be written, there is nothing left to do
        with suppress(OSError), open(self._failed, "w", encoding="utf-8") as note:
            note.write(reason + "\n")


def open_database(directory: str, settings: LogStoreSettings, notes: StoreNotes, boot: str) -> Families:
    """Open the database in a store's directory, creating both where there are none.

    A write-ahead log that a power cut can have torn is taken up to where it is whole.

    Args:
        boot: boot id of the operating system; empty: unknown.

    Raises:
        LogDeviceError: FAILED, with what RocksDB says: it is damaged, or another process has it open.
    """
    path = os.path.join(directory, DATABASE)
    os.makedirs(path, exist_ok=True)
    fsync_directory(directory)
    fsync_directory(os.path.dirname(os.path.abspath(directory)))
    repair_current(path)
    damage = find_wal_damage(path)
    if damage is not None:
        if boot and notes.opened_under == boot and not notes.failed:
            raise LogDeviceError(
                Status.FAILED,
                f"the write-ahead log of the store in {directory} is damaged: {damage.path} has {damage.reason} at byte "
                f"{damage.at}, and no power cut can have torn it. What was stored last cannot be read; nothing was changed",
            )
        hit("log_store_torn_log")
        Families(path, settings, strict=True).close(flush=True)
    return Families(path, settings)
