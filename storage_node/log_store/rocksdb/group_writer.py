"""Writes groups to a store's database, each with what is due of the store's directory, partitions and marks, and syncs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import rocksdict

from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.contents import encode_durable
from storage_node.log_store.directory import Directory
from storage_node.log_store.partitions import Partitions
from storage_node.log_store.rocksdb.families import Families, RocksDBError
from storage_node.log_store.rocksdb.opening import StoreNotes
from storage_node.log_store.rocksdb.upkeep import Upkeep

_REFUSED: Final = "Result incomplete"
_ASK_BYTES: Final = 64 << 10


class GroupWriter:
    """Calls of the thread that writes, but for `sync`. What fails once fails for good: the operating system may have dropped what it could not write."""

    __slots__ = (
        "_directory",
        "_durable",
        "_families",
        "_notes",
        "_partitions",
        "_upkeep",
        "_write_options",
        "failed",
        "unasked",
    )

    def __init__(
        self, families: Families, directory: Directory, partitions: Partitions, upkeep: Upkeep, notes: StoreNotes
    ) -> None:
        self.failed = False
        """Whether a write or sync has failed."""
        self._families = families
        self._directory = directory
        self._partitions = partitions
        self._upkeep = upkeep
        self._notes = notes
        self._durable: Timestamp | None = None
        self.unasked = 0
        """Bytes that may be written before RocksDB is asked again whether it delays writes."""
        self._write_options = rocksdict.WriteOptions()
        self._write_options.no_slowdown = True

    @property
    def is_delayed(self) -> bool:
        """Whether RocksDB delays writes, to be asked when `unasked` is used up. Only writing makes it begin to, so it is not asked for each small group; a write that it would
        delay all the same is refused by it (`no_slowdown`)."""
        metadata = self._families.metadata
        if metadata.property_int_value("rocksdb.is-write-stopped") or metadata.property_int_value(
            "rocksdb.actual-delayed-write-rate"
        ):
            return True
        self.unasked = _ASK_BYTES
        return False

    def commit(self, group: Any, *, size: int = 0, must_pass: bool = False) -> Status:
        """Write a group together with what is due. OK, OVERLOADED or FAILED.

        Args:
            size: about how many bytes the group has.
            must_pass: where RocksDB delays writes, wait rather than be refused.
        """
        families, directory, partitions = self._families, self._directory, self._partitions
        metadata = families.metadata_handle
        unused: list[int] = []
        changed = directory.changed or partitions.changed
        if changed:
            unused = directory.unused()
            for pending in (directory.pending(), partitions.pending(), partitions.tombstones(unused)):
                for key, value in pending.items():
                    if value is None:
                        group.delete(key, metadata)
                    else:
                        group.put(key, value, metadata)
        if self._durable is not None:
            group.put(keys.DURABLE_KEY, encode_durable(self._durable), metadata)
        try:
            if must_pass:
                families.database.write(group)
            else:
                families.database.write(group, self._write_options)
        except RocksDBError as error:
            if str(error).startswith(_REFUSED):
                hit("log_store_write_stalled")
                self.unasked = 0
                return Status.OVERLOADED
            self.fail(str(error))
            return Status.FAILED
        if changed:
            directory.saved()
            partitions.saved()
            if unused:
                self._upkeep.drop(unused)
        self._durable = None
        self.unasked -= size
        return Status.OK

    def write_rows(self, rows: Mapping[bytes, bytes]) -> Status:
        """Write rows of the store itself, and nothing that is due, and sync."""
        if self.failed:
            return Status.FAILED
        group = rocksdict.WriteBatch(raw_mode=True)
        for key, value in rows.items():
            group.put(key, value, self._families.metadata_handle)
        try:
            self._families.database.write(group)
        except RocksDBError as error:
            self.fail(str(error))
            return Status.FAILED
        return self.sync()

    def commit_row(self, key: bytes, value: bytes, *, must_pass: bool = False) -> Status:
        """Write a row of the store itself together with what is due."""
        group = rocksdict.WriteBatch(raw_mode=True)
        group.put(key, value, self._families.metadata_handle)
        return self.commit(group, must_pass=must_pass)

    def commit_pending(self, *, must_pass: bool = False) -> Status:
        """Write what is due."""
        return self.commit(rocksdict.WriteBatch(raw_mode=True), must_pass=must_pass)

    def begin_next(self, now: Timestamp) -> None:
        """Begin the next partition."""
        self._upkeep.begin_next(now)
        self.commit_pending()

    def settle(self, partition: int, now: Timestamp) -> None:
        """See to it that a partition is not the latest: it stays as it is from here on, but for what belongs among what it has."""
        if partition == self._partitions.latest.number:
            self.begin_next(now)

    def sync(self) -> Status:
        """Make durable every group whose `commit` returned before the call."""
        if self.failed:
            return Status.FAILED
        covered = self._upkeep.sync_begins()
        try:
            self._families.database.flush_wal(True)
        except RocksDBError as error:
            self.fail(str(error))
        if self.failed:
            return Status.FAILED
        self._upkeep.synced(covered)
        return Status.OK

    def mark_durable(self, until: Timestamp) -> None:
        """Note, with the next group, that a sync covered every write before `until`."""
        self._durable = until

    def fail(self, reason: str) -> None:
        """Write and sync nothing more."""
        self.failed = True
        hit("log_store_failed")
        self._notes.note_failed(reason)
