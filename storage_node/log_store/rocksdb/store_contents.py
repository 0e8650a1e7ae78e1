"""What a store held when it was opened: whose it is, and what the shard has to know before it serves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from logdevice_py.core.marks import hit
from logdevice_py.core.status import LogDeviceError, Status
from storage_node.log_store import keys
from storage_node.log_store.contents import ContentsBuilder
from storage_node.log_store.directory import Directory, DirectoryOrderError
from storage_node.log_store.identity import CorruptMarkerError, PreviousEnd, ShardMarker
from storage_node.log_store.interface import Contents
from storage_node.log_store.partitions import Partitions
from storage_node.log_store.rocksdb.families import Families, RocksDBError
from storage_node.log_store.rocksdb.group_writer import GroupWriter
from storage_node.log_store.rocksdb.ranges import DamagedError, RangeReader
from storage_node.log_store.rocksdb.upkeep import Upkeep
from storage_node.log_store.row_values import UnknownRowError
from storage_node.log_store.store_run import StoreRun


class StoreContents:
    """Reads it from the database. The directory is put right where the last run left it doubtful, and before a clean stop."""

    def __init__(
        self,
        path: str,
        families: Families,
        directory: Directory,
        partitions: Partitions,
        ranges: RangeReader,
        upkeep: Upkeep,
        groups: GroupWriter,
        run: StoreRun,
    ) -> None:
        """
        Args:
            path: of the store, for people.
        """
        self._path = path
        self._families = families
        self._directory = directory
        self._partitions = partitions
        self._ranges = ranges
        self._upkeep = upkeep
        self._groups = groups
        self._run = run

    @contextmanager
    def reading(self) -> Iterator[None]:
        """What cannot be read is FAILED."""
        try:
            yield
        except (RocksDBError, UnknownRowError) as error:
            raise LogDeviceError(Status.FAILED, f"the store in {self._path} cannot be read: {error}") from None

    def marker(self) -> ShardMarker | None:
        """The marker that the last run left; None without one that can be read."""
        with self.reading():
            raw = self._families.metadata.get(keys.MARKER_KEY)
        if raw is None:
            return None
        try:
            return ShardMarker.decode(raw)
        except CorruptMarkerError:
            hit("log_store_corrupt_marker")
            return None

    def is_empty(self) -> bool:
        """Whether the store holds nothing."""
        with self.reading():
            for family in self._families.readers():
                iterator = family.iter()
                iterator.seek_to_first()
                if iterator.valid():
                    return False
                iterator.status()
        return True

    def load(self) -> Contents:
        """As `LogStore.load`."""
        builder = ContentsBuilder(self._run.contents())
        with self.reading():
            iterator = self._families.metadata.iter()
            iterator.seek_to_first()
            while iterator.valid():
                builder.add(iterator.key(), iterator.value())
                iterator.next()
            iterator.status()
            try:
                for log, rows in builder.directory.items():
                    self._directory.restore(log, rows)
            except DirectoryOrderError as error:
                raise LogDeviceError(Status.FAILED, f"the directory of {self._path} is damaged: {error}") from None
            for number, row in builder.partitions:
                self._partitions.restore(number, row)
            self._upkeep.repair(self._run.began_at)
            if self._run.stop is not PreviousEnd.CLEAN:
                # a guess that is too low could take acknowledged entries for never written: damage here is an error
                for log, held in list(self._directory.rows()):
                    counted = held.highest
                    self._directory.look_up(log, self._ranges.find_highest)
                    self._directory.count_above(log, counted, self._ranges.bytes_in)
            self._upkeep.weigh()
            if self._groups.commit_pending(must_pass=True) is not Status.OK:
                raise LogDeviceError(Status.FAILED, f"the store in {self._path} cannot be written")
        builder.contents.highest = [(log, row.highest) for log, row in self._directory.rows()]
        return builder.contents

    def save_directory(self) -> None:
        """Put right and save every row of the directory, with the next write."""
        for log, row in list(self._directory.rows()):
            if row.doubtful:
                with suppress(DamagedError):
                    self._directory.look_up(log, self._ranges.find_highest)
        self._directory.save_all()
