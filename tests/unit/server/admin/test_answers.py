from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web

from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.storage import StoredLogsRow
from server.admin import answers
from server.admin.answers import TableAnswer
from server.admin.metrics import AdminMetrics

TABLE = TABLES["stored_logs"]


class Clock:
    """Each look at it finds another 100 us gone."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 100
        return self.now


class Connection:
    """The transport of a request."""

    def __init__(self) -> None:
        self.transport = self
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


class Sent:
    """Stands in for the response that a table is written to."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    async def prepare(self, request: object) -> None:
        pass

    async def write(self, data: bytes) -> None:
        self.chunks.append(data)

    async def write_eof(self, data: bytes = b"") -> None:
        self.chunks.append(data)

    def content(self) -> Any:
        return json.loads(b"".join(self.chunks))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    response = Sent()
    monkeypatch.setattr(web, "StreamResponse", lambda **_: response)
    monkeypatch.setattr(answers, "monotonic_us", Clock())
    return response


def rows(count: int) -> Iterator[StoredLogsRow]:
    return (StoredLogsRow(shard=0, log_id=log, highest_lsn=log << 32) for log in range(1, count + 1))


async def send(source: Any, limit: int | None = None, connection: Connection | None = None) -> AdminMetrics:
    metrics = AdminMetrics()
    request: Any = connection or Connection()
    await TableAnswer(TABLE, "dev", bytes(16), 5, metrics, limit, config_version=7).send(request, source)
    return metrics


async def test_every_row_begins_with_the_node_and_stands_in_the_order_of_columns(sent: Sent) -> None:
    metrics = await send(rows(2))
    assert sent.content() == {
        "cluster": "dev",
        "uuid": "0" * 32,
        "node": 5,
        "config_version": 7,
        "table": "stored_logs",
        "columns": ["node_id", "shard", "log_id", "highest_lsn"],
        "rows": [[5, 0, 1, 1 << 32], [5, 0, 2, 2 << 32]],
        "more": False,
    }
    assert metrics.rows_sent == 2


async def test_long_tables_leave_the_loop_to_others_between_slices(sent: Sent) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    metrics = await send(rows(1000))
    task.cancel()
    assert len(sent.content()["rows"]) == 1000
    assert turns > 40, "no slice takes much more than its budget"
    assert metrics.table_time_max <= answers.TURN_BUDGET_US + 200


async def test_a_limit_says_whether_there_is_more(sent: Sent) -> None:
    await send(rows(10), limit=3)
    content = sent.content()
    assert (len(content["rows"]), content["more"]) == (3, True)


async def test_a_limit_that_is_just_enough_says_that_this_is_all(sent: Sent) -> None:
    await send(rows(3), limit=3)
    assert sent.content()["more"] is False


async def test_a_table_without_rows_is_complete(sent: Sent) -> None:
    await send(rows(0))
    assert sent.content()["rows"] == []


async def test_what_fails_before_the_first_slice_sends_nothing(sent: Sent) -> None:
    async def broken() -> AsyncIterator[StoredLogsRow]:
        raise LogDeviceError(Status.FAILED, "the disk")
        yield

    connection = Connection()
    with pytest.raises(LogDeviceError):
        await send(broken(), connection=connection)
    assert sent.chunks == []
    assert not connection.aborted, "it is answered as an error"


async def test_what_fails_later_leaves_no_json(sent: Sent) -> None:
    async def breaks_off() -> AsyncIterator[StoredLogsRow]:
        for row in rows(100):
            yield row
        raise LogDeviceError(Status.FAILED, "the disk")

    connection = Connection()
    with pytest.raises(LogDeviceError):
        await send(breaks_off(), connection=connection)
    assert connection.aborted
    with pytest.raises(json.JSONDecodeError):
        sent.content()
