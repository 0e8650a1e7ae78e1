"""How partitions come and go in a database, also across crashes, and what is done with old ones in the background.

The rows of the metadata decide what exists. A partition's family is made before its row is written, and its row says that it is dropped,
durably and together with the trim points that made it superfluous, before its family goes. So after a crash
  - a family without a row holds nothing: the crash came before the row was written, or took it, and with it every entry that followed;
  - a family whose row says that it is dropped is superfluous, whatever it still holds;
  - a row that says so without a family is what is left of a drop, and goes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import rocksdict

from logdevice_py.core.ids import LogId
from logdevice_py.core.marks import hit
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.counting import weigh
from storage_node.log_store.directory import Directory
from storage_node.log_store.partitions import Partitions
from storage_node.log_store.rocksdb.families import BLOBS_MOVED, Families, RocksDBError
from storage_node.log_store.rocksdb.flushing import flush_to_files
from storage_node.log_store.settings import LogStoreSettings

_GAPS_MAX: Final = 10_000
_COMPACT_BYTES_MIN: Final = 1 << 20
_FILE_SIZES: Final = ("rocksdb.total-sst-files-size", "rocksdb.live-blob-file-size")


class Upkeep:
    """Partitions of one database. Calls of the thread that writes, except those of `sync_begins`, `synced` and of a chore."""

    def __init__(
        self,
        families: Families,
        partitions: Partitions,
        directory: Directory,
        settings: LogStoreSettings,
        dropped: Callable[[int], None],
    ) -> None:
        """
        Args:
            dropped: gets each partition whose family is gone.
        """
        self._families = families
        self._partitions = partitions
        self._directory = directory
        self._settings = settings
        self._tell_dropped = dropped
        self._droppable: deque[int] = deque()
        self._condemned = 0
        """How many partitions were dropped in this run: their rows say so."""
        self._durably_condemned = 0
        """How many of those rows a sync covers."""
        self._dropped = 0
        self._drop_again_at = 0.0
        self._closed: deque[int] = deque()
        self._looked_at = 0
        self._chore = threading.Lock()

    # ---- opening

    def repair(self, now: Timestamp) -> None:
        """Bring families and rows together after the directory was restored, and begin the first partition where there is none. What is to be
        written is pending.

        Raises:
            LogDeviceError: FAILED: something is missing, or is there of which the metadata knows nothing.
        """
        families, partitions, directory = self._families, self._partitions, self._directory
        known = sorted(number for number, count in directory.logs.items() if count and number != keys.UNPARTITIONED)
        for number in families.partitions():
            if number in partitions.dropped:
                hit("log_store_drop_finished")
                families.drop(number)
            elif number not in partitions:
                self._repair_unknown(number, number in known, now)
        for number in list(partitions.dropped):
            partitions.forget(number)
        for number in [*(partition.number for partition in partitions), *known]:
            if number not in families or number not in partitions:
                raise LogDeviceError(Status.FAILED, f"partition {number} of the store is missing")
        if not len(partitions):
            self._begin(now)
        directory.latest = partitions.latest.number

    def weigh(self) -> None:
        """As `counting.weigh`, with what closed partitions hold in files beyond that."""
        families, partitions, directory = self._families, self._partitions, self._directory
        weigh(directory, partitions)
        for each in partitions:
            if each is not partitions.latest:
                family = families.reader(each.number)
                dead = max(0, sum(family.property_int_value(name) or 0 for name in _FILE_SIZES) - each.size)
                directory.dead[each.number] = dead
                each.size += dead

    def _repair_unknown(self, number: int, known: bool, now: Timestamp) -> None:
        if known:
            # an earlier version kept no rows on partitions
            self._partitions.adopt(number, now)
            return
        iterator = self._families.reader(number).iter()
        iterator.seek_to_first()
        if iterator.valid():
            # the metadata is not what was written last: nothing is deleted because of it
            raise LogDeviceError(
                Status.FAILED, f"partition {number} of the store holds entries of which the metadata knows nothing"
            )
        iterator.status()
        del iterator
        hit("log_store_begin_undone")
        self._families.drop(number)

    # ---- beginning

    def begin_due(self, now: Timestamp) -> bool:
        """Begin the next partition if it is time; its row is pending."""
        if not self._partitions.is_due(now):
            return False
        self.begin_next(now)
        return True

    def begin_next(self, now: Timestamp) -> None:
        """Begin the next partition at once; its row is pending."""
        self._closed.append(self._partitions.latest.number)
        self._begin(now)

    def _begin(self, now: Timestamp) -> None:
        number = self._partitions.next_number
        self._families.create(number)
        self._partitions.begin(number, now)
        self._directory.latest = number

    # ---- dropping

    def drop(self, numbers: list[int]) -> None:
        """Rows that say that these partitions are dropped were written."""
        self._partitions.drop(numbers)
        for number in numbers:
            self._directory.forget(number)
            self._droppable.append(number)
        self._condemned += len(numbers)

    def sync_begins(self) -> int:
        """A token for `synced`."""
        return self._condemned

    def synced(self, covered: int) -> None:
        """A sync that began at the token is done."""
        self._durably_condemned = covered

    def drop_next(self) -> float | None:
        """Drop a family whose turn has come, if it is durable that it may go. It takes some milliseconds, which are not to add up.

        Returns in how many seconds there is another to drop; None: none is known to wait.
        """
        began = time.monotonic()
        if self._dropped >= self._durably_condemned or began < self._drop_again_at:
            return self._drop_due()
        number = self._droppable.popleft()
        self._families.drop(number)
        self._dropped += 1
        self._partitions.forget(number)
        self._tell_dropped(number)
        ended = time.monotonic()
        self._drop_again_at = ended + (ended - began) * 100 / self._settings.partition_drop_share_percent
        return self._drop_due()

    def _drop_due(self) -> float | None:
        if self._dropped >= self._durably_condemned:
            return None
        return max(0.0, self._drop_again_at - time.monotonic())

    @property
    def bytes_to_drop(self) -> int:
        """About how much space dropped partitions still take."""
        return sum(map(self._families.size_of, self._droppable)) + self._families.bytes_being_deleted

    @property
    def to_drop(self) -> int:
        """How many dropped partitions still take space."""
        return len(self._droppable)

    # ---- chores

    def next_chore(self) -> Callable[[], None] | None:
        """What takes long and is done in another thread: a partition that was closed is written out of memory; one of which much is not needed
        is rewritten without that."""
        while self._closed:
            number = self._closed.popleft()
            if number in self._partitions:
                return partial(self._do, number, self._flush)
        numbers = [each.number for each in self._partitions if each is not self._partitions.latest]
        for number in numbers:
            if number > self._looked_at:
                self._looked_at = number
                if self._is_wasteful(number):
                    self._partitions[number].size -= self._directory.dead.pop(number)
                    # here, and not in the other thread: while a group is under way a row may be missing that is put back, or has moved
                    kept = sorted(self._directory.of(number))
                    if len(kept) <= _GAPS_MAX:
                        return partial(self._do, number, partial(self._rewrite, kept))
        self._looked_at = 0
        return None

    def _is_wasteful(self, number: int) -> bool:
        dead = self._directory.dead[number]
        held = self._partitions[number].size
        return dead >= _COMPACT_BYTES_MIN and dead * 100 >= held * self._settings.partition_compact_percent

    def _do(self, number: int, work: Callable[[int, Any], None]) -> None:
        with self._chore:
            try:
                work(number, self._families.reader(number))
            except KeyError:
                return
            except RocksDBError:
                # it was dropped meanwhile, or the store is closed, or the disk failed, which the next write tells
                hit("log_store_chore_failed")

    def close(self, *, flush: bool) -> None:
        """Close the database; a chore that is under way is broken off, and then nothing is flushed."""
        busy = not self._chore.acquire(blocking=False)
        if busy:
            self._families.interrupt()
            self._chore.acquire()
        try:
            self._families.close(flush=flush and not busy)
        finally:
            self._chore.release()  # one that was to begin finds the database closed

    def _flush(self, number: int, family: Any) -> None:
        flush_to_files(family)

    def _rewrite(self, kept: list[LogId], number: int, family: Any) -> None:
        """Delete what belongs to logs that have no row on the partition, which it never gets back, and rewrite its files.

        Args:
            kept: the logs that have one, ascending; a few more do no harm.
        """
        batch = rocksdict.WriteBatch(raw_mode=True)
        handle = self._families.handles[number]
        begin = 0
        for log in kept:
            if log > begin:
                low, high = keys.log_begin(begin), keys.log_begin(log)
                batch.delete_range(low, high, handle)
                batch.delete_range(keys.body_key(low), keys.body_key(high), handle)
            begin = log + 1
        low = keys.log_begin(begin)
        batch.delete_range(low, keys.LOGS_END, handle)
        batch.delete_range(keys.body_key(low), keys.BODIES_END, handle)
        options = rocksdict.WriteOptions()
        options.no_slowdown = True
        # the family may be dropped at this moment, and naming a dropped one would stop the database
        options.ignore_missing_column_families = True
        self._families.database.write(batch, options)
        # blobs of all files, not only of the oldest: the files of a closed partition are rewritten once
        self._families.set_options(number, {BLOBS_MOVED: "1.0"})
        try:
            family.compact_range(None, None)
        finally:
            # recovery and rebuilding still write to it
            self._families.set_options(number, {BLOBS_MOVED: "0.0"})
        hit("log_store_partition_rewritten")
