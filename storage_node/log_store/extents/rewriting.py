"""Takes the copies that count out of extents of which much was trimmed, so that these become free while their partition is still needed.

Rules:
  1. *What is looked at*: closed partitions in which something was deleted. One is rewritten when so much of its bytes does not count any more as the
     settings say, extents in the order of their blocks, some at a time.
  2. *Before the switch*: copies go to a file of their own, in the order of logs, and to its index. Both are durable before a block says so.
  3. *The switch* is one row of one block: up to a block, the extents say nothing of the partition any more, and the file does. Its copies count as
     written by that last block, so that whatever later blocks wrote or deleted holds as it did. Extents become free as always, behind that row.
  4. *Deletes* of the extents go with the copies while older ones of the partition are left elsewhere.
  5. *Bodies* to which rows of later extents point keep their extent.
  6. *An index made anew* of an extent has what the switch took, which may not be durable yet; it is not read.
  7. *What cannot be read* stays where it is, and its partition is not rewritten in this run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final

from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND
from storage_node.log_store.directory import Directory
from storage_node.log_store.extents.block_format import DATA_START, Changes, encode_block, seed_of
from storage_node.log_store.extents.chain import NEW, Chain, ChainExtent, moved_name
from storage_node.log_store.extents.deletes import DeletedRanges
from storage_node.log_store.extents.disk import DiskError, File, StoreDisk
from storage_node.log_store.extents.held_extents import (
    HeldExtent,
    HeldExtents,
    MovedCopies,
    MovedFile,
    index_name,
    moved_key,
)
from storage_node.log_store.extents.rows import (
    CopyRow,
    IndexBuilder,
    IndexTable,
    KeyedRow,
    lsn_of,
    rank_of,
)
from storage_node.log_store.extents.sorted_table import BadTableError, SortedTable, write_table
from storage_node.log_store.partitions import Partitions
from storage_node.log_store.settings import LogStoreSettings

_PIECE_BYTES: Final = 1 << 20
_PIECE_COPIES: Final = 1_000
_COPY_COST: Final = 1_024
"""What a copy counts for beside its bytes: a small one takes its time as well."""
_STEP_EXTENTS: Final = 8
"""What is taken at a time; so much space is needed before any becomes free."""
_STEP_COPIES: Final = 400_000
_LOOKS_EVERY: Final = 30
"""Rounds of upkeep between two looks at one partition: a look takes time for each log that it holds."""
_DEAD_SHARE: Final = 16
"""Less than this part of an extent is not worth the trouble."""
Work = Callable[[], Callable[[], None]]


class _NotReadError(Exception):
    """A copy, or a row on it, cannot be read."""


@dataclass(slots=True)
class RewriteStep:
    """Some extents of a partition whose copies are taken out."""

    partition: int
    number: int
    """Of the file."""
    through: int
    """The last block of the extents."""
    sources: list[HeldExtent]
    logs: set[int]
    """That have something in the partition."""
    deletes: dict[int, DeletedRanges]
    keeps_deletes: bool
    """Older copies of the partition lie elsewhere."""
    after: int
    """What blocks up to this one deleted was heeded before."""
    carried: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    rows: Iterator[KeyedRow] | None = None
    file: File | None = None
    salt: int = 0
    run: int = 0
    offset: int = DATA_START
    builder: IndexBuilder = field(init=False)

    def __post_init__(self) -> None:
        self.builder = IndexBuilder(self.number)


class ExtentRewriter:
    """Of one store. Calls of the store's thread, but for what is returned to be done in another one."""

    def __init__(
        self,
        disk: StoreDisk,
        settings: LogStoreSettings,
        chain: Chain,
        extents: HeldExtents,
        directory: Directory,
        partitions: Partitions,
        commit: Callable[[], Status],
    ) -> None:
        self._disk = disk
        self._settings = settings
        self._chain = chain
        self._extents = extents
        self._directory = directory
        self._partitions = partitions
        self._commit = commit
        self._budget = 0
        self._round = 0
        self._looks_at: int | None = None
        """The partition that is to be looked at next."""
        self._looked: dict[int, tuple[int, int]] = {}
        """By partition: the round of the last look, and what whole logs had left in it by then."""
        self._spared: set[int] = set()
        """Partitions of which something cannot be read."""
        self._pass: tuple[int, int, int] | None = None
        """Under way: a partition, the block through which it is done, and the bytes that do not count."""
        self._step: RewriteStep | None = None
        self._unused: list[str] = []
        """Files of steps that were abandoned."""

    def refill(self) -> None:
        """To be called with each round of upkeep: so much may be taken until the next one."""
        settings = self._settings
        self._round += 1
        self._budget = settings.rewrite_bytes_per_second * settings.upkeep_interval_us // SECOND
        if self._pass is None:
            self._looks_at = next((each.number for each in self._partitions if self._is_due(each.number)), None)

    def _is_due(self, number: int) -> bool:
        if number == self._partitions.latest.number or number in self._spared:
            return False
        looked, dead = self._looked.get(number, (0, 0))
        if looked and self._round - looked < _LOOKS_EVERY:
            return False
        return number in self._extents.trimmed or self._directory.dead[number] > dead

    def abandon(self) -> None:
        """Nothing comes of the step that is under way."""
        step, self._step, self._pass = self._step, None, None
        if step is not None:
            name = moved_name(step.number)
            self._unused += [NEW + name, NEW + index_name(step.number), name, index_name(step.number)]

    def next_work(self) -> Work | None:
        """What is to be done next, to be done in another thread."""
        if self._unused:
            return self._remove_work(self._unused)
        if self._budget <= 0:
            return None
        if self._looks_at is not None:
            number, self._looks_at = self._looks_at, None
            if number in self._partitions:
                return self._look_work(number)
        if self._step is None and self._pass is not None:
            self._begin_step(*self._pass)
        step = self._step
        if step is None:
            return None
        if step.partition not in self._partitions:
            self.abandon()
            return self._remove_work(self._unused)
        return partial(self._do_piece, step)

    def _remove_work(self, names: list[str]) -> Work:
        def work() -> Callable[[], None]:
            for name in names:
                self._disk.unlink(name)
            return names.clear

        return work

    # ---- looking

    def _look_work(self, number: int) -> Work:
        """See how much of a partition does not count any more."""
        self._looked[number] = self._round, self._directory.dead[number]
        self._looked = {each: told for each, told in self._looked.items() if each in self._partitions}
        self._extents.trimmed.discard(number)
        logs, deletes = {*self._directory.of(number)}, self._extents.deletes.of_partition(number)
        indexes = [index for _, index in self._extents.indexes.of(number)]

        def work() -> Callable[[], None]:
            total = dead = 0
            for index in indexes:
                for each in index.sizes():
                    if each.partition != number:
                        continue
                    total += each.size
                    if each.log not in logs:
                        dead += each.size
                        continue
                    width = each.greatest - each.least + 1
                    gone = 0
                    for first, last, block in deletes.get(each.log, ()):
                        if block > index.last:
                            gone += max(0, min(last, each.greatest) - max(first, each.least) + 1)
                    dead += each.size * min(gone, width) // width
            return partial(self._looked_at, number, total, dead)

        return work

    def _looked_at(self, number: int, total: int, dead: int) -> None:
        if dead < self._settings.extent_bytes // _DEAD_SHARE:
            return
        if dead * 100 < total * self._settings.partition_compact_percent:
            return
        if self._pass is None and all(held.points_known for held in self._held_of(number)):
            self._pass = number, 0, dead

    def _held_of(self, partition: int) -> list[HeldExtent]:
        """Those that have something of a partition, in the order of their blocks."""
        found = [held for held in self._extents.held.values() if partition in held.partitions]
        return sorted(found, key=lambda held: held.extent.last)

    # ---- taking copies out

    def _begin_step(self, partition: int, done: int, dead: int) -> None:
        sources: list[HeldExtent] = []
        copies = 0
        keeps_deletes = False
        for held in self._held_of(partition):
            extent = held.extent
            if extent.last <= done:
                keeps_deletes = True
                continue
            index = self._extents.indexes.get(extent.number)
            if index is None or not held.indexed or extent is self._chain.head or extent.last > self._chain.synced:
                break
            copies += index.table.facts["copies"]
            if sources and (len(sources) == _STEP_EXTENTS or copies > _STEP_COPIES):
                break
            sources.append(held)
        if not sources:
            self._end_pass(partition, dead)
            return
        self._step = RewriteStep(
            partition,
            self._chain.number_next(),
            sources[-1].extent.last,
            sources,
            {*self._directory.of(partition)},
            self._extents.deletes.of_partition(partition),
            keeps_deletes,
            done,
        )

    def _end_pass(self, partition: int, dead: int) -> None:
        self._pass = None
        if partition in self._partitions:
            held = self._partitions[partition]
            held.size = max(0, held.size - dead)
            self._directory.dead.pop(partition, None)
            self._looked[partition] = self._round, 0

    def _do_piece(self, step: RewriteStep) -> Callable[[], None]:
        """In another thread."""
        try:
            if step.rows is None:
                self._open(step)
            cost = self._take_piece(step)
            if cost:
                return partial(self._piece_done, cost)
            return partial(self._switch, step, self._finish(step))
        except (_NotReadError, BadTableError):
            return partial(self._spare, step)

    def _open(self, step: RewriteStep) -> None:
        tables = []
        for held in step.sources:
            number = held.extent.number
            try:
                # a table of its own: the other is being read meanwhile
                tables.append((number, IndexTable(SortedTable(self._disk.open(index_name(number))))))
            except DiskError:
                raise _NotReadError from None
        step.rows = self._rows(step, tables)
        if step.keeps_deletes:
            step.carried = sorted(
                (
                    (log, first, last, block, step.partition)
                    for log, deletes in step.deletes.items()
                    if log in step.logs
                    for first, last, block in deletes
                    if step.after < block <= step.through
                ),
                key=itemgetter(3),
            )
        header = self._chain.new_header(step.number)
        step.salt, step.run = header.salt, header.run
        step.file = self._disk.create(NEW + moved_name(step.number), 0)
        step.file.write([header.encode()], 0)

    @staticmethod
    def _rows(step: RewriteStep, tables: list[tuple[int, IndexTable]]) -> Iterator[KeyedRow]:
        """The copies that count, by log and key."""
        before = (-1, -1)
        deletes: DeletedRanges | None = None
        sources = [
            ((log, key, -row.block, number, row) for log, key, row in table.all_rows()) for number, table in tables
        ]
        try:
            for log, key, _, _, row in heapq.merge(*sources):
                if row.partition != step.partition or (log, key) == before or log not in step.logs:
                    continue
                if log != before[0]:
                    deletes = step.deletes.get(log)
                before = log, key
                if deletes is None or not deletes.hide(key, row.block):
                    yield log, key, row
        except DiskError:
            raise _NotReadError from None

    def _take_piece(self, step: RewriteStep) -> int:
        """Write some copies; returns what they cost, 0 when there are no more."""
        assert step.rows is not None
        assert step.file is not None
        taken: list[KeyedRow] = []
        size = 0
        for each in step.rows:
            taken.append(each)
            size += each[2].length
            if size >= _PIECE_BYTES or len(taken) >= _PIECE_COPIES:
                break
        first = step.offset == DATA_START
        if not taken and not (first and step.carried):
            return 0
        images: list[bytes] = []
        for (_, _, row), image in zip(taken, self._extents.images.fetch_many([row for *_, row in taken]), strict=True):
            if image is None or len(image) != row.length:
                raise _NotReadError
            images.append(image)
        changes = Changes(
            copies=[(log, lsn_of(key), rank_of(key), step.partition, row.length, row.header) for log, key, row in taken]
        )
        if first:
            changes.deletes = [(log, low, high, partition) for log, low, high, _, partition in step.carried]
        parts, written, bodies_at = encode_block(
            changes, images, run=step.run, number=step.through, synced=step.through, seed=seed_of(step.salt)
        )
        step.file.write(parts, step.offset)
        step.file.sync(step.file.mark())
        at = step.offset + bodies_at
        for log, group in groupby(taken, key=itemgetter(0)):
            rows = []
            for _, key, row in group:
                rows.append((key, CopyRow(step.through, step.partition, step.number, at, row.length, row.header)))
                at += row.length
            step.builder.add(log, rows)
        step.offset += written
        return size + _COPY_COST * (len(taken) + 1)

    def _finish(self, step: RewriteStep) -> IndexTable | None:
        """The file and its index get their names; None where nothing counts any more."""
        assert step.file is not None
        name = moved_name(step.number)
        if step.offset == DATA_START:
            self._disk.unlink(NEW + name)
            return None
        facts = step.builder.facts(step.carried, salt=step.salt, first=step.through, last=step.through, end=step.offset)
        self._disk.rename(NEW + name, name)
        step.file.name = name
        write_table(self._disk, index_name(step.number), facts, step.builder.pieces)
        return self._extents.open_index(step.number)

    def _piece_done(self, cost: int) -> None:
        self._budget -= cost

    def _spare(self, step: RewriteStep) -> None:
        hit("extents_rewrite_not_read")
        self._spared.add(step.partition)
        self.abandon()

    # ---- the switch

    def _switch(self, step: RewriteStep, index: IndexTable | None) -> None:
        extents, partition = self._extents, step.partition
        there = all(extents.held.get(held.extent.number) is held and held.indexed for held in step.sources)
        if step is not self._step or partition not in self._partitions or not there:
            self.abandon()
            return
        replaced = {held.extent.number for held in step.sources}
        before = extents.moved.get(partition)
        files = [
            replace(each, void=each.void or each.number in replaced)
            for each in (() if before is None else before.files)
        ]
        known = MovedFile(step.number, step.salt, step.through, step.offset)
        if index is not None:
            files.append(known)
        copies = MovedCopies(step.through, tuple(files))
        extents.due[moved_key(partition)] = copies.encode()
        if self._commit() is not Status.OK or partition not in self._partitions:
            self.abandon()
            return
        extents.moved[partition] = copies
        for held in step.sources:
            extents.let_go(held, partition)
        if index is not None:
            assert step.file is not None
            extent = ChainExtent(
                step.number, step.file, step.salt, step.offset, step.through, step.through, step.offset
            )
            held = HeldExtent(extent, [], [*step.carried], {partition}, indexed=True, moved=partition)
            extents.take_moved(partition, known, held, index)
        self._step = None
        assert self._pass is not None
        self._pass = partition, step.through, self._pass[2]
        hit("extents_rewritten")
