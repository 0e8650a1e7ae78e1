"""Work of a store in extents that takes long: extents are prepared, closed ones get an index, what lives long gets a new table, what nothing
refers to becomes free, and what counts is taken out of extents of which much was trimmed (`rewriting`).

Work is handed out (`next_chore`) to be done in another thread, one at a time; its outcome is taken up on the store's own (`take_up`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Final

import msgpack

from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from storage_node.log_store import keys
from storage_node.log_store.directory import Directory
from storage_node.log_store.extents.chain import Chain
from storage_node.log_store.extents.control_check import ControlCheck
from storage_node.log_store.extents.disk import DiskError, NoSpaceError, StoreDisk
from storage_node.log_store.extents.held_extents import (
    HeldExtent,
    HeldExtents,
    catalog_key,
    index_name,
    moved_key,
)
from storage_node.log_store.extents.long_lived import TableCheckpoint
from storage_node.log_store.extents.rewriting import ExtentRewriter, Work
from storage_node.log_store.extents.rows import IndexTable, KeyedRow, encode_index
from storage_node.log_store.extents.sorted_table import BadTableError, SortedTable, write_table
from storage_node.log_store.partitions import Partitions
from storage_node.log_store.settings import LogStoreSettings
from storage_node.log_store.space import SpaceGuard

_KINDS: Final = 6
_TABLE_SHARE: Final = 4
"""The table of what lives long is made anew when so many times its bytes were written since."""
Chore = Callable[[], None]


class ExtentUpkeep:
    """Of one store. Calls of the store's thread, but for a chore."""

    def __init__(
        self,
        disk: StoreDisk,
        settings: LogStoreSettings,
        chain: Chain,
        extents: HeldExtents,
        directory: Directory,
        partitions: Partitions,
        guard: SpaceGuard,
        *,
        commit: Callable[[], Status],
        fail: Callable[[str], None],
        runs: Callable[[], bool],
    ) -> None:
        """
        Args:
            commit: writes what is due.
            fail: ends the run.
            runs: whether a run has begun, and nothing has failed.
        """
        self.waits = True
        """It pays to ask for a chore."""
        self.under_way = False
        self.lacks_space = False
        """Nothing but what makes space is done."""
        self._disk = disk
        self._settings = settings
        self._chain = chain
        self._extents = extents
        self._directory = directory
        self._guard = guard
        self._commit = commit
        self._fail = fail
        self._runs = runs
        self._done: deque[Callable[[], None]] = deque()
        """What is to be done on this thread when chores have ended."""
        self._first_kind = 0
        self._checkpoint: TableCheckpoint | None = None
        self.control_check = ControlCheck(settings, chain, extents, commit)
        self._rewriter = ExtentRewriter(disk, settings, chain, extents, directory, partitions, commit)

    def begin_round(self) -> None:
        """To be called about every second."""
        self.lacks_space = False
        self._rewriter.refill()
        self.control_check.begin_round()

    def next_chore(self) -> Chore | None:
        """Work that takes long, to be done in another thread, one at a time; None: there is none."""
        self.take_up()
        if not self._runs() or self.under_way:
            return None
        work = self._next_work()
        if work is None:
            self.waits = False
            return None
        self.under_way = True
        return partial(self._do, work)

    def _next_work(self) -> Work | None:
        if self.lacks_space:
            return self._to_retire()
        kinds = [
            self._to_prepare,
            self._to_index,
            self._to_checkpoint,
            self._to_retire,
            self._rewriter.next_work,
            self.control_check.next_work,
        ]
        for kind in [*kinds[self._first_kind :], *kinds[: self._first_kind]]:
            work = kind()
            if work is not None:
                return work
        return None

    def take_up(self) -> None:
        """Take up what chores have done."""
        while self._done:
            self._done.popleft()()

    def _do(self, work: Work) -> None:
        """In another thread."""
        try:
            done = work()
        except NoSpaceError:
            hit("extents_chore_without_space")
            done = self._chore_without_space
        except (DiskError, BadTableError) as error:
            text = str(error)
            done = partial(self._chore_failed, text)
        self._done.append(partial(self._chore_ended, done))

    def _chore_ended(self, done: Callable[[], None]) -> None:
        self.under_way = False
        done()

    def _chore_without_space(self) -> None:
        """Nothing but what makes space is done until `maintain` comes by, and another kind of work is tried first then."""
        self._undo_checkpoint()
        self._rewriter.abandon()
        self.lacks_space = True
        self._first_kind = (self._first_kind + 1) % _KINDS

    def _chore_failed(self, reason: str) -> None:
        self._undo_checkpoint()
        self._fail(reason)

    def _undo_checkpoint(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint = None
            self._extents.since_checkpoint = self._settings.checkpoint_bytes
            self._extents.long_lived.end_checkpoint(written=False)

    # ---- the next extent

    def _to_prepare(self) -> Work | None:
        wanted = 2 if not self._guard.refusing else 1
        if self._chain.ready >= wanted:
            return None
        number = self._chain.number_next()

        def prepare() -> Callable[[], None]:
            extent = self._chain.prepare(number, use_spares=True)
            return partial(self._chain.add_ready, extent)

        return prepare

    # ---- indexes

    def _to_index(self) -> Work | None:
        for number, held in self._extents.held.items():
            extent = held.extent
            if held.indexed or extent is self._chain.head:
                continue
            if extent.last > self._chain.synced:
                return None  # indexes are made in order
            return self._index_work(number, held)
        return None

    def _index_work(self, number: int, held: HeldExtent) -> Work:
        extent, before = held.extent, self._extents.indexes.get(number)
        last, end = extent.last, extent.end
        older: list[KeyedRow] = []
        deletes = list(held.deletes)

        def work() -> Callable[[], None]:
            if before is not None:
                # a table of its own: the other is being read meanwhile
                again = IndexTable(SortedTable(self._disk.open(index_name(number))))
                older.extend(again.all_rows())
                deletes[:0] = [tuple(each) for each in before.table.facts["deletes"]]
            facts, packed = encode_index(
                chain(older, self._extents.rows_of(held)),
                deletes,
                extent=number,
                salt=extent.salt,
                first=extent.first,
                last=last,
                end=end,
            )
            write_table(self._disk, index_name(number), facts, packed)
            return partial(self._indexed, number, held, self._extents.open_index(number))

        return work

    def _indexed(self, number: int, held: HeldExtent, index: IndexTable) -> None:
        self._extents.indexes.put(number, index)
        if self._is_next_index(number):
            for log in index.logs:
                self._extents.memory.forget_through(log, index.last)
        held.blocks, held.deletes, held.indexed = [], [], True
        held.void.clear()
        for partition in list(index.partitions):
            if self._extents.is_void(held, partition):
                self._extents.indexes.leave(number, partition)
        hit("extents_indexed")
        if held.moved:
            return
        self._extents.due[catalog_key(number)] = msgpack.packb((held.extent.salt, index.last))

    def _is_next_index(self, number: int) -> bool:
        """Whether all before it have theirs, so that no rows up to its last block are needed in memory."""
        last = self._extents.indexes[number].last
        return all(
            held.indexed for other, held in self._extents.held.items() if other != number and held.extent.first <= last
        )

    # ---- what lives long

    def _to_checkpoint(self) -> Work | None:
        if self._checkpoint is None:
            least = max(self._settings.checkpoint_bytes, _TABLE_SHARE * self._extents.long_lived.table_bytes)
            if self._extents.since_checkpoint < least:
                return None
            self._begin_checkpoint()
        checkpoint = self._checkpoint
        if checkpoint is None or checkpoint.through > self._chain.synced:
            return None

        def work() -> Callable[[], None]:
            self._extents.long_lived.write(checkpoint, self._extents.images.fetch)
            return partial(self._checkpointed, checkpoint)

        return work

    def _begin_checkpoint(self) -> None:
        self._directory.save_all()
        if self._commit() is not Status.OK:
            return
        self._extents.since_checkpoint = 0
        deletes = self._extents.deletes.of_partition(keys.UNPARTITIONED)
        self._checkpoint = self._extents.long_lived.begin_checkpoint(self._chain.last, self._extents.memory, deletes)

    def _checkpointed(self, checkpoint: TableCheckpoint) -> None:
        self._checkpoint = None
        try:
            self._extents.long_lived.end_checkpoint(written=True)
        except (BadTableError, DiskError) as error:
            self._fail(str(error))
            return
        for log in {log for log, _, _ in checkpoint.copies}:
            self._extents.memory.forget_through(log, checkpoint.through)
        self._extents.deletes.drop_through(keys.UNPARTITIONED, checkpoint.through)
        needed = self._extents.needed_of_long_lived()
        for number, held in self._extents.held.items():
            extent = held.extent
            if extent.last <= checkpoint.through and extent is not self._chain.head and number not in needed:
                held.partitions.discard(keys.UNPARTITIONED)
        hit("extents_checkpoint")

    # ---- what is free

    def _to_retire(self) -> Work | None:
        """An extent to which nothing refers goes when it is durable that it may."""
        for number, held in self._extents.held.items():
            if 0 < held.retired_at <= self._chain.synced:
                return self._retire_work(number, held)
        free = [held for held in self._extents.held.values() if held.indexed and self._extents.is_free(held)]
        for held in free:
            number, copies = held.extent.number, self._extents.moved.get(held.moved)
            if not held.moved:
                self._extents.due[catalog_key(number)] = None
            elif copies is not None:
                self._extents.moved[held.moved] = copies = copies.without(number)
                self._extents.due[moved_key(held.moved)] = copies.encode()
        if free and self._commit() is Status.OK:
            for held in free:
                held.retired_at = self._chain.last
        return None

    def _retire_work(self, number: int, held: HeldExtent) -> Work:
        name = held.extent.file.name

        def work() -> Callable[[], None]:
            # the index goes last: what is found with an index and without an extent is left over
            self._chain.retire(name)
            self._disk.sync_names()
            with suppress(DiskError):
                self._disk.unlink(index_name(number))
            return partial(self._retired, number)

        return work

    def _retired(self, number: int) -> None:
        del self._extents.held[number]
        self._extents.indexes.remove(number)
        self._extents.images.files.pop(number, None)
        hit("extents_retired")

    # ---- closing

    def finish(self, sync: Callable[[], Status]) -> None:
        """Write, at once, what the next opening would have to replay. Nothing else is under way, and all is durable.

        Args:
            sync: makes durable what is written.
        """
        if self._checkpoint is not None:
            self._do_now(self._to_checkpoint())
        self._begin_checkpoint()
        if sync() is not Status.OK:
            return
        for number, held in list(self._extents.held.items()):
            if not held.indexed:
                self._do_now(self._index_work(number, held))
        if self._checkpoint is not None:
            self._do_now(self._to_checkpoint())

    def _do_now(self, work: Work | None) -> None:
        if work is not None and self._runs():
            self._do(work)
            self.take_up()
