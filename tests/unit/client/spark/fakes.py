"""A reader over entries that a test lists."""

from __future__ import annotations

from typing import Any

from client.read.batch import RecordBatch
from client.read.items import Gap, RecordRun
from client.read.proof import Proof, ProofBuilder
from logdevice_py.core.entry import EntryHeader
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, Esn, Lsn
from logdevice_py.core.units import Timestamp


class ListedReader:
    """Delivers entries (LSN, number of records) and gaps between `first` and `until`, like the real one, without waiting."""

    def __init__(self, log: int, first: int, until: int, items: list[tuple[int, int] | Gap]) -> None:
        self.log = LogId(log)
        self._items: list[tuple[int, int] | Gap] = []
        for item in items:
            if isinstance(item, Gap):
                if item.hi >= first and item.lo <= until:
                    self._items.append(Gap(item.kind, LSN(max(item.lo, first)), LSN(min(item.hi, until)), item.loss))
            elif first <= item[0] <= until:
                self._items.append(item)
        self._offset = 0
        self._proof = ProofBuilder(self.log, first)
        self.closed = False

    async def __aenter__(self) -> ListedReader:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self.close()

    async def close(self) -> None:
        self.closed = True

    async def read(self, max_records: int) -> RecordBatch:
        batch, room = RecordBatch(self.log), max_records
        while self._items:
            item = self._items[0]
            if isinstance(item, Gap):
                batch.add_gap(item)
                self._proof.add_gap(item)
            elif not room:
                break
            else:
                lsn, count = item
                part = min(room, count - self._offset)
                batch.add_records([b"x"] * part, RecordRun(lsn, Timestamp(lsn), self._offset, part))
                room, self._offset = room - part, self._offset + part
                if self._offset < count:
                    break
                self._offset = 0
                self._proof.add_entry(lsn, count, count, lsn)
            self._items.pop(0)
        return batch

    async def read_entries(self, max_entries: int) -> list[tuple[EntryHeader, bytes] | Gap]:
        taken: list[tuple[EntryHeader, bytes] | Gap] = []
        while self._items and len(taken) < max_entries:
            item = self._items.pop(0)
            if isinstance(item, Gap):
                self._proof.add_gap(item)
                taken.append(item)
            else:
                lsn, count = item
                self._proof.add_entry(lsn, count, count, lsn)
                header = EntryHeader(
                    self.log, Lsn(lsn), Timestamp(lsn), 1, (), Esn(0), count, body_length=count, body_crc=lsn
                )
                taken.append((header, b"never looked at"))
        return taken

    def proof(self) -> Proof:
        return self._proof.build()

    @property
    def next_lsn(self) -> LSN:
        return LSN(self._proof.last + 1)

    def waiting_for(self) -> str:
        return "nobody"
