"""Questions about a log, and trimming it: what a client can do beside writing and reading."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, Final

from client.arguments import count_argument, key_argument, lsn_argument, time_argument, timeout_argument
from client.client_operations import ClientOperations
from client.guard_arguments import number_argument
from client.guards import key_of_transaction
from client.look_up.answers import LogHead, LogTail, TrimPreview
from client.look_up.closed_segments import RememberedSegments, Span
from client.look_up.epochs_request import EpochsRequest, KnownEpochs
from client.look_up.find_request import NO_TIMESTAMP, FindRequest, FindTarget, FoundPlace
from client.look_up.release_request import ReleaseSource
from client.look_up.segments import EpochInProgress, LogSegment, listed_segments
from client.look_up.survey import LogParts, surveyed
from client.promise import Promise
from client.read.decoding import entry_records
from client.read.items import Gap, GapKind
from client.reader import Reader
from client.request_history import format_wait
from client.sequencer_state import SequencerState
from logdevice_py.core.entry import EntryHeader
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import (
    EPOCH_MAX,
    EPOCH_MIN,
    ESN_MAX,
    LSN,
    LSN_INVALID,
    LSN_MAX,
    LSN_OLDEST,
    Epoch,
    Lsn,
    compose_lsn,
    epoch_of,
)
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochInterval

TIME_MIN = Timestamp(-(1 << 63))
TIME_MAX = Timestamp((1 << 63) - 1)
_EVERYTHING = Span(LSN_OLDEST, None)
_ENTRIES_AT_ONCE: Final = 100
"""A batch is unpacked whole, so between two looks at the clock not too many are."""


def _payload_bytes(header: EntryHeader, image: bytes) -> int:
    """Of the records of an entry; those of one that is encrypted count as they are stored."""
    try:
        return sum(len(record or b"") for record in entry_records(header, image))
    except LogDeviceError as error:
        if error.status is not Status.NOKEY:
            raise
        return header.body_length


class LogQuestions(ClientOperations):
    """The part of a client that asks. `timeout` is in seconds everywhere, in place of the client's request timeout."""

    def __init__(self) -> None:
        self._histories: dict[LogId, tuple[Epoch, tuple[EpochInterval, ...]]] = {}
        """The nodesets of logs, and the epoch up to which they are known. Shards that join one later matter only where others lost what they held (`surveyed`)."""
        self._remembered = RememberedSegments()

    # What the client has

    async def known_log(self, log: int | str, timeout: float | None = None) -> LogId:
        """The id of a log named by id or path."""
        raise NotImplementedError

    def reader(
        self, log: int | str, start: int = LSN.OLDEST, until: int | str | datetime = LSN.MAX, **options: Any
    ) -> Reader:
        """A reader of [start, until]."""
        raise NotImplementedError

    def _timeout_us(self, timeout: float | None) -> int:
        given = timeout_argument(timeout)
        return self.settings.request_timeout_us if given is None else given

    # The end

    async def tail_lsn(self, log: int | str, *, timeout: float | None = None) -> LSN:
        """The last LSN that can be read: nothing acknowledged before this call lies above it. 0 when nothing was ever written.

        Raises:
            LogDeviceError: AGAIN or another retriable status when the log could not say in time.
        """
        future = self.future()
        self.session.sequencers.tail_lsn(await self.known_log(log), future, self.now(), timeout_argument(timeout))
        tail = await self._answer(future)
        assert isinstance(tail, LSN)
        return tail

    async def tail(self, log: int | str, *, timeout: float | None = None) -> LogTail:
        """The end of the log, and which record is its last.

        Raises:
            LogDeviceError: as `tail_lsn`.
        """
        future = self.future()
        self.session.sequencers.tail_record(await self.known_log(log), future, self.now(), timeout_argument(timeout))
        tail = await self._answer(future)
        assert isinstance(tail, LogTail)
        return tail

    async def known_tail(self, log: int | str, *, source: str = "quorum", timeout: float | None = None) -> LSN:
        """Up to where storage nodes know that the log can be read. No sequencer is asked, and none is started, so it is a lower bound: what was acknowledged a
        moment ago may lie above it. What is at or below it can be read, now and by everybody. Of an epoch that is over it may be the last LSN there could
        be, which has no record. 0: nobody knows of anything.

        Args:
            log: id or path.
            source: whose answers count. "quorum": the greatest of an f-majority of the shards, which is at least what all shards of some copyset were told
                before; "any": the first shard that knows of anything, however old.
            timeout: seconds.

        Raises:
            LogDeviceError: INVALID_PARAM; NOTFOUND; PARTIAL: too few shards answered; TIMEDOUT, AGAIN: where the log lies is not known.
        """
        asked = _release_source(source)
        log_id, until = await self.known_log(log), self.now() + self._timeout_us(timeout)

        async def parts() -> LogParts:
            intervals, certain = await self._history(log_id, max(0, until - self.now()))
            if certain < EPOCH_MAX:
                raise _history_unknown(log_id)
            return LogParts(intervals, LSN_MAX, self.session.config)

        async def ask(parts: LogParts) -> LSN:
            if not list(parts):
                return LSN(LSN_INVALID)
            future, left = self.future(), max(0, until - self.now())
            request = self.session.look_ups.release(log_id, parts, asked, future, self.now(), left)
            try:
                return LSN(await self._answer(future))
            finally:
                self.session.look_ups.cancel(request)

        return await surveyed(ask, await parts(), parts)

    async def sequencer(self, log: int | str, *, timeout: float | None = None) -> SequencerState:
        """Which node sequences the log, and how far it is. Activates the log when nobody sequences it.

        Raises:
            LogDeviceError: a retriable status when no sequencer could be asked in time.
        """
        future = self.future()
        self.session.sequencers.state(await self.known_log(log), future, self.now(), timeout_argument(timeout))
        state = await self._answer(future)
        assert isinstance(state, SequencerState)
        return state

    # Looking up

    async def find_time(
        self, log: int | str, when: datetime | int, *, approximate: bool = False, timeout: float | None = None
    ) -> LSN:
        """The first LSN whose record is not older than `when`; one behind the tail when there is none. A range that is to end there is read with
        ``reader(log, until=when)``: one that ends at an LSN behind the tail waits until the log reaches it.

        Timestamps are the sequencers' clocks: where these went back between epochs, several records that are not older follow an older one, and
        the answer is one of them.

        Args:
            log: id or path.
            when: an aware datetime, or microseconds since the Unix epoch, UTC.
            approximate: an LSN that is too early by as much as a time partition of the shards holds will do. No record is read for it.
            timeout: seconds.

        Raises:
            LogDeviceError: INVALID_PARAM for a naive datetime; PARTIAL when too few shards answered; as `tail_lsn`.
        """
        log_id, stamp = await self.known_log(log), _clamped(time_argument(when))
        target = FindTarget(stamp, approximate=approximate)
        closed = self._remembered.of(log_id)
        if closed is not None and not approximate:
            return LSN((await self._find_in(log_id, target, closed.span_of_time(stamp), timeout)).lsn)
        return LSN((await self._find(log_id, target, timeout))[0].lsn)

    async def find_key(self, log: int | str, key: bytes, *, timeout: float | None = None) -> LSN:
        """The first LSN that holds a record whose key is not below `key`; one behind the tail when there is none.

        It means something in logs whose keys never get smaller. Records without a key do not matter, but where there are many of them between
        those with one, all have to be looked at.

        Raises:
            LogDeviceError: INVALID_PARAM; PARTIAL when too few shards answered; as `tail_lsn`.
        """
        return LSN((await self._find(await self.known_log(log), FindTarget(key=key_argument(key)), timeout))[0].lsn)

    async def find_transaction(self, log: int | str, txid: int, *, timeout: float | None = None) -> LSN:
        """The first LSN that holds a record whose transaction id is not below `txid`; one behind the tail, or behind the segment in which it would be, when
        there is none. The segments of the log tell in which of them it is, and what is known of those is remembered, so only one is searched.

        Raises:
            LogDeviceError: INVALID_PARAM; PARTIAL when too few shards answered; as `tail_lsn`.
        """
        log_id, target = await self.known_log(log), FindTarget(key=key_of_transaction(number_argument("txid", txid)))
        until = self.now() + self._timeout_us(timeout)
        closed = self._remembered.of(log_id)
        span = None if closed is None else closed.span_of_transaction(txid)
        if span is None or span.last is None:
            await self.segments(log_id, timeout=timeout)
            closed = self._remembered.of(log_id)
            span = _EVERYTHING if closed is None else closed.span_of_transaction(txid)
        return LSN((await self._find_in(log_id, target, span, max(1, until - self.now()) / 1e6)).lsn)

    async def head(self, log: int | str, *, timeout: float | None = None) -> LogHead:
        """Where the readable part of the log begins. Records that are lost are passed over; a reader is told of them.

        Raises:
            LogDeviceError: PARTIAL when too few shards answered; as `tail_lsn`.
        """
        found, tail = await self._find(await self.known_log(log), FindTarget(), timeout)
        if found.lsn > tail:
            return LogHead(LSN(found.trim_point), None, None)
        return LogHead(LSN(found.trim_point), LSN(found.lsn), found.timestamp)

    async def is_empty(self, log: int | str, *, timeout: float | None = None) -> bool:
        """Whether there is no record to read: none was ever written, or all are trimmed, or lost with more shards than replication tolerates.
        A reader tells the latter by DATALOSS.

        Raises:
            LogDeviceError: PARTIAL when too few shards answered; as `tail_lsn`.
        """
        return (await self.head(log, timeout=timeout)).lsn is None

    async def data_size(
        self,
        log: int | str,
        start: datetime | int | None = None,
        end: datetime | int | None = None,
        *,
        timeout: float | None = None,
    ) -> int:
        """About how many bytes the records from `start` to `end` take, both included, each counted once; without them, all records.

        An estimate from what the shards' partitions hold: it counts what each entry needs beside its records, and may count what was trimmed
        until its partition is dropped.

        Raises:
            LogDeviceError: INVALID_PARAM; PARTIAL when too few shards answered; as `tail_lsn`.
        """
        first = TIME_MIN if start is None else _clamped(time_argument(start))
        last = TIME_MAX if end is None else _clamped(time_argument(end))
        log_id, until = await self.known_log(log), self.now() + self._timeout_us(timeout)
        tail = await self.tail_lsn(log_id, timeout=timeout)
        if not tail or first > last:
            return 0
        self._histories.pop(log_id, None)  # what shards hold that joined a nodeset since counts, too
        parts = await self._parts(log_id, tail, until)
        future = self.future()
        request = self.session.look_ups.size(log_id, parts, first, last, future, self.now(), max(0, until - self.now()))
        try:
            size: int = await self._answer(future)
        finally:
            self.session.look_ups.cancel(request)
        return size

    async def segments(
        self, log: int | str, *, start: int = LSN.OLDEST, limit: int | None = None, timeout: float | None = None
    ) -> list[LogSegment]:
        """The segments of the log, which are its non-empty epochs, by ascending LSN: completed ones, and at the end the one in progress. Those that are
        trimmed whole are left out. Of each it is known what it holds if the log rolls or is guarded; otherwise, where it ends.

        Args:
            log: id or path.
            start: an LSN; segments that end before it are left out.
            limit: at most so many, the first ones.
            timeout: seconds.

        Raises:
            LogDeviceError: INVALID_PARAM; PARTIAL when too few shards answered; as `tail_lsn`.
        """
        log_id, until = await self.known_log(log), self.now() + self._timeout_us(timeout)
        first_lsn, most = lsn_argument("start", start), None if limit is None else count_argument("limit", limit)
        future = self.future()
        self.session.sequencers.log_end(log_id, future, self.now(), timeout_argument(timeout))
        end = await self._answer(future)
        assert isinstance(end, EpochInProgress)
        found: list[LogSegment] = []
        trim_point = LSN_INVALID
        if end.epoch > EPOCH_MIN and end.tail:
            found, trim_point = await self._closed_segments(log_id, Epoch(end.epoch - 1), Lsn(first_lsn), most, until)
        in_progress = end.segment(trim_point)
        if in_progress is not None and end.tail >= first_lsn:
            found.append(in_progress)
        return found if most is None else found[:most]

    async def _closed_segments(
        self, log: LogId, last: Epoch, start: Lsn, most: int | None, until: int
    ) -> tuple[list[LogSegment], Lsn]:
        """Those of the epochs through `last`, which is recovered, that end at `start` or later, at least `most` of them if there are; and the trim point."""
        parts = await self._parts(log, LSN(compose_lsn(last, ESN_MAX)), until)
        begin = max(epoch_of(start), EPOCH_MIN, *(interval.since for interval, _, _ in islice(parts, 1)))
        closed = self._remembered.since(log, Epoch(begin))
        beyond: list[LogSegment] = []
        found: list[LogSegment] = []
        trim_point, asked = LSN_INVALID, False
        epoch = min(Epoch(closed.covered + 1), last)
        # where all is remembered, one epoch is asked for all the same: how much is trimmed may have changed
        while epoch <= last and (not asked or most is None or len(found) < most):
            asked = True
            known = await self._known_epochs(log, parts, epoch, last, until)
            trim_point = max(trim_point, known.trim_point)
            listed = listed_segments(known, epoch, Lsn(LSN_OLDEST))
            closed.add(listed, known.covered)
            beyond += [each for each in listed if each.epoch > closed.covered]
            found = closed.after(start, trim_point)
            found += [each for each in beyond if each.last_lsn is None or each.last_lsn >= start]
            epoch = Epoch(known.covered + 1)
        closed.forget(trim_point)
        self._remembered.shrink()
        return found, trim_point

    async def _known_epochs(self, log: LogId, parts: LogParts, first: Epoch, last: Epoch, until: int) -> KnownEpochs:
        async def ask(parts: LogParts) -> KnownEpochs:
            known = await self._looked_up(partial(self.session.look_ups.epochs, log, parts, first, last), until)
            assert isinstance(known, KnownEpochs)
            return known

        return await surveyed(ask, parts, lambda: self._parts_anew(log, LSN(compose_lsn(last, ESN_MAX)), until))

    async def _find(self, log: LogId, target: FindTarget, timeout: float | None) -> tuple[FoundPlace, LSN]:
        """What was found up to the tail, and the tail."""
        until = self.now() + self._timeout_us(timeout)
        tail = await self.tail_lsn(log, timeout=timeout)
        if not tail:
            return FoundPlace(LSN_OLDEST, NO_TIMESTAMP, LSN_INVALID), tail
        return await self._find_between(log, target, LSN_OLDEST, tail, until), tail

    async def _find_in(self, log: LogId, target: FindTarget, span: Span, timeout: float | None) -> FoundPlace:
        """What was found in a span, or up to the tail where it has no end."""
        until = self.now() + self._timeout_us(timeout)
        last = span.last
        if last is None:
            last = Lsn(await self.tail_lsn(log, timeout=timeout))
            if last < span.first:
                return FoundPlace(Lsn(last + 1), NO_TIMESTAMP, LSN_INVALID)
        return await self._find_between(log, target, span.first, LSN(last), until)

    async def _find_between(self, log: LogId, target: FindTarget, first: Lsn, last: LSN, until: int) -> FoundPlace:
        async def ask(parts: LogParts) -> FoundPlace:
            found = await self._looked_up(
                partial(self.session.look_ups.find, log, parts, target, first, Lsn(last)), until
            )
            assert isinstance(found, FoundPlace)
            return found

        parts = await self._parts(log, last, until)
        return await surveyed(ask, parts, lambda: self._parts_anew(log, last, until))

    async def _looked_up(
        self, begin: Callable[[Promise, Micros, int], EpochsRequest | FindRequest], until: int
    ) -> object:
        """What a look-up comes to that is begun with a promise, the time, and how long it may take."""
        future, left = self.future(), max(0, until - self.now())
        request = begin(future, self.now(), left)
        try:
            return await self._answer(future)
        finally:
            self.session.look_ups.cancel(request)

    async def _parts_anew(self, log: LogId, last: LSN, until: int) -> LogParts:
        """As `_parts`, of nodesets that are read from now on."""
        self._histories.pop(log, None)
        return await self._parts(log, last, until)

    async def _parts(self, log: LogId, tail: LSN, until: int) -> LogParts:
        """Where the log lies up to its tail."""
        known = self._histories.get(log)
        if known is None or known[0] < tail.epoch:
            intervals, certain = await self._history(log, max(0, until - self.now()))
            if not intervals or certain < tail.epoch:
                raise _history_unknown(log)
            known = self._histories[log] = (epoch_of(tail), intervals)
        return LogParts(known[1], Lsn(tail), self.session.config)

    # Trimming

    async def trim(self, log: int | str, lsn: int, *, timeout: float | None = None) -> None:
        """Trim everything up to `lsn`, inclusive, for good; done when every shard has made it durable.

        Raises:
            LogDeviceError: TOOBIG (above the tail, or behind the end of its epoch), PARTIAL (some shards did not answer: trim again, it is
                harmless), TIMEDOUT (what lies there could not be read in time: nothing is trimmed).
        """
        log_id, lsn = await self.known_log(log), lsn_argument("lsn", lsn)
        deadline = self.now() + self._timeout_us(timeout)
        lsn = await self._trim_point_for(log_id, lsn, deadline)
        if lsn <= 0:
            return
        shards = await self._shards_of(log_id, max(0, deadline - self.now()))
        future, now = self.future(), self.now()
        self.session.trim(log_id, lsn, shards, future, now, max(0, deadline - now))
        await self._answer(future)

    async def trim_preview(self, log: int | str, lsn: int, *, timeout: float | None = None) -> TrimPreview:
        """What `trim` would take; nothing is changed. All of it is read, so this takes as long as reading it. Without `timeout` it may: only where
        nothing comes for as long as a request may take, it ends.

        Raises:
            LogDeviceError: as `trim` does.
        """
        log_id, lsn = await self.known_log(log), lsn_argument("lsn", lsn)
        until = self.now() + self._timeout_us(timeout)
        deadline = None if timeout is None else until
        point = await self._trim_point_for(log_id, lsn, until)
        head = await self.head(log_id, timeout=self._left(deadline))
        first = LSN(head.trim_point + 1)
        if point < first:
            return TrimPreview(head.trim_point, 0, 0)
        records = size = 0
        async with self.reader(log_id, first, min(LSN(lsn), LSN(point))) as reader:
            while taken := await reader.read_entries(_ENTRIES_AT_ONCE, timeout=self._left(deadline)):
                for item in taken:
                    if not isinstance(item, Gap):
                        records += item[0].records
                        size += _payload_bytes(*item)
        return TrimPreview(LSN(point), records, size)

    def _left(self, deadline: int | None) -> float:
        """Seconds until then; None: what a request may take."""
        return (self.settings.request_timeout_us if deadline is None else max(1, deadline - self.now())) / 1e6

    async def _trim_point_for(self, log: LogId, lsn: int, deadline: int) -> int:
        """Where the trim point goes when everything up to `lsn` is trimmed; TOOBIG when that may be a mistake."""
        tail = await self.tail_lsn(log, timeout=self._left(deadline))
        if lsn > tail:
            raise LogDeviceError(Status.TOOBIG, f"{LSN(lsn)} lies above the tail of the log, {tail}")
        return await self._beside_bridge(log, lsn, tail, deadline)

    async def _beside_bridge(self, log: LogId, lsn: int, tail: LSN, deadline: int) -> int:
        """Where to trim so that the end of an epoch stays explained: the rest of an epoch whose bridge is gone would look lost.

        From a bridge on, the whole rest of the epoch goes with it, or the bridge stays when it is the tail. Who names an LSN behind the bridge does not
        know where the epoch ended, and may not mean to trim all of it.
        """
        esn = lsn & ESN_MAX
        if esn == 0:
            return lsn - 1
        if esn == ESN_MAX:
            return lsn
        first = max(lsn - 1, lsn - esn + 1)
        bridges: list[Gap] = []
        async with self.reader(log, first, lsn) as reader:
            while taken := await reader.read_entries(timeout=self._left(deadline)):
                bridges += (item for item in taken if isinstance(item, Gap) and item.kind is GapKind.BRIDGE)
        if not any(gap.lo <= lsn <= gap.hi for gap in bridges):
            return lsn
        if first < lsn and any(gap.lo <= first for gap in bridges):
            epoch = LSN(lsn).epoch
            everything = LSN(lsn - esn + (1 << 32))
            raise LogDeviceError(
                Status.TOOBIG,
                f"{LSN(lsn)} lies behind the end of epoch {epoch}; {everything} trims all of that epoch, and everything before it",
            )
        return lsn | ESN_MAX if LSN(lsn).epoch < tail.epoch else lsn - 1

    async def _shards_of(self, log: LogId, left: int) -> list[ShardId]:
        """Every shard that an epoch of the log ever listed and that the cluster file still has."""
        intervals, _ = await self._history(log, left)
        present = set(self.session.config.storage_shards())
        return sorted({shard for interval in intervals for shard in interval.shards} & present)

    async def _history(self, log: LogId, left: int) -> tuple[tuple[EpochInterval, ...], Epoch]:
        """The nodesets of the log's epochs, as its metadata log has them, and the last epoch for which that may be certain."""
        future = self.future()

        def known(history: tuple[EpochInterval, ...], now: Micros, certain: Epoch) -> None:
            if not future.done():
                future.set_result((history, certain))

        request = self.session.histories.read(log, self.now(), known)
        try:
            async with asyncio.timeout(left / 1e6):
                found: tuple[tuple[EpochInterval, ...], Epoch] = await self._answer(future)
        except TimeoutError:
            text = f"where log {log} lies is not known after {format_wait(left)}: it waited for {request.waiting_for()}"
            raise LogDeviceError(Status.TIMEDOUT, text, maybe_applied=False) from None
        finally:
            request.cancel()
        return found


def _history_unknown(log: LogId) -> LogDeviceError:
    text = f"where log {log} lies is not known: its metadata log cannot be read for certain"
    return LogDeviceError(Status.AGAIN, text, maybe_applied=False)


def _release_source(given: str) -> ReleaseSource:
    for source in ReleaseSource:
        if given == source.value:
            return source
    known = " or ".join(repr(each.value) for each in ReleaseSource)
    raise LogDeviceError(Status.INVALID_PARAM, f"source is {given!r}; it must be {known}")


def _clamped(timestamp: int) -> Timestamp:
    """As a message can carry it."""
    return Timestamp(min(max(timestamp, TIME_MIN), TIME_MAX))
