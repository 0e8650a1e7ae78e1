"""What is read of a stream, fixed once: its log, its first record and its end, cut into partitions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from client.client import Client
from client.guards import Position
from client.spark.options import check_order
from client.spark.planning import Extent, cuts_of, end_of, start_of, tail_of
from client.spark.ranges import Cut
from logdevice_py.core.extensions import NUMBER_MAX
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, LSN_OLDEST
from logdevice_py.core.status import LogDeviceError, Status
from streams.attributes import TransactionIds
from streams.namespace import Namespace
from streams.own_logs import METADATA_GROUP
from streams.records import TxId
from streams.spark.options import StreamOptions
from streams.stream import Stream


@dataclass(frozen=True, slots=True)
class StreamRange:
    """What tasks need to know of a stream."""

    log: LogId
    kind: TransactionIds
    first: Position
    """Records before it are passed over."""
    until: Position
    """Records from it on are passed over."""


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
    until = found.until
    last = until.lsn if until.batch_offset else until.lsn - 1
    extent = Extent(stream.log, max(found.first.lsn, LSN_OLDEST), last, tail)
    return StreamPlan(found, await cuts_of(client, options.source, {extent: options.path}))


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
    rough = source.time_approximate
    end = Position(LSN(tail + 1), 0)
    if options.first_txid is not None:
        first = await _position_of(stream, options.first_txid, end, before_losses=True)
    else:
        first = Position(LSN(await start_of(client, log, source.start.default, tail, approximate=rough)), 0)
    if options.last_txid is None:
        until = Position(LSN(await end_of(client, log, source.end.default, tail, approximate=rough) + 1), 0)
    elif options.last_txid < NUMBER_MAX:
        until = await _position_of(stream, options.last_txid + 1, end, before_losses=False)
    else:
        until = end
    return StreamRange(log, stream.attributes.txid, max(first, stream.min_active), until)


async def _position_of(stream: Stream, txid: int, end: Position, *, before_losses: bool) -> Position:
    """Of the first record with that transaction id or a greater one; `end`: there is none before it. Lost records before it may have had such an id, or a
    lesser one: `before_losses` says on which side they count."""
    async with stream.reader(TxId(txid), until=end) as reader:
        while batch := await reader.read(1):
            if before_losses and batch.losses:
                return Position(LSN(batch.losses[0].lo), 0)
            for record in batch:
                return record.position
    return end
