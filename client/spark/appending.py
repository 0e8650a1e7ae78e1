"""One task of a write: Arrow batches into logs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from client.buffered_writer import BufferedWriter
from client.client import Client
from client.receipt import Receipts
from client.spark.connection import client_for
from client.spark.options import refusal

if TYPE_CHECKING:
    from client.spark.writer import SinkOptions

ByLog = dict[int, tuple[int, int, int]]


def append_batches(batches: Iterator[Any], options: SinkOptions) -> ByLog:
    """Append every row; what came of it by log: records, first and last LSN.

    Raises:
        LogDeviceError: INVALID_PARAM (a row without payload or log), NOTFOUND, or what the first failed append came to. Rows before it may
            be in their logs.
    """
    client = client_for(options.cluster)
    chosen = {} if options.compression is None else {"compression": options.compression}
    writer = client.run(lambda inner: _writer(inner, chosen))
    outcomes: list[tuple[int, asyncio.Future[Receipts]]] = []
    try:
        for batch in batches:
            for log, payloads in _by_log(batch, options.log):
                outcomes.append((log, client.run(partial(_take, writer, log, payloads))))
        client.run(lambda inner: writer.close())
    except BaseException:
        client.run(lambda inner: _abandon(writer))
        raise
    return _summary(outcomes)


async def _writer(client: Client, options: dict[str, Any]) -> BufferedWriter:
    return client.buffered_writer(**options)


async def _abandon(writer: BufferedWriter) -> None:
    writer.abandon()


async def _take(writer: BufferedWriter, log: int, payloads: list[bytes], client: Client) -> Any:
    """Wait for room, then hand over."""
    await writer.ready()
    return writer.append_many(log, payloads)


def _by_log(batch: Any, log: int | None) -> Iterator[tuple[int, list[bytes]]]:
    """The payloads of a batch for each log, in the order of the rows."""
    payload = batch.column(batch.schema.get_field_index("payload"))
    if payload.null_count:
        raise refusal("a row has no payload: a record may be empty, it cannot be null")
    payload = payload.cast(pa.binary())
    if log is not None:
        if len(payload):
            yield log, payload.to_pylist()
        return
    ids = batch.column(batch.schema.get_field_index("log_id"))
    if ids.null_count:
        raise refusal("a row has no log_id: nobody knows where it goes")
    for one in pc.unique(ids).to_pylist():
        yield one, payload.filter(pc.equal(ids, one)).to_pylist()


def _summary(outcomes: list[tuple[int, asyncio.Future[Receipts]]]) -> ByLog:
    by_log: ByLog = {}
    for log, outcome in outcomes:
        receipts = outcome.result()
        lsns = [int(run.lsn) for run in receipts.runs]
        count, first, last = by_log.get(log, (0, lsns[0], lsns[0]))
        by_log[log] = (count + len(receipts), min(first, lsns[0]), max(last, lsns[-1]))
    return by_log
