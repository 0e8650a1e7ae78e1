"""What an open store in extents knows of its extents: their blocks, the rows of copies, and who refers to what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgpack

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from storage_node.log_store import keys
from storage_node.log_store.directory import Span
from storage_node.log_store.extents.block_format import DATA_START, BadBlockError, Changes, ExtentHeader
from storage_node.log_store.extents.chain import EXTENT, NEW, Chain, ChainExtent, WrittenBlock, extent_name
from storage_node.log_store.extents.disk import DiskError, StoreDisk
from storage_node.log_store.extents.long_lived import LongLived
from storage_node.log_store.extents.reading import ExtentReader, Images
from storage_node.log_store.extents.replay import ExtentSource, Replay, ReplayDamageError, replay
from storage_node.log_store.extents.rows import CopyRow, Deletes, IndexTable, MemoryRows, key_of
from storage_node.log_store.extents.sorted_table import BadTableError, SortedTable
from storage_node.log_store.view import ExtentFacts

INDEX: Final = "index-"
FAILED: Final = "failed"
"""Name of the file that says that the last run failed."""
_CATALOG: Final = b"\x00extent"


def index_name(extent: int) -> str:
    """Of the table of an extent's rows."""
    return f"{INDEX}{extent:016x}"


def catalog_key(extent: int) -> bytes:
    """Of the row that says that an extent has an index, and has to be there."""
    return _CATALOG + extent.to_bytes(8, "big")


@dataclass(slots=True)
class HeldExtent:
    """An extent that has blocks."""

    extent: ChainExtent
    rows: dict[tuple[int, int], CopyRow]
    """As its blocks wrote them, until it has an index."""
    deletes: list[tuple[int, int, int, int, int]]
    partitions: set[int]
    """That refer to it; `UNPARTITIONED` as long as the table of what lives long lacks what it holds."""
    indexed: bool = False
    retired_at: int = 0
    """The block that says that it is not needed any more; 0: it is."""


