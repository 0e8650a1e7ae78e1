"""How much a micro-batch takes, and in which pieces."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from client.read.batch import RecordBatch
from client.read.items import Gap, GapKind, RecordRun
from client.spark import triggers
from client.spark.options import SourceOptions
from client.spark.planning import tail_of
from client.spark.triggers import UNLIMITED
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros, Timestamp
from server.dev.dev_cluster import make_config
from tests.unit.client.spark.fakes import ListedReader

Logs = dict[int, list[tuple[int, int] | Gap]]
OPTIONS = SourceOptions.of({"cluster": "cluster.toml", "logs": "1"}, streaming=True)
CLIENT: Any = None


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    contents: Logs = {}
    monkeypatch.setattr(
        triggers, "Reader", lambda client, log, first, until, encryption: ListedReader(log, first, until, contents[log])
    )
    return contents


def entries(sizes: list[int]) -> list[tuple[int, int] | Gap]:
    return list(enumerate(sizes, start=1))


def records_between(items: list[tuple[int, int] | Gap], first: int, behind: int) -> int:
    return sum(item[1] for item in items if not isinstance(item, Gap) and first <= item[0] < behind)


async def bounded(
    logs: Logs, begin: dict[int, int], records_max: int = UNLIMITED, turn: int = 0, bytes_max: int = UNLIMITED
) -> dict[int, int]:
    end = {log: 1 + len(items) for log, items in logs.items()}
    most = triggers.Load(records_max, bytes_max)
    return await triggers.bounded_positions(CLIENT, OPTIONS, begin, end, most, turn)


@pytest.mark.parametrize(
    ("sizes", "records_max", "behind"),
    [
        ([40, 15, 15, 15], 50, 2),
        ([40, 10, 15], 50, 3),
        ([10] * 9, 95, 10),
        ([10] * 12, 95, 10),
        ([200, 1, 1], 50, 2),
        ([25_000, 3, 20_000], 50, 2),
        ([1, 200], 50, 2),
        ([0, 0, 7], 5, 4),
    ],
)
async def test_whole_entries_are_taken_up_to_the_limit_and_one_at_least(
    logs: Logs, sizes: list[int], records_max: int, behind: int
) -> None:
    logs[1] = entries(sizes)
    assert await bounded(logs, {1: 1}, records_max) == {1: behind}
    # the records of these logs have one byte each
    assert await bounded(logs, {1: 1}, bytes_max=records_max) == {1: behind}


async def test_of_two_limits_the_one_that_is_reached_first_holds(logs: Logs) -> None:
    logs[1] = entries([10] * 50)
    assert await bounded(logs, {1: 1}, 200, bytes_max=95) == {1: 10}
    assert await bounded(logs, {1: 1}, 95, bytes_max=200) == {1: 10}


def test_keys_count_as_payloads_do() -> None:
    batch = RecordBatch(LogId(1))
    batch.add_records([b"12345", b"", None], RecordRun(7, Timestamp(0), 0, 3, [b"key", None, b""]))
    count = triggers.EntryCount(triggers.Load(100, 100), one_at_least=False, sizes=True)
    assert count.add(batch, whole_to=7) is None
    assert count.taken == triggers.Load(3, 8)


async def test_gaps_cost_nothing(logs: Logs) -> None:
    logs[1] = [Gap(GapKind.HOLE, LSN(1), LSN(1)), (2, 10), Gap(GapKind.BRIDGE, LSN(3), LSN(3))]
    assert await bounded(logs, {1: 1}, 10) == {1: 4}


async def test_logs_get_equal_shares_and_what_one_does_not_need_goes_to_the_others(logs: Logs) -> None:
    logs.update({1: entries([1] * 10), 2: entries([1] * 500), 3: entries([1] * 500)})
    end = await bounded(logs, {1: 1, 2: 1, 3: 1}, 300)
    taken = {log: end[log] - 1 for log in logs}
    assert taken[1] == 10
    assert sum(taken.values()) == 300
    assert min(taken[2], taken[3]) >= 100


async def test_over_the_triggers_every_record_comes_once_and_no_log_waits_for_ever(logs: Logs) -> None:
    logs.update({1: entries([1] * 300), 2: entries([90] * 3), 3: entries([])})
    position = {1: 1, 2: 1, 3: 1}
    for turn in range(20):
        before, position = position, await bounded(logs, position, 50, turn)
        assert all(position[log] >= before[log] for log in logs)
        taken = {log: records_between(logs[log], before[log], position[log]) for log in logs}
        assert sum(taken.values()) <= 50 or list(taken.values()).count(0) == 2
    assert position == {1: 301, 2: 4, 3: 1}


async def test_a_log_that_is_not_in_the_offset_stays_out_until_something_of_it_is_taken(logs: Logs) -> None:
    logs.update({1: entries([5]), 2: entries([5])})
    assert await bounded(logs, {1: 1}, 5) == {1: 2}


class Nodes:
    """A client of nodes that do not know log 2 for so many questions."""

    def __init__(self, unknown: int, status: Status = Status.NOTFOUND) -> None:
        self.unknown = unknown
        self.status = status
        self.config = make_config(Path("/nowhere"), nodes=1, logs=2, replicate="node:1", racks=1, epoch_store=None)

    def now(self) -> int:
        return int(asyncio.get_running_loop().time() * 1e6)

    async def tail_lsn(self, log: int, *, timeout: float) -> LSN:
        if log == 2 and self.unknown:
            self.unknown -= 1
            raise LogDeviceError(self.status, f"there is no log {log}")
        return LSN(9)


async def test_a_log_that_a_node_does_not_know_yet_is_left_for_the_next_micro_batch() -> None:
    options = SourceOptions.of({"cluster": "cluster.toml", "logs": "/logs"}, streaming=True)
    client: Any = Nodes(unknown=1)
    assert await triggers.tail_positions(client, options) == {1: 10}
    assert await triggers.tail_positions(client, options) == {1: 10, 2: 10}
    client = Nodes(unknown=1, status=Status.TIMEDOUT)
    with pytest.raises(LogDeviceError, match=r"log 2 \(/logs/2\): there is no log 2"):
        await triggers.tail_positions(client, options)


async def test_a_plan_asks_again_for_a_log_that_a_node_does_not_know_yet_until_its_time_is_over() -> None:
    client: Any = Nodes(unknown=2)
    assert await tail_of(client, LogId(2), Micros(10_000_000)) == 9
    client = Nodes(unknown=1000)
    with pytest.raises(LogDeviceError, match="there is no log 2") as caught:
        await tail_of(client, LogId(2), Micros(300_000))
    assert caught.value.status is Status.NOTFOUND
