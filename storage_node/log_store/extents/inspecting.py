"""Looks at a store in extents that nobody serves from: what is in it, and whether all of it can be read. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from logdevice_py.core.entry import check_body, parse_header
from logdevice_py.core.ids import format_shard
from logdevice_py.core.lsn import Lsn, format_lsn
from logdevice_py.core.some_names import name_some
from logdevice_py.core.status import CorruptEntryError, LogDeviceError
from storage_node.log_store.extents.block_format import (
    DATA_START,
    HEAD_SIZE,
    BadBlockError,
    BlockHead,
    Changes,
    ExtentHeader,
    bodies_match,
    decode_control,
    decode_head,
    seed_of,
)
from storage_node.log_store.extents.chain import EXTENT, MOVED
from storage_node.log_store.extents.disk import DiskError, StoreDisk
from storage_node.log_store.extents.held_extents import INDEX, index_name
from storage_node.log_store.extents.long_lived import TABLE
from storage_node.log_store.extents.sorted_table import BadTableError, SortedTable
from storage_node.log_store.extents.store import ExtentLogStore
from storage_node.log_store.later_format import LaterFormatError
from storage_node.log_store.settings import LogStoreSettings

_DAMAGED_SHOWN: Final = 5


@dataclass(slots=True)
class ExtentReport:
    """One extent."""

    name: str
    run: int = 0
    salt: int = 0
    first: int = 0
    """Its first block; 0: it has none."""
    last: int = 0
    used: int = 0
    size: int = 0
    copies: int = 0
    index: str = "none"
    damage: list[str] = field(default_factory=list)
    """What cannot be read, a sentence each."""


@dataclass(slots=True)
class StoreReport:
    """A whole store."""

    extents: list[ExtentReport] = field(default_factory=list)
    identity: str = ""
    opens: str = ""
    """Why the store would not open; empty: it does."""
    last_block: int = 0
    torn: bool = False
    """Something lies behind the last block that counts: a write that was under way."""
    table_rows: int = 0
    table_applied: int = 0
    damage: list[str] = field(default_factory=list)
    """Of what is no extent."""

    @property
    def damaged(self) -> bool:
        """Whether anything that counts cannot be read."""
        return bool(self.damage) or any(each.damage for each in self.extents)

    def lines(self) -> Iterator[str]:
        """For people."""
        yield self.identity or "no identity: the store was never used, or its marker cannot be read"
        yield f"{'extent':<24} {'run':>5} {'blocks':>21} {'copies':>9} {'used':>12} {'of':>12}  index"
        for each in self.extents:
            blocks = f"{each.first}..{each.last}" if each.first else "-"
            yield f"{each.name:<24} {each.run:>5} {blocks:>21} {each.copies:>9} {each.used:>12} {each.size:>12}  {each.index}"
        yield f"table: {self.table_rows} rows, of what blocks up to {self.table_applied} changed"
        yield f"last block that counts: {self.last_block}{', and a torn end behind it' if self.torn else ''}"
        for text in [*self.damage, *(f"{each.name}: {text}" for each in self.extents for text in each.damage)]:
            yield f"damaged: {text}"
        yield f"it does not open: {self.opens}" if self.opens else "it opens"


def inspect_store(disk: StoreDisk, *, boot: str = "") -> StoreReport:
    """Read all of a store.

    Args:
        boot: boot id of the operating system; empty: unknown.
    """
    report = StoreReport()
    store = _open(disk, boot, report)
    names = disk.names()
    # behind the last block that counts there may be what a power cut left of others
    limit = None if store is None else store.last_block
    for name in names:
        if name.startswith((EXTENT, MOVED)):
            report.extents.append(_inspect_extent(disk, name, limit))
    for each in report.extents:
        index = name_of_index(each.name)
        if index in names:
            table, rows = _read_table(disk, index, each.damage)
            each.index = "damaged" if table is None else f"{rows} rows"
            if table is not None:
                _compare_end(each, table)
    if TABLE in names:
        _, report.table_rows = _read_table(disk, TABLE, report.damage)
    return report


def _open(disk: StoreDisk, boot: str, report: StoreReport) -> ExtentLogStore | None:
    try:
        store = ExtentLogStore(disk, LogStoreSettings(), boot=boot, where="here", new_salt=lambda: 0)
        marker = store.found
    except LogDeviceError as error:
        report.opens = error.detail
        return None
    report.last_block, report.torn, report.table_applied = store.last_block, store.torn, store.applied
    if marker is not None:
        report.identity = (
            f"{format_shard(marker.shard)} generation {marker.generation} of cluster {marker.cluster.hex()}, "
            f"state {marker.incarnation}, {'closed in order' if marker.clean else 'not closed in order'}"
        )
    return store


def name_of_index(extent: str) -> str:
    """The name of the index of an extent's file."""
    return index_name(int(extent.removeprefix(EXTENT).removeprefix(MOVED), 16))


def _compare_end(report: ExtentReport, index: SortedTable) -> None:
    """Whether the blocks that the index knows are all there: behind a head that cannot be read none is found."""
    end = index.facts["end"]
    if report.run and index.facts["salt"] == report.salt and report.used < end:
        at = report.used or DATA_START
        report.damage.append(f"no block can be read at byte {at}, and its index has some up to byte {end}")


def _read_table(disk: StoreDisk, name: str, damage: list[str]) -> tuple[SortedTable | None, int]:
    """A table, and how many rows it has; None where it cannot be read."""
    try:
        table = SortedTable(disk.open(name))
        count = sum(1 for _ in table.rows(b"", None))
    except (BadTableError, DiskError) as error:
        damage.append(f"{error}{', and is made anew when the store is opened' if name.startswith(INDEX) else ''}")
        return None, 0
    return table, count


def _inspect_extent(disk: StoreDisk, name: str, limit: int | None) -> ExtentReport:
    report = ExtentReport(name)
    try:
        file = disk.open(name)
        report.size = file.size()
        header = ExtentHeader.decode(file.read(0, DATA_START))
        report.run, report.salt = header.run, header.salt
        seed, offset = seed_of(header.salt), DATA_START
        while True:
            head = decode_head(file.read(offset, HEAD_SIZE), seed)
            if head is None or (limit is not None and head.number > limit):
                break
            data = file.read(offset + HEAD_SIZE, head.control_length + head.bodies_length)
            _inspect_block(report, head, data, seed)
            offset += head.size
            report.used = offset
    except (BadBlockError, DiskError) as error:
        report.damage.append(str(error))
    except LaterFormatError as error:
        report.damage.append(error.detail)
    return report


def _inspect_block(report: ExtentReport, head: BlockHead, data: bytes, seed: int) -> None:
    report.first = report.first or head.number
    report.last = head.number
    try:
        changes = decode_control(head, data[: head.control_length], seed)
    except BadBlockError as error:
        report.damage.append(str(error))
        return
    report.copies += len(changes.copies) + len(changes.points)
    bodies = data[head.control_length :]
    if not bodies_match(head, bodies, seed):
        found = list(_damaged_copies(changes, bodies))
        shown = name_some(found, _DAMAGED_SHOWN) or "none of a copy"
        report.damage.append(f"bodies of block {head.number} do not match their checksum: {shown}")


def _damaged_copies(changes: Changes, bodies: bytes) -> Iterator[str]:
    at = 0
    for log, lsn, _, _, length, _ in changes.copies:
        image = bodies[at : at + length]
        at += length
        try:
            check_body(image, parse_header(image))
        except CorruptEntryError:
            yield f"log {log} {format_lsn(Lsn(lsn))}"