class HeldExtents:
    """All of a store. Opening reads and changes nothing."""

    def __init__(
        self, disk: StoreDisk, chain: Chain, images: Images, spans: Callable[[LogId, Lsn, Lsn], list[Span]], boot: str
    ) -> None:
        """
        Args:
            spans: where the entries of a log in a range may be, by ascending LSN.
            boot: boot id of the operating system; empty: unknown.

        Raises:
            BadTableError, BadBlockError, DiskError, ReplayDamageError: what was durable cannot be read, or does not belong together.
        """
        self.torn = False
        """Something lay behind the last block that counts."""
        self.held: dict[int, HeldExtent] = {}
        """By number, ascending."""
        self.indexes: dict[int, IndexTable] = {}
        self.memory = MemoryRows()
        self.deletes = Deletes()
        self.images = images
        self.due: dict[bytes, bytes | None] = {}
        """Rows of the catalog to write with the next block."""
        self.since_checkpoint = 0
        """Bytes that were written since the table of what lives long was made."""
        self.suspects: list[int] = []
        """Extents whose index could not be read."""
        self._disk = disk
        self._boot = boot
        self._chain = chain
        self._unused: list[str] = []
        """Files of earlier runs in which nothing counts."""
        if FAILED in disk.names():
            for name in disk.names():
                disk.drop_cache(name)
        self.long_lived = LongLived(disk)
        self.reader = ExtentReader(
            self.memory, self.deletes, self.long_lived, self.indexes, images, spans, self.suspects.append
        )
        self._open()

    def _open(self) -> None:
        disk, applied = self._disk, self.long_lived.applied
        found = [each for each in disk.names() if each.startswith(EXTENT)]
        extents: list[ChainExtent] = []
        sources: list[ExtentSource] = []
        headers: list[ExtentHeader] = []
        for name in found:
            file = disk.open(name)
            header = ExtentHeader.decode(file.read(0, DATA_START))
            if name != extent_name(header.number):
                raise BadBlockError(f"{name} says that it is extent {header.number}")
            headers.append(header)
            extents.append(ChainExtent(header.number, file, header.salt, file.size()))
        if len({(each.cluster, each.shard) for each in headers}) > 1:
            raise BadBlockError("extents of several shards lie together")
        for extent, header in zip(extents, headers, strict=True):
            index = self._open_index(extent)
            if index is not None:
                self.indexes[extent.number] = index
            source = ExtentSource(header, extent.file.read)
            if index is not None and index.last <= applied:
                source.known = index.table.facts["first"], index.last
                source.start = index.table.facts["end"]
            sources.append(source)
        same_boot = bool(headers and self._boot and headers[-1].boot == self._boot and FAILED not in disk.names())
        found_blocks = replay(sources, applied=applied, same_boot=same_boot)
        self.torn = found_blocks.torn
        if self.torn:
            hit("extents_torn_end")
        for index in self.indexes.values():
            if index.last > found_blocks.last:
                raise BadTableError(
                    f"an index holds what blocks up to {index.last} changed, and the last block that is there is {found_blocks.last}"
                )
        for extent in extents:
            self._hold(extent)
        for block in found_blocks.blocks:
            self._take_replayed(block.extent, block.head.number, block.offset + block.head.bodies_at, block.changes)
        for extent in extents:
            self._settle_opened(extent, found_blocks)
        self._check_catalog()
        self._chain.last = self._chain.synced = found_blocks.last
        self._chain.run = found_blocks.run
        self._chain.last_run = found_blocks.last_run
        self.since_checkpoint = sum(block.head.size for block in found_blocks.blocks)
        self._chain.next_extent = max((extent.number for extent in extents), default=0) + 1

    def _open_index(self, extent: ChainExtent) -> IndexTable | None:
        """The index of an extent; None without one that can be read: it can be made anew."""
        name = index_name(extent.number)
        if name not in self._disk.names():
            return None
        try:
            table = SortedTable(self._disk.open(name))
        except (BadTableError, DiskError):
            hit("extents_index_damaged")
            return None
        return IndexTable(table) if table.facts["salt"] == extent.salt else None

    def _hold(self, extent: ChainExtent) -> None:
        index = self.indexes.get(extent.number)
        held = self.held[extent.number] = HeldExtent(extent, {}, [], set())
        self.images.files[extent.number] = extent.file
        if index is not None:
            facts = index.table.facts
            extent.first, extent.last, extent.end = facts["first"], facts["last"], facts["end"]
            held.indexed = True
            held.partitions = set(index.partitions)
            for log, first, last, block, partition in facts["deletes"]:
                self.deletes.add(log, first, last, block, partition)

    def _take_replayed(self, number: int, block: int, bodies_at: int, changes: Changes) -> None:
        held, applied = self.held[number], self.long_lived.applied
        extent, index = held.extent, self.indexes.get(number)
        extent.first = extent.first or block
        extent.last = max(extent.last, block)
        if index is not None and block <= index.last:
            # its copies are known; what lives long may not be
            if block > applied:
                self.apply(held, block, bodies_at, changes, only=keys.UNPARTITIONED)
            return
        if held.indexed:
            # blocks came behind those that the index has: the extent gets another
            held.indexed = False
        self.apply(held, block, bodies_at, changes, skip=keys.UNPARTITIONED if block <= applied else None)

    def _settle_opened(self, extent: ChainExtent, found: Replay) -> None:
        held = self.held[extent.number]
        if extent.number in found.ends:
            extent.end = max(extent.end, found.ends[extent.number])
        if not extent.first:
            del self.held[extent.number], self.images.files[extent.number]
            self._unused.append(extent.file.name)
        elif extent.last > self.long_lived.applied:
            held.partitions.add(keys.UNPARTITIONED)

    def _check_catalog(self) -> None:
        """Every extent that has an index is there, with all of its blocks."""
        for key, value in self.long_lived.rows():
            if not key.startswith(_CATALOG):
                if key[0]:
                    break
                continue
            number = int.from_bytes(key[len(_CATALOG) :], "big")
            salt, last = msgpack.unpackb(value)
            held = self.held.get(number)
            if held is None or held.extent.salt != salt or held.extent.last < last:
                raise BadBlockError(f"{extent_name(number)} is missing, or another file has its name")

    # ---- blocks

    def take(self, written: WrittenBlock, changes: Changes, images: list[bytes]) -> None:
        """A block was written."""
        extent = written.extent
        held = self.held.get(extent.number)
        if held is None:
            held = self.held[extent.number] = HeldExtent(extent, {}, [], {keys.UNPARTITIONED})
            self.images.files[extent.number] = extent.file
        at, note = written.bodies_at, self.images.note
        for image in images:
            note(extent.number, at, image)
            at += len(image)
        self.since_checkpoint += written.size
        self.apply(held, written.number, written.bodies_at, changes)

    def apply(
        self,
        held: HeldExtent,
        block: int,
        bodies_at: int,
        changes: Changes,
        *,
        skip: int | None = None,
        only: int | None = None,
    ) -> None:
        """Take in what a block changed: of one partition `only`, or all but of one."""
        extent, memory, rows = held.extent.number, self.memory, held.rows
        for log, first, last, partition in changes.deletes:
            if partition == skip or (only is not None and partition != only):
                continue
            memory.delete(log, first, last)
            self.deletes.add(log, first, last, block, partition)
            if partition != keys.UNPARTITIONED:
                held.deletes.append((log, first, last, block, partition))
                held.partitions.add(partition)
        at = bodies_at
        for log, lsn, rank, partition, length, header in changes.copies:
            if partition != skip and (only is None or partition == only):
                key = key_of(lsn, rank)
                row = CopyRow(block, partition, extent, at, length, header)
                memory.put(log, key, row)
                if partition != keys.UNPARTITIONED:
                    rows[log, key] = row
                    held.partitions.add(partition)
            at += length
        for log, lsn, rank, partition, length, header, elsewhere, offset in changes.points:
            if partition != skip and (only is None or partition == only):
                key = key_of(lsn, rank)
                row = CopyRow(block, partition, elsewhere, offset, length, header)
                memory.put(log, key, row)
                if partition != keys.UNPARTITIONED:
                    rows[log, key] = row
                    held.partitions.add(partition)
        if changes.rows and block > self.long_lived.applied:
            self.long_lived.change(changes.rows)

    def forget_partitions(self, dropped: set[int]) -> None:
        """Nothing of these partitions is needed any more."""
        if dropped:
            for held in self.held.values():
                held.partitions -= dropped
            self.deletes.drop_partitions(dropped)

    def is_free(self, held: HeldExtent) -> bool:
        """Whether nothing refers to an extent any more."""
        return not held.partitions and held.extent is not self._chain.head and not held.retired_at

    def extents(self) -> list[ExtentFacts]:
        """What each extent holds, ascending."""
        found, head = [], self._chain.head
        for number, held in self.held.items():
            extent, index = held.extent, self.indexes.get(number)
            state = "indexed" if held.indexed else "head" if extent is head else "closed"
            copies = index.table.facts.get("copies", 0) if index is not None else len(held.rows)
            found.append(
                ExtentFacts(
                    number,
                    extent.first,
                    extent.last,
                    extent.size,
                    extent.end,
                    copies,
                    tuple(sorted(held.partitions)),
                    state,
                )
            )
        return found

    def sync_replayed(self) -> None:
        """What was replayed may have come from memory alone, and headers will say that it is durable."""
        for held in self.held.values():
            held.extent.file.sync(held.extent.file.mark())

    def remove_leftovers(self) -> None:
        """Files that are of no use any more; to be called when a run begins."""
        for name in self._disk.names():
            if name.startswith(NEW) or (name.startswith(INDEX) and int(name.removeprefix(INDEX), 16) not in self.held):
                self._disk.unlink(name)
        for name in self._unused:
            self._chain.retire(name)
        self._unused.clear()

    # ---- indexes that cannot be read

    def make_indexes_anew(self) -> bool:
        """Of extents whose index cannot be read, the rows are read from their blocks; whether that was done."""
        suspects, done = {*self.suspects}, False
        self.suspects.clear()
        for number in suspects:
            held = self.held.get(number)
            index = self.indexes.get(number)
            if held is None or index is None:
                continue
            extent = held.extent
            try:
                header = ExtentHeader.decode(extent.file.read(0, DATA_START))
                blocks = replay(
                    [ExtentSource(header, extent.file.read)], applied=extent.first - 1, same_boot=False
                ).blocks
            except (BadBlockError, DiskError, ReplayDamageError):
                continue
            if not blocks or blocks[-1].head.number < extent.last:
                continue
            hit("extents_index_made_anew")
            del self.indexes[number]
            held.indexed, held.rows, held.deletes = False, {}, []
            for block in blocks:
                if block.head.number <= extent.last:
                    self._put_back(held, block.head.number, block.offset + block.head.bodies_at, block.changes)
            done = True
        return done

    def _put_back(self, held: HeldExtent, block: int, bodies_at: int, changes: Changes) -> None:
        """Rows of a block whose deletes are known, and which later blocks may have changed."""
        number = held.extent.number
        for log, first, last, partition in changes.deletes:
            if partition != keys.UNPARTITIONED:
                held.deletes.append((log, first, last, block, partition))
        at = bodies_at
        made: list[tuple[int, int, CopyRow]] = []
        for log, lsn, rank, partition, length, header in changes.copies:
            made.append((log, key_of(lsn, rank), CopyRow(block, partition, number, at, length, header)))
            at += length
        for log, lsn, rank, partition, length, header, elsewhere, offset in changes.points:
            made.append((log, key_of(lsn, rank), CopyRow(block, partition, elsewhere, offset, length, header)))
        for log, key, row in made:
            if row.partition == keys.UNPARTITIONED:
                continue
            held.rows[log, key] = row
            newer = next((each for _, each in self.memory.rows(log, key, key + 1)), None)
            if newer is None or newer.block < block:
                self.memory.put(log, key, row)
