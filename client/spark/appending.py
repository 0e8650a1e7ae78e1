"""One task of a write: Arrow batches into logs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from client.buffered_writer import BufferedWriter
from client.client import Client
from client.receipt import Receipts
from client.spark.connection import client_for
from client.spark.exactly_once import ExactAppends
from client.spark.naming import WriteName
from client.spark.options import refusal
from client.spark.rows import Rows
from logdevice_py.core.status import LogDeviceError

if TYPE_CHECKING:
    from client.spark.sink_options import SinkOptions

ByLog = dict[int, tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class TaskAppends:
    """What came of one task."""

    by_log: ByLog
    """Records, first and last LSN of this try."""
    partitions: dict[int, int]
    """By log, for every log that it had rows for: which partitions have records there, as in `EarlierTries`."""
    partition: int | None
    """Its own; None: it appends at least once."""


class _Task(Protocol):
    """Where the rows of a task go."""

    async def append(self, log: int, rows: Rows, client: Client) -> None:
        """Take rows for a log; may wait for room."""

    async def finish(self, client: Client) -> None:
        """All rows were taken."""

    def outcomes(self) -> Iterator[tuple[int, asyncio.Future[Receipts]]]:
        """Of what was appended."""

    def partitions(self) -> dict[int, int]:
        """As in `TaskAppends`."""


class _AtLeastOnce:
    """Appends what comes."""

    def __init__(self, writer: BufferedWriter) -> None:
        self._writer = writer
        self._outcomes: list[tuple[int, asyncio.Future[Receipts]]] = []

    async def append(self, log: int, rows: Rows, client: Client) -> None:
        await self._writer.ready()
        outcome = self._writer.append_many(log, rows.payloads, keys=rows.keys)
        assert isinstance(outcome, asyncio.Future)
        self._outcomes.append((log, outcome))

    async def finish(self, client: Client) -> None:
        pass

    def outcomes(self) -> Iterator[tuple[int, asyncio.Future[Receipts]]]:
        return iter(self._outcomes)

    def partitions(self) -> dict[int, int]:
        return {}


class _ExactlyOnce:
    """Appends what earlier tries have not."""

    def __init__(self, writer: BufferedWriter, name: WriteName, options: SinkOptions) -> None:
        self._writer = writer
        self._name = name
        self._options = options
        self._logs: dict[int, ExactAppends] = {}

    async def append(self, log: int, rows: Rows, client: Client) -> None:
        appends = self._logs.get(log)
        if appends is None:
            appends = self._logs[log] = ExactAppends(
                client,
                self._writer,
                client.log_id(log),
                self._name,
                since=self._options.since,
                timeout_us=self._options.read_timeout_us,
            )
        await appends.append(rows)

    async def finish(self, client: Client) -> None:
        for appends in self._logs.values():
            appends.finish()

    def outcomes(self) -> Iterator[tuple[int, asyncio.Future[Receipts]]]:
        return ((log, outcome) for log, appends in self._logs.items() for outcome in appends.outcomes)

    def partitions(self) -> dict[int, int]:
        return {log: appends.partitions for log, appends in self._logs.items()}


def append_batches(batches: Iterator[Any], options: SinkOptions, name: WriteName | None) -> TaskAppends:
    """Append every row.

    Args:
        batches: rows.
        options: where they go.
        name: under which the rows are looked for and appended exactly once; None: at least once.

    Raises:
        LogDeviceError: INVALID_PARAM (a row without payload or log, or with a key that is too long), NOTFOUND, or what the first failed append came to. Rows before it may
            be in their logs.
    """
    client = client_for(options.cluster, options.access)
    chosen: dict[str, Any] = {} if options.compression is None else {"compression": options.compression}
    chosen["encryption"] = options.access.keys()
    writer = client.run(lambda inner: _writer(inner, chosen))
    task: _Task = _AtLeastOnce(writer) if name is None else _ExactlyOnce(writer, name, options)
    try:
        for batch in batches:
            for log, rows in _by_log(batch, options.log):
                client.run(partial(task.append, log, rows))
        client.run(task.finish)
        client.run(lambda inner: _close(writer))
    except BaseException:
        client.run(lambda inner: _abandon(writer))
        raise
    return TaskAppends(_summary(task.outcomes()), task.partitions(), None if name is None else name.partition)


async def _writer(client: Client, options: dict[str, Any]) -> BufferedWriter:
    return client.buffered_writer(**options)


async def _close(writer: BufferedWriter) -> None:
    """Wait until each append has its outcome. These decide: a writer also tells of rows whose append was overtaken, and which were appended again."""
    with suppress(LogDeviceError):
        await writer.close()


async def _abandon(writer: BufferedWriter) -> None:
    writer.abandon()


def _by_log(batch: Any, log: int | None) -> Iterator[tuple[int, Rows]]:
    """The rows of a batch for each log, in their order."""
    payload = batch.column(batch.schema.get_field_index("payload"))
    if payload.null_count:
        raise refusal("a row has no payload: a record may be empty, it cannot be null")
    payload = payload.cast(pa.binary())
    place = batch.schema.get_field_index("key")
    key = None if place < 0 or batch.column(place).null_count == len(payload) else batch.column(place).cast(pa.binary())
    if log is not None:
        if len(payload):
            yield log, Rows(payload.to_pylist(), None if key is None else key.to_pylist())
        return
    ids = batch.column(batch.schema.get_field_index("log_id"))
    if ids.null_count:
        raise refusal("a row has no log_id: nobody knows where it goes")
    for one in pc.unique(ids).to_pylist():
        own = pc.equal(ids, one)
        yield one, Rows(payload.filter(own).to_pylist(), None if key is None else key.filter(own).to_pylist())


def _summary(outcomes: Iterator[tuple[int, asyncio.Future[Receipts]]]) -> ByLog:
    by_log: ByLog = {}
    for log, outcome in outcomes:
        receipts = outcome.result()
        lsns = [int(run.lsn) for run in receipts.runs]
        count, first, last = by_log.get(log, (0, lsns[0], lsns[0]))
        by_log[log] = (count + len(receipts), min(first, lsns[0]), max(last, lsns[-1]))
    return by_log
