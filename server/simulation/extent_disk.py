"""A simulated shard's disk that holds a store in extents: the files, and the rows that the other simulated disk would show.

The store is the one of production. What is added here looks on: it keeps `rows` as `MemoryDisk` has them, so that faults and checks find copies on
either kind of disk, and makes copies unreadable one by one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from sortedcontainers import SortedDict

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.machine import Rng
from logdevice_py.core.status import LogDeviceError, Status
from storage_node.log_store import keys
from storage_node.log_store.extents.block_format import Changes
from storage_node.log_store.extents.disk import DiskError, ReadMode
from storage_node.log_store.extents.group import BlockGroup
from storage_node.log_store.extents.held_extents import FAILED
from storage_node.log_store.extents.reading import Images
from storage_node.log_store.extents.rows import CopyRow, lsn_of, rank_of
from storage_node.log_store.extents.simulated_disk import SimulatedDisk, by_chance
from storage_node.log_store.extents.store import ExtentLogStore
from storage_node.log_store.interface import WriteBatch
from storage_node.log_store.memory_disk import MemoryDisk
from storage_node.log_store.settings import LogStoreSettings

_CATALOG: Final = b"\x00extent"


class ExtentDisk(MemoryDisk):
    """What a `SimExtentStore` writes to. It outlives the store."""

    def __init__(self, fired: Counter[str] | None = None, *, total: int = 1 << 40) -> None:
        """As of `MemoryDisk`."""
        self.files = SimulatedDisk(fired, total=total)
        self.files.forgets = True
        self.store: SimExtentStore | None = None
        """The last one that was opened on what is there now."""
        super().__init__(self.files.fired, total=total)

    # ---- what faults set is what the files do

    @property
    def fail_write(self) -> bool:
        """As of `MemoryDisk`."""
        return self.files.fail_write

    @fail_write.setter
    def fail_write(self, fails: bool) -> None:
        self.files.fail_write = fails

    @property
    def fail_sync(self) -> bool:
        """As of `MemoryDisk`."""
        return self.files.fail_sync

    @fail_sync.setter
    def fail_sync(self, fails: bool) -> None:
        self.files.fail_sync = fails

    @property
    def lying(self) -> bool:
        """As of `MemoryDisk`."""
        return self.files.lying

    @lying.setter
    def lying(self, lies: bool) -> None:
        self.files.lying = lies

    @property
    def taken(self) -> int:
        """As of `MemoryDisk`."""
        return self.files.taken

    @taken.setter
    def taken(self, taken: int) -> None:
        self.files.taken = taken

    @property
    def used(self) -> int:
        """As of `MemoryDisk`."""
        return self.files.used

    @used.setter
    def used(self, used: int) -> None: ...

    @property
    def failed_note(self) -> bool:
        """As of `MemoryDisk`."""
        return FAILED in self.files.names()

    @failed_note.setter
    def failed_note(self, noted: bool) -> None:
        assert not noted, "the store notes it"

    # ---- what happens to it

    def power_cut(self, rng: Rng) -> None:
        """As of `MemoryDisk`; of what is not durable any sector may be there or not."""
        claimed, lied = self._claimed_entries(), self.files.lied
        share = (0.0, 0.3, 0.9, 1.0)[int(rng.random() * 4)]
        # many questions are asked, which are not to move the randomness of the run
        self.files.power_cut(by_chance(random.Random(int(rng.random() * (1 << 53))), share))
        self.boot += "'"
        self._look_again()
        if lied:
            self.destroyed.update(claimed.difference(self.entries()))

    def drop_failed(self, rng: Rng) -> None:
        """As of `MemoryDisk`."""
        chance = random.Random(int(rng.random() * (1 << 53)))
        for inode in self.files._files.values():
            inode.power_cut(lambda: chance.random() < 0.5)
        self._look_again()

    def crash(self, surviving: int = 0) -> None:
        """Power cut: nothing remains that is not durable."""
        assert not surviving, "blocks survive by sectors here"
        self.files.power_cut(lambda: False)
        self.boot += "'"
        self._look_again()

    def snapshot(self) -> dict[Any, bytes]:
        """As of `MemoryDisk`."""
        return dict(self.files.snapshot())

    def replace(self, rows: Any, *, own: bool = True) -> None:
        """As of `MemoryDisk`; `rows` are files."""
        before = set(self.entries()) if own else set()
        self.files.replace(dict(rows))
        self.unreadable.clear()
        self.flipped.clear()
        self._look_again()
        self.destroyed.update(before.difference(self.entries()))

    def flip(self, key: bytes, bit: int) -> None:
        """As of `MemoryDisk`; never of what a block says of its copies."""
        row = self._row_of(key)
        if row is None or not row.extent:
            return
        at = (bit >> 3) % row.length
        if row.header is not None:
            # the header is read elsewhere
            at = len(row.header) + at % max(1, row.length - len(row.header))
        store = self._looked()
        assert store is not None
        self.files.flip(store.file_of(row.extent), row.offset + at, bit & 7)
        self.flipped.add(key)
        self.destroyed.add((int.from_bytes(key[1:9], "big"), int.from_bytes(key[9:17], "big")))
        shown = keys.body_key(key) if row.header is not None else key
        if shown in self.rows:
            image = bytearray(self.rows[shown])
            image[at] ^= 1 << (bit & 7)
            self.rows[shown] = bytes(image)

    def may_forget(self, log: int, lsn: int) -> bool:
        """As of `MemoryDisk`."""
        return self.store is not None and self.store.may_forget(log, lsn)

    def remove(self, log: int, lsn: int) -> None:
        """As of `MemoryDisk`; the directory does not hear of it."""
        store = self.store
        assert store is not None, "copies vanish beneath a shard that runs"
        store.lose(LogId(log), Lsn(lsn))

    # ---- looking

    def _claimed_entries(self) -> set[tuple[int, int]]:
        """(log, lsn) of what a sync said was durable."""
        return set() if self.store is None else {each for each in self.entries() if not self.may_forget(*each)}

    def _look_again(self) -> None:
        self.store = None
        self.rows.clear()
        store = self._looked()
        if store is not None:
            self.rows.update(store.all_rows())

    def _looked(self) -> SimExtentStore | None:
        """A store that may be asked what is there; None where it cannot be opened."""
        if self.store is None:
            try:
                self.store = SimExtentStore(self, LogStoreSettings(), looks=True)
            except LogDeviceError:
                return None
        return self.store

    def _row_of(self, key: bytes) -> CopyRow | None:
        store = self._looked()
        if store is None:
            return None
        lsn, rank = keys.split_data_key(key)
        for held, row in store.rows_at(LogId(int.from_bytes(key[1:9], "big")), lsn):
            if rank_of(held) == rank:
                return row
        return None

    def unreadable_places(self) -> set[tuple[int, int]]:
        """(extent, offset) of copies that cannot be read at present."""
        found = [self._row_of(key) for key in self.unreadable]
        return {(row.extent, row.offset) for row in found if row is not None}


class _SimImages(Images):
    """Reads from the disk at once, but for what cannot be read."""

    def __init__(self, disk: ExtentDisk) -> None:
        super().__init__()
        self._disk = disk

    def note(self, block: int, extent: int, bodies_at: int, images: Sequence[bytes]) -> None:
        """Nothing is kept in memory."""

    def fetch(self, row: CopyRow, mode: ReadMode | None = None) -> bytes | None:
        """As of `Images`."""
        if self._disk.unreadable and (row.extent, row.offset) in self._disk.unreadable_places():
            self._disk.fired["read_error"] += 1
            return None
        return super().fetch(row, mode)

    def fetch_many(self, rows: Sequence[CopyRow], mode: ReadMode | None = None) -> list[bytes | None]:
        """As of `Images`."""
        if self._disk.unreadable:
            return [self.fetch(row, mode) for row in rows]
        return super().fetch_many(rows, mode)


class SimExtentStore(ExtentLogStore):
    """The store of production on an `ExtentDisk`."""

    def __init__(self, disk: ExtentDisk, settings: LogStoreSettings, *, looks: bool = False) -> None:
        """
        Args:
            looks: it is opened to be asked what is there.
        """
        self._shown = disk
        self._given: Sequence[WriteBatch] = ()
        self._unsynced: dict[tuple[int, int], int] = {}
        """Of what blocks wrote that no sync covers, (log, lsn) -> the last of them, ascending."""
        salts = random.Random(disk.files.steps)
        super().__init__(
            disk.files,
            settings,
            boot=disk.boot,
            where="the simulated disk",
            new_salt=lambda: salts.getrandbits(64),
            images=_SimImages(disk),
        )
        if self.torn:
            disk.fired["torn_write"] += 1
        if not looks:
            disk.store = self
            disk.rows.clear()
            disk.rows.update(self.all_rows())

    @property
    def synced(self) -> int:
        """The last block that a sync covers."""
        return self._chain.synced

    def write(self, batches: Sequence[WriteBatch]) -> list[Status]:
        """As of `LogStore`; refused while the disk does not keep up."""
        if not self._shown.overloaded or self.failed:
            return super().write(batches)
        statuses: list[Status] = []
        for batch in batches:
            if batch.must_pass:
                statuses += super().write([batch])
            else:
                self._shown.fired["overloaded_disk"] += 1
                statuses.append(Status.OVERLOADED)
        return statuses

    def _write_group(self, group: BlockGroup, batches: Sequence[WriteBatch], rows: dict[bytes, bytes | None]) -> Status:
        self._given = batches
        try:
            return super()._write_group(group, batches, rows)
        finally:
            self._given = ()

    def _on_written(self, block: int, changes: Changes, images: Sequence[bytes]) -> None:
        unsynced = self._unsynced
        places = [each[:2] for each in changes.copies] + [each[:2] for each in changes.points]
        for at in places:
            unsynced.pop(at, None)
            unsynced[at] = block
        self._show(changes, images)

    def may_forget(self, log: int, lsn: int) -> bool:
        """As of `MemoryDisk`."""
        unsynced, synced = self._unsynced, self.synced
        while unsynced and unsynced[first := next(iter(unsynced))] <= synced:
            del unsynced[first]
        if (log, lsn) not in unsynced:
            return False
        blocks = [row.block for _, row in self.rows_at(LogId(log), Lsn(lsn))]
        return bool(blocks) and min(blocks) > synced

    # ---- what a `MemoryDisk` would have

    def _show(self, changes: Changes, images: Sequence[bytes]) -> None:
        disk = self._shown
        rows = disk.rows
        for batch in self._given:
            for each in (*batch.deletes, *batch.restored):
                _delete(rows, *each)
        for log, first, last, _ in changes.deletes:
            _delete(rows, log, first, last)
        shown: dict[bytes, bytes] = {}
        for (log, lsn, rank, _, _, header), image in zip(changes.copies, images, strict=True):
            _put(shown, _key_at(log, lsn, rank), header, image)
        for log, lsn, rank, _, length, header, extent, offset in changes.points:
            image = self._extents.images.files[extent].read(offset, length)
            _put(shown, _key_at(log, lsn, rank), header, image)
        rows.update(shown)
        for name, value in changes.rows:
            if name.startswith(_CATALOG):
                continue
            if value is None:
                rows.pop(name, None)
            else:
                rows[name] = value
        if disk.flipped:
            disk.flipped.difference_update(shown)
        if disk.unreadable:
            disk.unreadable.difference_update(shown)

    def _as_rows(self, log: int, key: int, row: CopyRow) -> dict[bytes, bytes]:
        at = _key_at(log, lsn_of(key), rank_of(key))
        if row.extent:
            image = self._extents.images.files[row.extent].read(row.offset, row.length)
            return {at: image} if row.header is None else {at: row.header, keys.body_key(at): image}
        body = self._long_lived.body(log, key)
        assert row.header is not None
        return {at: row.header} if body is None else {at: row.header, keys.body_key(at): body}

    def file_of(self, extent: int) -> str:
        """Name of the file in which an image lies."""
        return self._extents.images.files[extent].name

    def rows_at(self, log: LogId, lsn: Lsn) -> list[tuple[int, CopyRow]]:
        """The rows of an LSN, of whatever partition."""
        found: list[tuple[int, CopyRow]] = []
        try:
            for partition in self._partitions_of(log):
                found += self._reader.rows(partition, log, lsn, lsn)
        except DiskError:
            return []
        return found

    def lose(self, log: LogId, lsn: Lsn) -> None:
        """Every copy at an LSN vanishes."""
        group = BlockGroup(self._directory, self._partitions, self._reader, self._settings.blob_bytes_min)
        for partition in self._partitions_of(log):
            group.delete(log, lsn, lsn, partition)
        self._write_group(group, (), {})

    def _partitions_of(self, log: LogId) -> list[int]:
        if not keys.is_partitioned(log):
            return [keys.UNPARTITIONED]
        return sorted(
            {number for held in self._extents.held.values() for number in held.partitions} - {keys.UNPARTITIONED}
        )

    def all_rows(self) -> dict[bytes, bytes]:
        """All of them."""
        found = {key: value for key, value in self._long_lived.rows() if not key.startswith(_CATALOG)}
        spans: dict[tuple[int, int], int] = {}
        for key in found:
            if key[0] == ord("p"):
                log, begin, partition = keys.split_directory_key(key)
                spans[log, partition] = begin
        for (of, partition), least in spans.items():
            for held, row in self._reader.rows(partition, LogId(of), 0, (1 << 64) - 2):
                if lsn_of(held) >= least:
                    found.update(self._as_rows(of, held, row))
        return found


def _key_at(log: int, lsn: int, rank: int) -> bytes:
    return keys.data_key(log, lsn, bool(rank >> 32), rank & 0xFFFFFFFF)


def _put(shown: dict[bytes, bytes], key: bytes, header: bytes | None, image: bytes) -> None:
    if header is None:
        shown[key] = image
    else:
        shown[key], shown[keys.body_key(key)] = header, image


def _delete(rows: SortedDict, log: int, first: int, last: int) -> None:
    for begin, end in keys.copy_bounds(log, first, last):
        for key in list(rows.irange(begin, end, inclusive=(True, False))):
            del rows[key]
