"""What an open store in extents knows of its extents: their blocks, the rows of copies, and who refers to what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgpack

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from storage_node.log_store import keys
from storage_node.log_store.directory import Span
from storage_node.log_store.extents.block_format import (
    DATA_START,
    HEAD_SIZE,
    BadBlockError,
    Changes,
    ExtentHeader,
    decode_control,
    decode_head,
    seed_of,
)
from storage_node.log_store.extents.chain import (
    EXTENT,
    MOVED,
    NEW,
    Chain,
    ChainExtent,
    WrittenBlock,
    extent_name,
    moved_name,
)
from storage_node.log_store.extents.deletes import Deletes
from storage_node.log_store.extents.disk import SECTOR, DiskError, ReadMode, StoreDisk
from storage_node.log_store.extents.long_lived import LongLived
from storage_node.log_store.extents.reading import ExtentReader, Images
from storage_node.log_store.extents.replay import ExtentSource, Replay, ReplayDamageError, ReplayedBlock, replay
from storage_node.log_store.extents.rows import IndexTable, IndexTables, KeyedRow, MemoryRows, key_of, rows_of
from storage_node.log_store.extents.sorted_table import BadTableError, ReadCache, SortedTable
from storage_node.log_store.view import ExtentFacts

INDEX: Final = "index-"
FAILED: Final = "failed"
"""Name of the file that says that the last run failed."""
_CATALOG: Final = b"\x00extent"
_MOVED_FROM: Final = b"\x00extent-moved"


def index_name(extent: int) -> str:
    """Of the table of an extent's rows."""
    return f"{INDEX}{extent:016x}"


def catalog_key(extent: int) -> bytes:
    """Of the row that says that an extent has an index, and has to be there."""
    return _CATALOG + extent.to_bytes(8, "big")


def moved_key(partition: int) -> bytes:
    """Of the row that says what was taken out of extents of a partition."""
    return _MOVED_FROM + partition.to_bytes(8, "big")


@dataclass(frozen=True, slots=True)
class MovedFile:
    """A file of copies that were taken out of extents, as the row of `moved_key` has it."""

    number: int
    salt: int
    block: int
    """Its copies count as written by this block."""
    end: int
    void: bool = False
    """Its copies were taken to another file. It is there as long as rows of later extents point to their bodies."""


@dataclass(frozen=True, slots=True)
class MovedCopies:
    """What was taken out of extents of a partition: what its extents say of it up to a block does not count any more, and these files do."""

    through: int
    files: tuple[MovedFile, ...]

    def encode(self) -> bytes:
        """Value of the row."""
        packed: bytes = msgpack.packb(
            (self.through, [(each.number, each.salt, each.block, each.end, each.void) for each in self.files])
        )
        return packed

    def without(self, number: int) -> MovedCopies:
        """A file is gone."""
        return MovedCopies(self.through, tuple(each for each in self.files if each.number != number))

    @classmethod
    def decode(cls, value: bytes) -> MovedCopies:
        """The opposite."""
        through, files = msgpack.unpackb(value)
        return cls(through, tuple(MovedFile(*each) for each in files))


@dataclass(slots=True)
class HeldExtent:
    """An extent that has blocks, or a file of copies that were taken out of such."""

    extent: ChainExtent
    blocks: list[tuple[int, int, Changes]]
    """(number, where the bodies begin, what is said of copies) of each, until it has an index."""
    deletes: list[tuple[int, int, int, int, int]]
    partitions: set[int]
    """That refer to it; `UNPARTITIONED` as long as the table of what lives long lacks what it holds."""
    indexed: bool = False
    retired_at: int = 0
    """The block that says that it is not needed any more; 0: it is."""
    moved: int = 0
    """The partition whose copies were taken to here out of extents; 0: it is an extent of the chain."""
    points: set[tuple[int, int]] = field(default_factory=set)
    """(partition, extent): rows here on images of another extent."""
    void: set[int] = field(default_factory=set)
    """Partitions of which its blocks say what does not count any more, and an index leaves out."""
    points_known: bool = True
    """Whether all of these are known: of an index that an earlier version wrote they are not."""


