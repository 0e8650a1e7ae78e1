"""Whoever iterates over a stream is told where records are lost, with and without `await`, and goes on behind them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from client.guards import START
from client.read.batch import RecordBatch
from client.read.items import DataLoss, Gap, GapKind, RecordRun
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from streams.attributes import TransactionIds
from streams.reading import StreamReader
from streams.records import StreamBatch
from streams.sync import SyncStreamReader


def batches() -> list[RecordBatch]:
    """Two records with a loss between them and one behind them, a third record, and the end."""
    first, second = RecordBatch(7), RecordBatch(7)
    first.add_records([b"one"], RecordRun(LSN(1), Timestamp(1), 0, 1, None))
    first.add_gap(Gap(GapKind.DATALOSS, LSN(2), LSN(5), DataLoss(True, ())))
    first.add_records([b"six"], RecordRun(LSN(6), Timestamp(1), 0, 1, None))
    first.add_gap(Gap(GapKind.DATALOSS, LSN(7), LSN(8), DataLoss(True, ())))
    second.add_records([b"nine"], RecordRun(LSN(9), Timestamp(1), 0, 1, None))
    return [first, second, RecordBatch(7)]


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> StreamReader:
    left = batches()

    async def read(self: StreamReader, max_records: int = 1000, *, timeout: float | None = None) -> StreamBatch:
        return StreamBatch(left.pop(0), TransactionIds.TIME, None)

    monkeypatch.setattr(StreamReader, "read", read)
    namespace = SimpleNamespace(client=None, name_of=lambda number: "orders")
    stream: Any = SimpleNamespace(namespace=namespace, number=1, attributes=SimpleNamespace(txid=TransactionIds.TIME))
    return StreamReader(stream, START, until=None, idle=None)


def check_loss(error: LogDeviceError, first: int, last: int) -> None:
    assert error.status is Status.DATALOSS
    assert f"stream orders: {LSN(first)} to {LSN(last)}" in str(error)


async def test_with_await(reader: StreamReader) -> None:
    assert (await anext(reader)).payload == b"one"
    with pytest.raises(LogDeviceError) as first:
        await anext(reader)
    check_loss(first.value, 2, 5)
    assert (await anext(reader)).payload == b"six"
    with pytest.raises(LogDeviceError) as second:
        await anext(reader)
    check_loss(second.value, 7, 8)
    assert [record.payload async for record in reader] == [b"nine"]


def test_without_await(reader: StreamReader) -> None:
    client: Any = SimpleNamespace(run=lambda begin: asyncio.run(begin(None)))
    blocking = SyncStreamReader(client, reader)
    records = iter(blocking)
    assert next(records).payload == b"one"
    with pytest.raises(LogDeviceError) as first:
        next(records)
    check_loss(first.value, 2, 5)
    records = iter(blocking)
    assert next(records).payload == b"six"
    with pytest.raises(LogDeviceError) as second:
        next(records)
    check_loss(second.value, 7, 8)
    assert [record.payload for record in blocking] == [b"nine"]
