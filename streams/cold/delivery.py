"""From unpacked entries and gaps to the batches that readers hand out, and their proof."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from client.read.batch import RecordBatch
from client.read.items import Gap, RecordRun
from client.read.proof import Proof, ProofBuilder
from logdevice_py.core.ids import LogId
from logdevice_py.core.units import Timestamp
from streams.cold.entries import UnpackedEntry, UnpackedItem
from streams.cold.errors import damaged


class ColdDelivery:
    """Entries and gaps in order that wait for the application."""

    def __init__(self, log: LogId, first: int) -> None:
        self._log = log
        self._items: deque[UnpackedItem] = deque()
        self._offset = 0
        """How many records of the first entry were taken."""
        self._proof = ProofBuilder(log, first)
        self._next = first

    def __bool__(self) -> bool:
        return bool(self._items)

    @property
    def next_lsn(self) -> int:
        """What has to be added next."""
        return self._next

    def add(self, items: Iterable[UnpackedItem]) -> None:
        """Append entries and gaps.

        Raises:
            ColdCopyError: BADPAYLOAD: they do not follow those before.
        """
        for item in items:
            begin, end = (item.lsn, item.lsn) if type(item) is UnpackedEntry else (item.lo, item.hi)  # type: ignore[union-attr]
            if begin != self._next:
                raise damaged(f"a cold copy of log {self._log}", f"LSN {begin} follows {self._next - 1}")
            self._items.append(item)
            self._next = end + 1

    def take(self, records_max: int) -> RecordBatch:
        """Up to so many records, with the gaps before, between and behind them."""
        batch = RecordBatch(self._log)
        items, room = self._items, records_max
        while items:
            head = items[0]
            if type(head) is UnpackedEntry:
                records, offset = head.records, self._offset
                if records and not room:
                    break
                part = records if not offset and len(records) <= room else records[offset : offset + room]
                if part:
                    keys = None if head.keys is None else head.keys[offset : offset + len(part)]
                    batch.add_records(part, RecordRun(head.lsn, Timestamp(head.timestamp), offset, len(part), keys))
                    room -= len(part)
                if offset + len(part) < len(records):
                    self._offset = offset + len(part)
                    break
                self._offset = 0
                self._proof.add_entry(head.lsn, len(records), head.size, head.crc)
            else:
                assert type(head) is Gap
                batch.add_gap(head)
                self._proof.add_gap(head)
            items.popleft()
        return batch

    def proof(self) -> Proof:
        """Of what was taken whole."""
        return self._proof.build()