class HeldExtents:
    """All of a store. Opening reads and changes nothing."""

    def __init__(
        self,
        disk: StoreDisk,
        chain: Chain,
        images: Images,
        spans: Callable[[LogId, Lsn, Lsn], list[Span]],
        boot: str,
        cache: ReadCache,
    ) -> None:
        """
        Args:
            cache: of what is read from tables.
            spans: where the entries of a log in a range may be, by ascending LSN.
            boot: boot id of the operating system; empty: unknown.

        Raises:
            BadTableError, BadBlockError, DiskError, ReplayDamageError: what was durable cannot be read, or does not belong together.
        """
        self.torn = False
        """Something lay behind the last block that counts."""
        self.held: dict[int, HeldExtent] = {}
        """By number, ascending."""
        self.indexes = IndexTables()
        self.memory = MemoryRows()
        self.deletes = Deletes()
        self.images = images
        self.due: dict[bytes, bytes | None] = {}
        """Rows of the catalog to write with the next block."""
        self.since_checkpoint = 0
        """Bytes that were written since the table of what lives long was made."""
        self.moved: dict[int, MovedCopies] = {}
        """By partition."""
        self.trimmed: set[int] = set()
        """Partitions in which something was deleted, for who looks what that left."""
        self.suspects: list[int] = []
        """Extents whose index could not be read."""
        self._disk = disk
        self._cache = cache
        self._boot = boot
        self._chain = chain
        self._unused: list[str] = []
        """Files of earlier runs in which nothing counts."""
        self._run_ends: dict[int, ChainExtent] = {}
        """Of each run that was found, the extent with its last block that counts."""
        if FAILED in disk.names():
            for name in disk.names():
                disk.drop_cache(name)
        self.mode = ReadMode()
        self.long_lived = LongLived(disk, self.mode, cache)
        self.reader = ExtentReader(
            self.memory, self.deletes, self.long_lived, self.indexes, images, spans, self.suspects.append, self.mode
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
                self.indexes.put(extent.number, index)
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
        for number in self.needed_of_long_lived() & self.held.keys():
            # a row that came after the table points to an image of before it
            self.held[number].partitions.add(keys.UNPARTITIONED)
        self._run_ends = {
            header.run: extent for extent, header in zip(extents, headers, strict=True) if extent.number in self.held
        }
        self._check_catalog()
        self._open_moved()
        self._chain.last = self._chain.synced = found_blocks.last
        self._chain.run = found_blocks.run
        self._chain.last_run = found_blocks.last_run
        self.since_checkpoint = sum(block.head.size for block in found_blocks.blocks)
        moved = [int(name.removeprefix(MOVED), 16) for name in disk.names() if name.startswith(MOVED)]
        self._chain.next_extent = max([0, *moved, *(extent.number for extent in extents)]) + 1

    def _open_index(self, extent: ChainExtent) -> IndexTable | None:
        """The index of an extent; None without one that can be read: it can be made anew."""
        name = index_name(extent.number)
        if name not in self._disk.names():
            return None
        try:
            index = self.open_index(extent.number)
        except (BadTableError, DiskError):
            hit("extents_index_damaged")
            return None
        return index if index.table.facts["salt"] == extent.salt else None

    def open_index(self, extent: int) -> IndexTable:
        """The index of an extent, for the store's own thread. To open it, any thread will do.

        Raises:
            BadTableError: it is damaged.
            DiskError: it cannot be read.
        """
        return IndexTable(SortedTable(self._disk.open(index_name(extent)), self.mode, self._cache))

    def _hold(self, extent: ChainExtent) -> None:
        index = self.indexes.get(extent.number)
        held = self.held[extent.number] = HeldExtent(extent, [], [], set())
        self.images.files[extent.number] = extent.file
        if index is not None:
            facts = index.table.facts
            extent.first, extent.last, extent.end = facts["first"], facts["last"], facts["end"]
            held.indexed = True
            held.partitions = set(index.partitions)
            held.points = {(partition, elsewhere) for partition, elsewhere in facts.get("points", ())}
            held.points_known = "points" in facts
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
            if not key.startswith(_CATALOG) or key.startswith(_MOVED_FROM):
                if key[0]:
                    break
                continue
            number = int.from_bytes(key[len(_CATALOG) :], "big")
            salt, last = msgpack.unpackb(value)
            held = self.held.get(number)
            if held is None or held.extent.salt != salt or held.extent.last < last:
                raise BadBlockError(f"{extent_name(number)} is missing, or another file has its name")

    # ---- copies that were taken out of extents

    def _open_moved(self) -> None:
        """Files of copies that were taken out of extents are there whole, and count in the place of what these say."""
        found: dict[int, MovedCopies] = {}
        for key, value in self.long_lived.rows():
            if key[0]:
                break
            if key.startswith(_MOVED_FROM):
                found[int.from_bytes(key[len(_MOVED_FROM) :], "big")] = MovedCopies.decode(value)
        for partition, copies in found.items():
            for held in self.held.values():
                if held.extent.last <= copies.through:
                    self.let_go(held, partition)
            for log in self.memory.logs():
                self.memory.forget_partition(log, partition, copies.through)
            self.deletes.drop_through(partition, copies.through)
        self.moved = found
        for partition, copies in found.items():
            for each in copies.files:
                self._open_moved_file(partition, each)

    def _open_moved_file(self, partition: int, known: MovedFile) -> None:
        file = self._disk.open(moved_name(known.number))
        header = ExtentHeader.decode(file.read(0, DATA_START))
        if header.salt != known.salt or header.number != known.number:
            raise BadBlockError(f"another file has the name {file.name}")
        extent = ChainExtent(known.number, file, known.salt, file.size(), known.block, known.block, known.end)
        index = self._open_index(extent)
        if index is not None:
            self.indexes.put(extent.number, index)
        self._hold(extent)
        held = self.held[extent.number]
        held.moved = partition
        if known.void:
            held.indexed = True
            self.let_go(held, partition)
            return
        held.partitions.add(partition)
        if index is None:
            # blocks that were written later are taken in already
            for block in self._blocks_of(held):
                for log, first, last, of in block.changes.deletes:
                    self.deletes.add(log, first, last, block.head.number, of)
                self._put_back(held, block.head.number, block.offset + block.head.bodies_at, block.changes)

    def take_moved(self, partition: int, known: MovedFile, held: HeldExtent, index: IndexTable) -> None:
        """A block says that copies of a partition were taken out of extents to a file, which is durable."""
        self.held[known.number] = held
        self.held = dict(sorted(self.held.items()))
        self.indexes.put(known.number, index)
        self.images.files[known.number] = held.extent.file
        for log, (_, greatest) in index.logs.items():
            span = self.memory.span(log)
            if span is not None and span[0] <= key_of(greatest + 1, 0):
                self.memory.forget_partition(log, partition, known.block)

    def let_go(self, held: HeldExtent, partition: int) -> None:
        """What an extent has of a partition does not count any more."""
        held.partitions.discard(partition)
        held.points = {each for each in held.points if each[0] != partition}
        self.indexes.leave(held.extent.number, partition)
        if held.blocks:
            held.void.add(partition)
        held.deletes = [each for each in held.deletes if each[4] != partition]

    def _blocks_of(self, held: HeldExtent) -> list[ReplayedBlock]:
        """All blocks of an extent that is closed. BadBlockError, DiskError, ReplayDamageError where they are not there."""
        extent = held.extent
        header = ExtentHeader.decode(extent.file.read(0, DATA_START))
        if not held.moved:
            source = ExtentSource(header, extent.file.read)
            return replay([source], applied=extent.first - 1, same_boot=False).blocks
        found: list[ReplayedBlock] = []
        offset, seed = DATA_START, seed_of(header.salt)
        while offset < extent.end:
            head = decode_head(extent.file.read(offset, HEAD_SIZE), seed)
            if head is None:
                raise BadBlockError(f"{extent.file.name} cannot be read at byte {offset}")
            control = decode_control(head, extent.file.read(offset + HEAD_SIZE, head.control_length), seed)
            found.append(ReplayedBlock(extent.number, offset, head, control))
            offset += head.size
        return found

    def is_void(self, held: HeldExtent, partition: int) -> bool:
        """Whether what an extent says of a partition does not count any more."""
        copies = None if held.moved else self.moved.get(partition)
        return copies is not None and held.extent.last <= copies.through

    # ---- blocks

    def take(self, written: WrittenBlock, changes: Changes, images: list[bytes]) -> None:
        """A block was written."""
        extent = written.extent
        held = self.held.get(extent.number)
        if held is None:
            held = self.held[extent.number] = HeldExtent(extent, [], [], {keys.UNPARTITIONED})
            self.images.files[extent.number] = extent.file
        self.images.note(written.number, extent.number, written.bodies_at, images)
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
        memory = self.memory
        for log, first, last, partition in changes.deletes:
            if partition == skip or (only is not None and partition != only):
                continue
            memory.delete(log, first, last)
            self.deletes.add(log, first, last, block, partition)
            if partition != keys.UNPARTITIONED:
                held.deletes.append((log, first, last, block, partition))
                held.partitions.add(partition)
                self.trimmed.add(partition)
        extent = held.extent.number
        memory.put_block(block, extent, bodies_at, changes, skip=skip, only=only)
        if only is None and (changes.copies or changes.points):
            said = Changes(changes.copies, changes.points) if changes.rows or changes.deletes else changes
            held.blocks.append((block, bodies_at, said))
            partitions = {each[3] for each in changes.copies}
            for _, _, _, partition, _, _, elsewhere, _ in changes.points:
                partitions.add(partition)
                if partition != keys.UNPARTITIONED and elsewhere != extent:
                    held.points.add((partition, elsewhere))
            partitions.discard(keys.UNPARTITIONED)
            if not partitions <= held.partitions:
                held.partitions |= partitions
        if changes.rows and block > self.long_lived.applied:
            self.long_lived.change(changes.rows)

    def rows_of(self, held: HeldExtent) -> Iterator[KeyedRow]:
        """The rows that an index of an extent without one has. In any thread."""
        left_out = {keys.UNPARTITIONED, *held.void}
        for block, bodies_at, changes in list(held.blocks):
            for each in rows_of(changes, block, held.extent.number, bodies_at):
                if each[2].partition not in left_out:
                    yield each

    def forget_partitions(self, dropped: set[int]) -> None:
        """Nothing of these partitions is needed any more."""
        if dropped:
            for held in self.held.values():
                held.partitions -= dropped
                if held.points:
                    held.points = {each for each in held.points if each[0] not in dropped}
            for partition in dropped & self.moved.keys():
                del self.moved[partition]
                self.due[moved_key(partition)] = None
            self.indexes.drop_partitions(dropped)
            self.trimmed -= dropped
            self.deletes.drop_partitions(dropped)

    def needed_of_long_lived(self) -> set[int]:
        """Extents with images of what lives long whose rows are in no table: of a copy that got another header, the body lies where it was."""
        return {
            row.extent
            for log in self.memory.logs()
            if not keys.is_partitioned(LogId(log))
            for _, row in self.memory.rows(log, 0, 1 << 97)
        }

    def is_free(self, held: HeldExtent) -> bool:
        """Whether nothing refers to an extent any more."""
        if held.partitions or held.extent is self._chain.head or held.retired_at:
            return False
        number = held.extent.number
        return not any(number == elsewhere for other in self.held.values() for _, elsewhere in other.points)

    def extents(self) -> list[ExtentFacts]:
        """What each extent holds, ascending."""
        found, head = [], self._chain.head
        for number, held in self.held.items():
            extent, index = held.extent, self.indexes.get(number)
            state = "indexed" if held.indexed else "head" if extent is head else "closed"
            state = "moved" if held.moved else state
            copies = (
                index.table.facts.get("copies", 0)
                if index is not None
                else sum(len(changes.copies) + len(changes.points) for _, _, changes in held.blocks)
            )
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

    def wipe_torn(self) -> None:
        """Overwrite, durably, the heads of what does not count of earlier runs; to be called when a header says so: it goes with its extent.

        Not earlier: what does not count may be all that calls the block before it synced.
        """
        for extent in self._run_ends.values():
            head = decode_head(extent.file.read(extent.end, HEAD_SIZE), seed_of(extent.salt))
            if head is not None:
                # the headers that say that it does not count go with the extents of the run that begins
                hit("extents_torn_head_wiped")
                extent.file.write([bytes(SECTOR)], extent.end)
                extent.file.sync(extent.file.mark())

    def remove_leftovers(self) -> None:
        """Files that are of no use any more; to be called when a run begins."""
        for name in self._disk.names():
            if name.startswith(MOVED) and int(name.removeprefix(MOVED), 16) not in self.held:
                self._disk.unlink(name)
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
            if held is None or index is None or held.retired_at:
                continue
            extent = held.extent
            try:
                blocks = self._blocks_of(held)
            except (BadBlockError, DiskError, ReplayDamageError):
                continue
            if not blocks or blocks[-1].head.number < extent.last:
                continue
            hit("extents_index_made_anew")
            self.indexes.remove(number)
            held.indexed, held.blocks, held.deletes = False, [], []
            for block in blocks:
                if block.head.number <= extent.last:
                    self._put_back(held, block.head.number, block.offset + block.head.bodies_at, block.changes)
            done = True
        return done

    def _put_back(self, held: HeldExtent, block: int, bodies_at: int, changes: Changes) -> None:
        """Rows of a block whose deletes are known, and which later blocks may have changed."""
        for log, first, last, partition in changes.deletes:
            if partition != keys.UNPARTITIONED:
                held.deletes.append((log, first, last, block, partition))
        # what does not count any more, too: that this is so may not be durable yet
        held.blocks.append((block, bodies_at, changes))
        for log, key, row in rows_of(changes, block, held.extent.number, bodies_at):
            if row.partition == keys.UNPARTITIONED or self.is_void(held, row.partition):
                continue
            newer = next((each for _, each in self.memory.rows(log, key, key + 1)), None)
            if newer is None or newer.block < block:
                self.memory.put(log, key, row)
