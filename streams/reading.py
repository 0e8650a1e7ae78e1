"""Readers of streams."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

from client.arguments import count_argument, time_argument, timeout_argument
from client.encryption import EncryptionKeys
from client.guard_arguments import number_argument, position_argument
from client.guards import START, Position
from client.public_names import PublicNames
from client.read.batch import RecordBatch
from client.read.items import Gap, GapKind
from client.reader import Reader
from logdevice_py.core.lsn import LSN, LSN_OLDEST
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import format_duration
from streams.attributes import TransactionIds, duration_argument
from streams.cold.copies import ColdCopy
from streams.cold.seam_reader import SeamReader
from streams.cold.store import ColdStore
from streams.records import StreamBatch, StreamRecord, TxId, txid_of, within

if TYPE_CHECKING:
    from streams.stream import Stream

TAIL: Final = "tail"
_AT_ONCE: Final = 1000
"""Records that are fetched for who iterates."""
_LOOKS: Final = (0.25, 1.0, 2.0, 5.0)
"""After how many seconds without anything a reader asks where the stream ends: the first time, the second and so on; then as the last says."""
_ASK_SECONDS: Final = 2.0
_EVERYTHING: Final = Position(LSN.MAX, 0)


class StreamReaderState(enum.Enum):
    """How a reader stands."""

    READING = "reading"  # records came, or are awaited for a moment
    CAUGHT_UP = "caught up"  # everything that was acknowledged was delivered
    STALLED = "stalled"  # there is more, or nobody says whether there is: `StreamReader.why` tells what is waited for
    ENDED = "ended"  # nothing follows


class IdleReader(LogDeviceError):
    """Nothing came for as long as the reader was asked to wait. It can be read from again."""

    def __init__(self, text: str, state: StreamReaderState, why: str) -> None:
        super().__init__(Status.TIMEDOUT, text, retriable=True, maybe_applied=False)
        self.state = state
        """CAUGHT_UP: nothing was written; STALLED: what there is cannot be had."""
        self.why = why
        """What is waited for."""


class StreamReader(PublicNames):
    """Reads a stream in order, from a place on, following it until it ends. Use it as ``async with stream.reader(...) as reader`` and either call
    `read` or iterate over records, from one task at a time.

    Records that are lost are told in `StreamBatch.losses`; who iterates gets a DATALOSS error where they were, and may iterate on behind them.
    """

    INTERNAL_NAMES = frozenset({"next_of"})

    def __init__(
        self, stream: Stream, start: Any, *, until: Any, idle: Any, encryption: EncryptionKeys | None = None
    ) -> None:
        """See `Stream.reader`."""
        self._stream = stream
        self._encryption = encryption
        self._start = _start_argument(start)
        self._until = _until_argument(until)
        self._idle_us = None if idle is None else duration_argument("idle", idle)
        self._client = stream.namespace.client
        self._kind = stream.attributes.txid
        self._reader: Reader | SeamReader | None = None
        self._reading: asyncio.Task[RecordBatch] | None = None
        self._first = START
        """What is before is passed over."""
        self._end = _EVERYTHING
        """What is not before is not read."""
        self._last = LSN.MAX
        """Up to where the log is read."""
        self._txid = 0
        """Until the first record: those with smaller transaction ids are passed over."""
        self._counted_by = TransactionIds.WRITER
        """Whose ids `_txid` is one of."""
        self._sequence_id: int | None = None
        self._tail: LSN | None = None
        """Where the stream ended when somebody said so last."""
        self._items: Iterator[StreamRecord | Gap] = iter(())
        """For who iterates."""
        self._opened = self._closed = False
        self.state = StreamReaderState.READING
        """How it stands, as of the last call of `read`."""
        self.why = ""
        """STALLED: what is waited for, for people."""

    def __repr__(self) -> str:
        why = f" ({self.why})" if self.why else ""
        return f"<StreamReader of {self._stream!r}: {self.state.value}{why}>"

    # Life

    async def __aenter__(self) -> StreamReader:
        await self._open(None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading. Harmless when called again."""
        self._closed = True
        await self._stop()

    async def _stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None
        if self._reader is not None:
            await self._reader.close()

    def _check_open(self) -> None:
        if self._closed:
            raise LogDeviceError(Status.SHUTDOWN, "the reader was closed", retriable=False)

    async def _open(self, timeout: float | None) -> None:
        """Look the start up, and begin."""
        self._check_open()
        if self._opened:
            return
        client, log = self._client, self._stream.log
        if self._until == TAIL:
            self._end = Position(LSN(await client.tail_lsn(log, timeout=timeout) + 1), 0)
        elif self._until is not None:
            self._end = self._until
        self._first = max(await self._place(timeout), self._stream.min_active)
        if self._first.lsn <= LSN_OLDEST and not self._txid:
            self._sequence_id = 0
        await self._read_from(self._first.lsn)
        self._opened = True

    async def _place(self, timeout: float | None) -> Position:
        start, client, log = self._start, self._client, self._stream.log
        if isinstance(start, Position):
            return start
        if isinstance(start, datetime) or self._kind is TransactionIds.TIME:
            micros = time_argument(start) if isinstance(start, datetime) else start.value
            found = Position(await client.find_time(log, micros, timeout=timeout), 0)
            self._counted_by = TransactionIds.TIME
            return await self._place_in_copies(found, micros, timeout)
        self._txid = start.value
        found = Position(await client.find_transaction(log, start.value, timeout=timeout), 0)
        return await self._place_in_copies(found, start.value, timeout)

    async def _place_in_copies(self, found: Position, value: int, timeout: float | None) -> Position:
        """Where to begin when the first record that is not below a transaction id, or not older, was trimmed."""
        if self._stream.attributes.cold is None:
            return found
        namespace = self._stream.namespace
        await namespace.current(timeout=timeout)
        upkeep = namespace.stream_entry(self._stream.number).upkeep
        for each in upkeep.copies:
            last = each.last_txid if self._counted_by is TransactionIds.WRITER else each.ended
            if each.copy.first <= upkeep.trimming_to and (last is None or last >= value):
                self._txid = value
                return min(found, Position(each.copy.first, 0))
        return found

    async def _read_from(self, lsn: LSN) -> None:
        last = LSN(self._end.lsn if self._end.batch_offset else max(0, self._end.lsn - 1))
        ended = self._stream.namespace.stream_entry(self._stream.number).ended
        if ended is not None:
            last = min(last, ended)
        if self._end == _EVERYTHING and ended is None:
            last = LSN.MAX
        self._last = last
        first = max(lsn, LSN.OLDEST)
        if first > last:
            self.state = StreamReaderState.ENDED
            return
        log, cold = self._stream.log, self._stream.attributes.cold
        if cold is None:
            self._reader = self._client.reader(log, first, last, encryption=self._encryption)
        else:
            store = await asyncio.to_thread(ColdStore, cold)
            self._reader = SeamReader(self._client, store, log, self._copies, first, last, encryption=self._encryption)
        await self._reader.__aenter__()

    async def _copies(self) -> list[ColdCopy]:
        """All that were committed before this call: asked for at each gap."""
        namespace = self._stream.namespace
        await namespace.current()
        return [each.copy for each in namespace.stream_entry(self._stream.number).upkeep.copies]

    # Reading

    async def read(self, max_records: int = 1000, *, timeout: float | None = None) -> StreamBatch:
        """Up to so many records. Waits for at least one, or for a loss; an empty batch means that nothing follows: the stream has ended, or all before `until`
        was read. Being cancelled loses nothing.

        Args:
            max_records: how many at most.
            timeout: seconds to wait for the first of them; None: for ever, or as `idle` says.

        Raises:
            IdleReader: nothing came for as long as `idle` says; the text says why.
            LogDeviceError: TIMEDOUT: nothing came; SHUTDOWN; as `client.reader.Reader.read`. The reader can be read from again.
        """
        count_argument("max_records", max_records)
        timeout_us = timeout_argument(timeout)
        await self._open(timeout)
        began = self._client.now()
        looks = 0
        while self.state is not StreamReaderState.ENDED:
            limits = [began + each for each in (timeout_us, self._idle_us) if each is not None]
            look_at = began + round(
                1e6 * (_LOOKS[looks] if looks < len(_LOOKS) else _LOOKS[-1] * (looks - len(_LOOKS) + 2))
            )
            batch = await self._next(max_records, min([look_at, *limits]))
            if batch is not None:
                if (found := self._taken(batch)) is not None:
                    return found
                continue
            if await self._end_if_ended():
                continue
            now = self._client.now()
            if now >= look_at:
                looks += 1
                await self._look()
            if limits and self._client.now() >= min(limits):
                await self._look()
                self._expired(began, is_idle=min(limits) != began + (timeout_us or -1))
        return StreamBatch(RecordBatch(self._stream.log), self._kind, None)

    async def _next(self, max_records: int, until: int) -> RecordBatch | None:
        """What is read next; None: nothing until then, or the namespace has changed."""
        self._check_open()
        assert self._reader is not None
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._reader.read(max_records))
            await asyncio.sleep(0)  # where records are there, nothing more is needed
        if not self._reading.done():
            change = asyncio.ensure_future(self._stream.namespace.wait_for_change(None))
            left = max(0, until - self._client.now()) / 1e6
            try:
                await asyncio.wait({self._reading, change}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                change.cancel()
        self._check_open()  # another task may have closed it meanwhile, which ended the reading
        if not self._reading.done():
            return None
        reading, self._reading = self._reading, None
        return reading.result()

    def _taken(self, batch: RecordBatch) -> StreamBatch | None:
        """What a batch of the log has for the application; None: nothing."""
        self.state, self.why = StreamReaderState.READING, ""
        if not batch:
            self.state = StreamReaderState.ENDED
            return None
        if any(gap.kind is GapKind.TRIM for gap in batch.gaps):
            self._sequence_id = None
        if self._txid and batch.runs:
            self._first = max(self._first, _first_with(batch, self._txid, self._counted_by))
            if len(within(batch, self._first, self._end)):
                self._txid = 0
        kept = within(batch, self._first, self._end)
        found = StreamBatch(kept, self._kind, self._sequence_id)
        if self._sequence_id is not None:
            self._sequence_id = None if found.losses else self._sequence_id + len(found)
        return found if len(found) or found.losses else None

    async def _end_if_ended(self) -> bool:
        """Read up to the end where the stream has one by now. Returns whether that is new."""
        entry = self._stream.namespace.stream_entry(self._stream.number)
        reader = self._reader
        assert reader is not None
        if entry.ended is None or self._last <= entry.ended:
            return False
        lsn = reader.next_lsn if self._reading is None or not self._reading.done() else None
        if lsn is None:
            return False
        await self._stop()
        await self._read_from(lsn)
        return True

    async def _look(self) -> None:
        """Find out whether there is something that does not come."""
        stream, reader = self._stream, self._reader
        assert reader is not None
        entry = stream.namespace.stream_entry(stream.number)
        try:
            if entry.ending and entry.ended is None:
                await stream.finish_end(_ASK_SECONDS)
                return
            self._tail = await self._client.tail_lsn(stream.log, timeout=_ASK_SECONDS)
        except LogDeviceError as error:
            self.state, self.why = StreamReaderState.STALLED, f"nobody says where the stream ends: {error}"
            return
        if self._reading is not None and self._reading.done():
            return
        if reader.next_lsn > self._tail:
            self.state, self.why = StreamReaderState.CAUGHT_UP, ""
        else:
            self.state, self.why = StreamReaderState.STALLED, reader.waiting_for()

    def _expired(self, began: int, *, is_idle: bool) -> None:
        if self._reading is not None and self._reading.done():
            return
        waited = format_duration(round((self._client.now() - began) / 1e5) * 100_000)
        why = f"everything up to {self._tail} was read" if self.state is StreamReaderState.CAUGHT_UP else self.why
        name = self._stream.namespace.name_of(self._stream.number)
        text = f"stream {name}: nothing came for {waited}: the reader is {self.state.value}: {why}"
        if is_idle:
            raise IdleReader(text, self.state, why)
        raise LogDeviceError(Status.TIMEDOUT, text, maybe_applied=False)

    def __aiter__(self) -> StreamReader:
        return self

    async def __anext__(self) -> StreamRecord:
        while True:
            if (record := self.next_of(self._items)) is not None:
                return record
            batch = await StreamReader.read(
                self, _AT_ONCE
            )  # which hands nothing out yet, whatever a subclass says of `read`
            if not batch:
                raise StopAsyncIteration
            self._items = batch.items()

    def next_of(self, items: Iterator[StreamRecord | Gap]) -> StreamRecord | None:
        """The next record of a batch that is iterated over; None: it has no more.

        Raises:
            LogDeviceError: DATALOSS: records were lost before it.
        """
        for item in items:
            if isinstance(item, StreamRecord):
                return item
            name = self._stream.namespace.name_of(self._stream.number)
            text = f"stream {name}: {item.lo} to {item.hi}: {item.loss}"
            raise LogDeviceError(Status.DATALOSS, text, retriable=True)
        return None


def _until_argument(until: Any) -> Position | Literal["tail"] | None:
    if until is None:
        return None
    if until == TAIL:
        return TAIL
    try:
        return position_argument(until, "until")
    except LogDeviceError:
        raise LogDeviceError(Status.INVALID_PARAM, f'until is {until!r}; it must be a position, or "tail"') from None


def _start_argument(start: Any) -> Position | TxId | datetime:
    if isinstance(start, TxId):
        return TxId(number_argument("TxId", start.value))
    if isinstance(start, datetime):
        time_argument(start)
        return start
    try:
        return position_argument(start, "start")
    except LogDeviceError:
        text = f"start is {start!r}; it must be a position, TxId(7) or an aware datetime"
        raise LogDeviceError(Status.INVALID_PARAM, text) from None


def _first_with(batch: RecordBatch, txid: int, kind: TransactionIds) -> Position:
    """The first record with this transaction id or a greater one; behind the batch when there is none."""
    for run in batch.runs:
        keys = [None] * run.count if run.keys is None else run.keys
        for index, key in enumerate(keys):
            found = txid_of(kind, key, run.timestamp)
            if found is not None and found >= txid:
                return Position(LSN(run.lsn), run.batch_offset + index)
    last = batch.runs[-1]
    return Position(LSN(last.lsn), last.batch_offset + last.count)
