"""What is read of a stream, fixed once: its log, its first record and its end, cut into partitions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from client.client import Client
from client.encryption import EncryptionKeys
from client.guards import Position
from client.spark.options import Place, check_order
from client.spark.planning import Extent, cuts_of, end_of, start_of, tail_of
from client.spark.ranges import Cut, spread
from logdevice_py.core.extensions import NUMBER_MAX
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, LSN_INVALID, LSN_OLDEST
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp, utc_datetime
from streams.attributes import TransactionIds
from streams.cold.copies import ColdCopy
from streams.cold.seam_reader import SeamReader
from streams.cold.store import ColdStore
from streams.namespace import Namespace
from streams.own_logs import METADATA_GROUP
from streams.records import TxId
from streams.spark.options import StreamOptions
from streams.stream import Stream

_NOWHERE: Final = LSN(LSN_INVALID)


@dataclass(frozen=True, slots=True)
class StreamRange:
    """What tasks need to know of a stream."""

    log: LogId
    kind: TransactionIds
    first: Position
    """Records before it are passed over."""
    until: Position
    """Records from it on are passed over."""
    cold: str | None = None
    """The URL of the store that has copies of a part of it."""
    copies: tuple[ColdCopy, ...] = ()
    """Those that were committed when the plan was made, of what is read, in order."""
    trimmed_to: LSN = _NOWHERE
    """What the log may have no more: copies have it."""


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """A stream's range and its partitions."""

    range: StreamRange
    cuts: list[Cut]


async def stream_plan(client: Client, options: StreamOptions) -> StreamPlan:
    """Find the stream by its name at this moment, and what there is of it.

    Raises:
        LogDeviceError: NOTFOUND; INVALID_PARAM (a range ends before it begins); TIMEDOUT: somebody did not answer.
    """
    try:
        async with asyncio.timeout(options.source.read_timeout_us / 1e6):
            path, name = await _namespace_of(client, options)
            async with Namespace(client, path, create=False) as namespace:
                stream = await namespace.open(name, timeout=options.source.request_timeout_us / 1e6)
                tail = await tail_of(client, stream.log, options.source.request_timeout_us)
                found = await _range(stream, options, tail)
    except TimeoutError:
        raise LogDeviceError(
            Status.TIMEDOUT, f"stream {options.path}: its first and last record could not be found within readTimeout"
        ) from None
    copied, first, last = _copied(found, options)
    extent = Extent(stream.log, first, last, tail)
    return StreamPlan(found, copied + await cuts_of(client, options.source, {extent: options.path}))


def _copied(found: StreamRange, options: StreamOptions) -> tuple[list[Cut], LSN, LSN]:
    """The partitions of what is trimmed, and what is behind them: the first LSN, and the last one."""
    until = found.until
    last = until.lsn if until.batch_offset else LSN(until.lsn - 1)
    first = max(found.first.lsn, LSN_OLDEST)
    copied = copied_cuts(found, options.path, first, last, options.source.partition_bytes_max)
    return copied, LSN(copied[-1].hi + 1) if copied else LSN(first), last


async def find_stream(client: Client, options: StreamOptions) -> Stream:
    """The stream of a streaming query, in a namespace that follows changes; close that before the client.

    Raises:
        LogDeviceError: NOTFOUND, TIMEDOUT.
    """
    path, name = await _namespace_of(client, options)
    namespace = Namespace(client, path, create=False)
    try:
        await namespace.start()
        return await namespace.open(name, timeout=options.source.request_timeout_us / 1e6)
    except BaseException:
        await namespace.close()
        raise


async def behind_tail(client: Client, stream: Stream, options: StreamOptions) -> Position:
    """Behind the last record that can be read."""
    return Position(LSN(await tail_of(client, stream.log, options.source.request_timeout_us) + 1), 0)


async def first_position(client: Client, stream: Stream, options: StreamOptions) -> Position:
    """Where the options let a streaming query begin."""
    tail = await tail_of(client, stream.log, options.source.request_timeout_us)
    return (await _range(stream, options, tail)).first


async def plan_between(
    client: Client, stream: Stream, options: StreamOptions, begin: Position, until: Position
) -> StreamPlan:
    """What a stream has between two positions, besides what is truncated."""
    await stream.namespace.current(
        timeout=options.source.request_timeout_us / 1e6
    )  # copies are known before the log is trimmed
    found = _between(stream, max(begin, stream.min_active), until)
    if found.first >= found.until:
        return StreamPlan(found, [])
    copied, first, last = _copied(found, options)
    rest = [Cut(stream.log, options.path, first, last)] if first <= last else []
    return StreamPlan(found, copied + spread(rest, options.source.min_partitions))


