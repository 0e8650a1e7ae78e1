"""The chain of blocks that a store writes: one extent after the other, one sync for all that waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from logdevice_py.core.marks import hit
from storage_node.log_store.extents.block_format import (
    DATA_START,
    Changes,
    ExtentHeader,
    encode_block,
    new_packer,
    seed_of,
)
from storage_node.log_store.extents.disk import DiskError, File, NoSpaceError, StoreDisk

EXTENT: Final = "extent-"
MOVED: Final = "moved-"
"""Begin of the name of a file of copies that were taken out of extents."""
SPARE: Final = "spare-"
NEW: Final = "new-"
SPARES_MAX: Final = 2
PAGE: Final = 4096
"""A write goes on with zeros to the end of a page: what it leaves of one that is not in memory, the kernel would read from the disk first."""
_ZEROS: Final = bytes(PAGE)


def extent_name(number: int) -> str:
    """Of the file of an extent."""
    return f"{EXTENT}{number:016x}"


def moved_name(number: int) -> str:
    """Of a file of copies that were taken out of extents."""
    return f"{MOVED}{number:016x}"


@dataclass(slots=True)
class ChainExtent:
    """An extent of this run, or of one before."""

    number: int
    file: File
    salt: int
    size: int
    first: int = 0
    """Its first block; 0: it has none."""
    last: int = 0
    end: int = DATA_START
    """Where its last block ends."""


@dataclass(frozen=True, slots=True)
class WrittenBlock:
    """Where a block was written."""

    number: int
    extent: ChainExtent
    bodies_at: int
    size: int
    closed: ChainExtent | None
    """The extent that ended before this block."""


@dataclass(frozen=True, slots=True)
class SyncTicket:
    """What a sync covers."""

    number: int
    size: int
    files: list[tuple[File, int]]


class Chain:
    """Appends blocks. Calls of the thread that writes, but for `finish_sync` and `prepare`."""

    def __init__(self, disk: StoreDisk, extent_bytes: int, rows_max: int, new_salt: Callable[[], int]) -> None:
        """
        Args:
            extent_bytes: of an extent.
            rows_max: an extent is closed when its blocks hold so many copies: rows on them are in memory.
        """
        self.last = 0
        """Number of the last block."""
        self.synced = 0
        """All blocks up to this one are durable."""
        self.run = 0
        self.last_run = 0
        """Of the last block."""
        self.next_extent = 1
        self._disk = disk
        self._extent_bytes = extent_bytes
        self._rows_max = rows_max
        self._new_salt = new_salt
        self._pack = new_packer()
        self._head: ChainExtent | None = None
        self._seed = 0
        self._rows = 0
        self._ready: deque[ChainExtent] = deque()
        self._template: ExtentHeader | None = None
        self._dirty: list[File] = []
        self._ticket: SyncTicket | None = None
        """Of the sync that is under way."""
        self._written_bytes = 0
        self._covered_bytes = 0

    @property
    def head(self) -> ChainExtent | None:
        """The extent that takes the next block, if it has room."""
        return self._head

    @property
    def ready(self) -> int:
        """How many extents are prepared to follow."""
        return len(self._ready)

    @property
    def unsynced(self) -> int:
        """Bytes that no sync that has ended covers."""
        return self._written_bytes - self._covered_bytes

    def begin_run(self, template: ExtentHeader) -> ChainExtent | None:
        """Begin a run with a new extent, whose header is durable when this returns; returns the extent that was the head.

        Args:
            template: header of the run's extents; number and salt are chosen here.

        Raises:
            DiskError: it did not begin.
        """
        before = self._head
        for extent in self._ready:
            self._disk.rename(extent.file.name, SPARE + extent.file.name)
        self._ready.clear()
        self._template = template
        self.run = template.run
        self._take(self.prepare(self.number_next(), use_spares=True))
        return before

    def number_next(self) -> int:
        """The number of an extent that is about to be prepared."""
        self.next_extent += 1
        return self.next_extent - 1

    def prepare(self, number: int, size: int = 0, *, use_spares: bool) -> ChainExtent:
        """Make an extent, durably. In any thread; `add_ready` puts it in its place.

        Args:
            size: at least so many bytes.
            use_spares: take a spare file where there is one: overwriting costs less than writing what was never written. For one thread at a time.

        Raises:
            NoSpaceError: there is no room.
            DiskError: it is not there.
        """
        disk, header = self._disk, self.new_header(number)
        size = max(size, self._extent_bytes)
        temporary, name = NEW + extent_name(number), extent_name(number)
        spare = next((each for each in disk.names() if each.startswith(SPARE)), None) if use_spares else None
        file: File | None = None
        if spare is not None and size == self._extent_bytes:
            # until then the file may come back under the name that it had
            disk.sync_names()
            file = disk.open(spare)
            if file.size() == size:
                temporary = spare
            else:
                file = None
                disk.unlink(spare)
        if file is None:
            file = disk.create(temporary, size)
        file.write([header.encode()], 0)
        file.sync(file.mark())
        disk.rename(temporary, name)
        disk.sync_names()
        file.name = name
        return ChainExtent(number, file, header.salt, size)

    def new_header(self, number: int) -> ExtentHeader:
        """Of a file of this run, with a salt of its own. In any thread."""
        assert self._template is not None
        return replace(self._template, number=number, salt=self._new_salt())

    def add_ready(self, extent: ChainExtent) -> None:
        """An extent was prepared. One that was overtaken is of no use: extents follow each other in the order of their numbers."""
        newest = self._ready[-1].number if self._ready else self._head.number if self._head else 0
        if extent.number > newest:
            self._ready.append(extent)
        else:
            self._disk.rename(extent.file.name, SPARE + extent.file.name)

    def make_room(self, size: int, *, last_one: bool) -> bool:
        """See to it that a block of about so many bytes can be written; False: there is no room for it.

        Args:
            last_one: it may take the last extent that is prepared, which is kept for what must be written.

        Raises:
            DiskError: something else is wrong with the disk.
        """
        head = self._head
        assert head is not None, "make_room before begin_run"
        large = DATA_START + size > self._extent_bytes
        if head.end + size <= head.size and self._rows < self._rows_max:
            return True
        if self._ready and not large and (last_one or len(self._ready) > 1):
            return True
        try:
            hit("extents_prepared_late")
            self._prepare_now(size)
        except NoSpaceError:
            return bool(self._ready) and last_one and not large
        return True

    def close_head(self) -> None:
        """The next block begins the next extent."""
        self._rows = self._rows_max

    def _prepare_now(self, size: int) -> None:
        if DATA_START + size > self._extent_bytes:
            # what was prepared is too small, and would come before it
            for extent in self._ready:
                self._disk.rename(extent.file.name, SPARE + extent.file.name)
            self._ready.clear()
        self._ready.append(self.prepare(self.number_next(), DATA_START + size, use_spares=False))

    def _take(self, extent: ChainExtent) -> None:
        self._head = extent
        self._seed = seed_of(extent.salt)
        self._rows = 0

    def append(self, changes: Changes, images: Sequence[bytes]) -> WrittenBlock:
        """Write a block.

        Raises:
            DiskError: the effect is unknown, and the chain must not be written to any more.
        """
        number, head = self.last + 1, self._head
        assert head is not None, "append before begin_run"
        parts, size, bodies_at = encode_block(
            changes, images, run=self.run, number=number, synced=self.synced, seed=self._seed, pack=self._pack
        )
        closed = None
        if head.end + size > head.size or self._rows >= self._rows_max:
            closed = head
            head = self._next(size)
            parts, size, bodies_at = encode_block(
                changes, images, run=self.run, number=number, synced=self.synced, seed=self._seed, pack=self._pack
            )
        at = head.end
        pad = min(-(at + size) % PAGE, head.size - at - size)
        if pad:
            parts[-1] += _ZEROS[:pad]
        head.file.write(parts, at)
        # in this order: a sync that begins meanwhile in another thread covers this block, or leaves the file for the next one
        dirty = self._dirty
        dirty.append(head.file)
        if dirty is not self._dirty:
            self._dirty.append(head.file)
        self._written_bytes += size
        self.last = head.last = number
        self.last_run = self.run
        head.first = head.first or number
        head.end = at + size
        self._rows += len(changes.copies) + len(changes.points)
        return WrittenBlock(number, head, at + bodies_at, size, closed)

    def _next(self, size: int) -> ChainExtent:
        if not self._ready or DATA_START + size > self._ready[0].size:
            self._prepare_now(size)
        self._take(self._ready.popleft())
        assert self._head is not None
        return self._head

    # ---- syncing

    def begin_sync(self) -> SyncTicket:
        """What is written by now. `finish_sync`, `covered` or `give_back` ends the sync; there is one at a time: it takes the files of
        blocks that another one would call durable.
        """
        assert self._ticket is None, "one sync at a time"
        number, size = self.last, self._written_bytes
        files, self._dirty = self._dirty, []
        distinct = {id(file): file for file in files}
        self._ticket = SyncTicket(number, size, [(file, file.mark()) for file in distinct.values()])
        return self._ticket

    def finish_sync(self, ticket: SyncTicket) -> None:
        """Make it durable. In any thread.

        Raises:
            DiskError: it is not, and never will be.
        """
        try:
            for file, mark in ticket.files:
                file.sync(mark)
        except DiskError:
            self.give_back(ticket)
            raise
        self.covered(ticket)

    def give_back(self, ticket: SyncTicket) -> None:
        """Its files are not synced: the next sync has to."""
        self._dirty += [file for file, _ in ticket.files]
        self._ticket = None

    def covered(self, ticket: SyncTicket) -> None:
        """All its files are synced."""
        self.synced = max(self.synced, ticket.number)
        self._covered_bytes = ticket.size
        self._ticket = None

    def retire(self, name: str) -> None:
        """A file that nothing refers to becomes a spare, or goes. In any thread."""
        with suppress(DiskError):
            disk = self._disk
            spares = [each for each in disk.names() if each.startswith(SPARE)]
            if len(spares) < SPARES_MAX and disk.open(name).size() == self._extent_bytes:
                disk.rename(name, SPARE + name)
            else:
                disk.unlink(name)
