"""What is delivered and waits for the application."""

from __future__ import annotations

from collections import deque
from typing import Final

from client.read.batch import RecordBatch
from client.read.decoding import entry_keys, entry_records, no_keys
from client.read.items import Gap, RecordRun
from client.read.metrics import ReadMetrics
from client.read.proof import Proof, ProofBuilder
from client.read.read_buffer import Buffered
from logdevice_py.core.entry import EntryFlags, EntryHeader
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.sealed_batch import OpenSealed
from logdevice_py.core.status import LogDeviceError

_KEYED: Final = int(EntryFlags.KEYED)
GAPS_MAX: Final = 1000
"""Items in a queue from which on even gaps hold the shards up."""


TAKEN_BYTES_MAX: Final = 16 << 20
"""Unpacked bytes at which a batch ends before it has the records asked for: compressed entries may be a thousand times larger unpacked."""


class ReadyQueue:
    """Entries and gaps in log order; touching gaps of one kind are one. Records are unpacked when they are taken."""

    __slots__ = ("_items", "_log", "_metrics", "_partial", "_proof", "bytes", "held_from", "open_sealed")

    def __init__(self, log: LogId, first: Lsn, metrics: ReadMetrics) -> None:
        self._log = log
        self._items: deque[Buffered | Gap] = deque()
        self._partial: tuple[list[bytes | None], int] | None = None
        self._proof = ProofBuilder(log, first)
        self._metrics = metrics
        self.open_sealed: OpenSealed = no_keys
        """What opens the batches that are encrypted."""
        self.bytes = 0
        """Of the entries."""
        self.held_from: Lsn | None = None
        """The LSN of the first entry; of the first gap when there are very many and nobody takes them. The window does not move beyond it."""

    def __len__(self) -> int:
        return len(self._items)

    def put_entry(self, copy: Buffered) -> None:
        """Append an entry."""
        self._items.append(copy)
        self.bytes += len(copy.image)
        if self.held_from is None:
            self.held_from = self._first_held()

    def put_gap(self, gap: Gap) -> None:
        """Append a gap."""
        items = self._items
        if items:
            last = items[-1]
            if type(last) is Gap and (joined := last.joined(gap)) is not None:
                items[-1] = joined
                return
        items.append(gap)
        if self.held_from is None and len(items) > GAPS_MAX:
            self.held_from = self._first_held()

    def _first_held(self) -> Lsn | None:
        if len(self._items) > GAPS_MAX and type(self._items[0]) is Gap:
            return Lsn(self._items[0].lo)
        for item in self._items:
            if type(item) is Buffered:
                return item.header.lsn
        return None

    def take(self, records_max: int) -> RecordBatch:
        """Up to so many records, with the gaps before, between and behind them; fewer when they are very large. An entry of no more than that is not
        taken in parts: it may hold atomic batches.

        Raises:
            LogDeviceError: NOKEY, MISPLACED: the next records are encrypted, and cannot be opened. Nothing was taken.
        """
        batch = RecordBatch(self._log)
        items = self._items
        room = records_max
        bytes_left = TAKEN_BYTES_MAX
        first = items[0] if items else None
        while items:
            head = items[0]
            if type(head) is Gap:
                batch.add_gap(head)
                self._pop_gap(head)
                continue
            assert type(head) is Buffered
            header = head.header
            if header.records and (not room or bytes_left <= 0):
                break
            if room < header.records <= records_max and not self._partial:
                break
            try:
                records, offset = self._partial or (entry_records(header, head.image, self.open_sealed), 0)
            except LogDeviceError:
                if len(batch) or items[0] is not first:
                    break  # what was taken before is handed out first
                raise
            part = records if not offset and len(records) <= room else records[offset : offset + room]
            if part:
                run = RecordRun(header.lsn, header.timestamp, offset, len(part))
                if header.flags & _KEYED and (keys := entry_keys(header, head.image)) is not None:
                    run.keys = keys[offset : offset + len(part)]
                batch.add_records(part, run)
                bytes_left -= _size(part)
            room -= len(part)
            if offset + len(part) < len(records):
                self._partial = (records, offset + len(part))
                break
            self._partial = None
            self._pop_entry(head)
        self._metrics.records_delivered += len(batch)
        self.held_from = self._first_held()
        return batch

    def take_entries(self, entries_max: int) -> list[tuple[EntryHeader, bytes] | Gap]:
        """Up to so many entries as they are stored, with the gaps between them. Not to be mixed with `take`."""
        assert self._partial is None, "an entry was taken in part"
        taken: list[tuple[EntryHeader, bytes] | Gap] = []
        items = self._items
        while items and len(taken) < entries_max:
            head = items[0]
            if type(head) is Gap:
                taken.append(head)
                self._pop_gap(head)
            else:
                assert type(head) is Buffered
                taken.append((head.header, head.image))
                self._metrics.records_delivered += head.header.records
                self._pop_entry(head)
        self.held_from = self._first_held()
        return taken

    def _pop_gap(self, gap: Gap) -> None:
        self._items.popleft()
        self._proof.add_gap(gap)

    def _pop_entry(self, copy: Buffered) -> None:
        self._items.popleft()
        size, header = len(copy.image), copy.header
        self.bytes -= size
        self._metrics.bytes_buffered -= size
        copy.sender.held -= size
        self._proof.add_entry(header.lsn, header.records, header.body_length, header.body_crc)

    def clear(self) -> None:
        """Nobody will take what is there."""
        for item in self._items:
            if type(item) is Buffered:
                item.sender.held -= len(item.image)
        self._metrics.bytes_buffered -= self.bytes
        self._items.clear()
        self._partial = None
        self.bytes = 0
        self.held_from = None

    @property
    def taken_to(self) -> Lsn:
        """The last LSN that was taken whole."""
        return Lsn(self._proof.last)

    def proof(self) -> Proof:
        """Of what was taken whole."""
        return self._proof.build()

    def check(self) -> None:
        """What must hold between two events."""
        assert self.bytes == sum(len(item.image) for item in self._items if type(item) is Buffered)


def _size(records: list[bytes | None]) -> int:
    """Bytes of the records that can be read."""
    try:
        return sum(map(len, records))  # type: ignore[arg-type]
    except TypeError:
        return sum(len(record) for record in records if record is not None)