def _between(stream: Stream, first: Position, until: Position) -> StreamRange:
    upkeep = stream.namespace.stream_entry(stream.number).upkeep
    copies = tuple(each.copy for each in upkeep.copies)
    needed = tuple(each for each in copies if first.lsn <= each.last and each.first <= until.lsn)
    attributes = stream.attributes
    return StreamRange(stream.log, attributes.txid, first, until, attributes.cold, needed, upkeep.trimming_to)


def copied_cuts(found: StreamRange, group: str, first: int, last: int, bytes_max: int) -> list[Cut]:
    """The partitions of what is trimmed of [first, last], from its beginning on: each ends with a copy, and has about so many bytes, or one copy."""
    cuts: list[Cut] = []
    size = 0
    for copy in found.copies:
        if copy.last < first or first > last or copy.first > min(last, found.trimmed_to):
            continue
        end = min(copy.last, last)
        if cuts and size + copy.bytes <= bytes_max:
            cuts[-1], size = replace(cuts[-1], hi=end), size + copy.bytes
        else:
            cuts.append(Cut(found.log, group, first, end))
            size = copy.bytes
        first = end + 1
    return cuts


async def _namespace_of(client: Client, options: StreamOptions) -> tuple[str, str]:
    """The namespace in which a path lies, and the name there: that of the shortest path which is one. None is made."""
    words = options.path.split("/")
    for end in range(2, len(words)):
        path = "/".join(words[:end])
        try:
            await client.get_log_group(f"{path}/{METADATA_GROUP}", timeout=options.source.request_timeout_us / 1e6)
        except LogDeviceError as error:
            if error.status is not Status.NOTFOUND:
                raise
        else:
            return path, "/".join(words[end:])
    raise LogDeviceError(Status.NOTFOUND, f"there is no stream {options.path}: no part of the path is a namespace")


async def _range(stream: Stream, options: StreamOptions, tail: int) -> StreamRange:
    source, client, log = options.source, stream.namespace.client, stream.log
    check_order(log, source.start.default, source.end.default)
    rough, keys = source.time_approximate, source.access.keys()
    end = Position(LSN(tail + 1), 0)
    upkeep = stream.namespace.stream_entry(stream.number).upkeep
    copies = tuple(each.copy for each in upkeep.copies)
    begin, stop = source.start.default, source.end.default
    if options.first_txid is not None:
        first = await _position_of(stream, TxId(options.first_txid), end, keys, before_losses=True)
    elif copies and begin.place is Place.TIME:
        first = await _position_of(stream, utc_datetime(Timestamp(begin.value)), end, keys, before_losses=True)
    else:
        first = Position(LSN(await start_of(client, log, begin, tail, approximate=rough)), 0)
        if copies and begin.place is Place.OLDEST:
            first = min(first, Position(copies[0].first, 0))
    if options.last_txid is not None:
        until = end
        if options.last_txid < NUMBER_MAX:
            until = await _position_of(stream, TxId(options.last_txid + 1), end, keys, before_losses=False)
    elif copies and stop.place is Place.TIME:
        until = await _position_of(stream, utc_datetime(Timestamp(stop.value)), end, keys, before_losses=False)
    else:
        until = Position(LSN(await end_of(client, log, stop, tail, approximate=rough) + 1), 0)
    return _between(stream, max(first, stream.min_active), until)


async def _position_of(
    stream: Stream, start: TxId | datetime, end: Position, keys: EncryptionKeys | None, *, before_losses: bool
) -> Position:
    """Of the first record with that transaction id or a greater one, or that is not older; `end`: there is none before it. Lost records before it may have had such an id, or a
    lesser one: `before_losses` says on which side they count."""
    async with stream.reader(start, until=end, encryption=keys) as reader:
        while batch := await reader.read(1):
            if before_losses and batch.losses:
                return Position(LSN(batch.losses[0].lo), 0)
            for record in batch:
                return record.position
    return end


async def open_reader(found: StreamRange, client: Client, cut: Cut, keys: EncryptionKeys | None) -> SeamReader:
    """A reader of a partition that takes from the files of copies what the log does not have any more."""
    assert found.cold is not None

    async def copies() -> tuple[ColdCopy, ...]:
        return found.copies

    return SeamReader(
        client, await asyncio.to_thread(ColdStore, found.cold), cut.log, copies, cut.lo, cut.hi, encryption=keys
    )
