"""Compares what readers get with what was written: the pages of each index with its raw logs, in bounded memory."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from indexlog.columns import table_of
from indexlog.index_log import IndexLog
from indexlog.local_store import LocalStore
from indexlog.records import Modification, readable_record
from indexlog.sorting import ExternalSorter, by_index, key_of
from indexlog.stores import FileStore
from indexlog.whole_logs import raw_generations, whole_raw_log

FOLD_BYTES: Final = 8_000_000
"""Payloads of raw records that are folded at a time."""
Rows = Iterator[tuple[str, bytes | None, int]]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Of one index."""

    index: str
    trouble: str = ""
    """What differs; empty: nothing."""


async def verify(
    log: IndexLog, indexes: Iterable[str] | None = None, *, directory: Path | None = None
) -> AsyncIterator[VerifyReport]:
    """Fold the raw logs of all generations, and compare, index by index. Nothing may be written or dropped meanwhile.

    Args:
        log: the index log.
        indexes: only these; None: all.
        directory: for files that are deleted at the end, as large as all documents; None: that of the operating system.

    Raises:
        LogDeviceError: DATALOSS: raw logs are not whole, so there is nothing to compare with; others.
    """
    await log.manifest.current()
    wanted = None if indexes is None else set(indexes)
    with tempfile.TemporaryDirectory(dir=directory, prefix="ldindex-verify-") as name:
        store = LocalStore(Path(name))
        with closing(_WrittenDocuments(log, store, wanted)) as written:
            async for number, raw_logs in raw_generations(log):
                for raw in raw_logs:
                    await written.fold(number, raw)
            expected = _Groups(by_index(written.sorter.tables()))
            for index in sorted(written.seen | (wanted or set(log.state.indexes))):
                with closing(ExternalSorter(store, "pages")) as pages:
                    async for page in log.pages(index):
                        await asyncio.to_thread(pages.add, page.table)
                    yield VerifyReport(index, await asyncio.to_thread(_compare, pages, expected, index))


class _WrittenDocuments:
    """What the raw logs hold, sorted by index and document."""

    def __init__(self, log: IndexLog, store: FileStore, wanted: set[str] | None) -> None:
        self.sorter = ExternalSorter(store, "written")
        self.seen: set[str] = set()
        """Indexes of which there are records."""
        self._log = log
        self._wanted = wanted
        self._rows: list[tuple[str, Modification]] = []
        self._size = 0

    def close(self) -> None:
        """Delete what was written for it."""
        self.sorter.close()

    async def fold(self, generation: int, raw: int) -> None:
        """The records of a raw log, newer than all before."""
        async with aclosing(whole_raw_log(self._log, raw)) as records:
            async for lsn, payload in records:
                self._add(generation, raw, lsn, payload)
                if self._size > FOLD_BYTES:
                    await self._end_run()
        await self._end_run()

    def _add(self, generation: int, raw: int, lsn: int, payload: bytes | None) -> None:
        record = readable_record(payload)
        if record is None or (self._wanted is not None and record.index not in self._wanted):
            return
        floor = self._log.state.floors.get(record.index)
        if floor is not None and floor.leaves_out(generation, raw, lsn):
            return
        self.seen.add(record.index)
        self._rows.append((key_of(record.index, record.docid), record.change))
        self._size += len(payload or b"")

    async def _end_run(self) -> None:
        rows, self._rows, self._size = self._rows, [], 0
        await asyncio.to_thread(lambda: self.sorter.add(table_of(rows)))


class _Groups:
    """Takes what a stream has of one index after the other, in their order."""

    def __init__(self, stream: Iterator[tuple[str, list[Any]]]) -> None:
        self._stream = stream
        self._head = next(stream, None)

    def rows(self, index: str) -> Rows:
        """Those of an index."""
        while self._head is not None and self._head[0] == index:
            yield from self._head[1]
            self._head = next(self._stream, None)


def _compare(pages: ExternalSorter, expected: _Groups, index: str) -> str:
    found = (
        row
        for table in pages.tables()
        for row in zip(*(table.column(name).to_pylist() for name in ("docid", "contents", "timestamp")), strict=True)
    )
    return difference(found, expected.rows(index))


@dataclass(slots=True)
class _Differing:
    """Documents that differ in one way."""

    what: str
    count: int = 0
    first: str = field(default="")

    def add(self, docid: str) -> None:
        self.first = self.first if self.count else docid
        self.count += 1


def difference(found: Rows, expected: Rows) -> str:
    """What differs between two streams of documents in the order of ids; empty: nothing."""
    missing, more, other = (_Differing(what) for what in ("missing", "too many", "different"))
    one, two = next(found, None), next(expected, None)
    while one is not None or two is not None:
        if two is None or (one is not None and one[0] < two[0]):
            assert one is not None
            more.add(one[0])
            one = next(found, None)
        elif one is None or two[0] < one[0]:
            missing.add(two[0])
            two = next(expected, None)
        else:
            if one != two:
                other.add(one[0])
            one, two = next(found, None), next(expected, None)
    told = [
        f"{each.count} documents are {each.what} in the pages, {each.first!r} for one"
        for each in (missing, more, other)
        if each.count
    ]
    return "; ".join(told)
