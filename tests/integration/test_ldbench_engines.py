"""The drivers of the systems that ldbench compares with, on real servers; those that are not installed are skipped."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.ldbench.engine import (
    AppendError,
    Consumer,
    DurabilityClass,
    Engine,
    EngineError,
    Mode,
    Producer,
    RunningEngine,
    ServerProcess,
    Setting,
    StartAt,
    StartOptions,
)
from benchmarks.ldbench.engines import load_engine
from benchmarks.ldbench.engines.logdevice import RunningLogDevice
from benchmarks.ldbench.separate_machines import why_no_machines
from server.dev.virtual_network import VirtualNetwork, run

pytestmark = pytest.mark.slow  # three servers of a kind, some of them on the JVM

PEERS = ("jetstream", "redis", "kafka", "bookkeeper")
LEADERS = ("jetstream", "redis", "kafka")
RECORDS = [number.to_bytes(16, "big") + b"x" * 84 for number in range(1000)]
READ_SECONDS = 30.0
FAILOVER_SECONDS = 45.0


@dataclass(slots=True)
class StartedPeer:
    engine: Engine
    running: RunningEngine

    async def append(self, log: str, records: Sequence[bytes], mode: Mode, setting: Setting) -> None:
        producer = await self.running.producer(log, mode, setting)
        lists = [records[start : start + 100] for start in range(0, len(records), 100)]
        await asyncio.gather(*(producer.append_many(part) for part in lists))
        await producer.close()


@asynccontextmanager
async def started(
    name: str,
    directory: Path,
    *,
    durability: DurabilityClass,
    tolerate_failure: bool = False,
    partitions: bool = False,
) -> AsyncIterator[StartedPeer]:
    engine = load_engine(name)
    if isinstance(engine, str):
        pytest.skip(engine)
    options = StartOptions(
        directory=directory,
        durability=durability,
        tolerate_failure=tolerate_failure or partitions,
        partitions=partitions,
    )
    reason = engine.unavailable(options)
    if reason is not None:
        pytest.skip(reason)
    running = await engine.start(options)
    processes = running.processes()
    try:
        yield StartedPeer(engine, running)
    finally:
        processes = [*processes, *running.processes()]
        await running.stop()
    assert not [process for process in processes if is_running(process)]


def is_running(process: ServerProcess) -> bool:
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


async def read(consumer: Consumer, count: int) -> list[bytes]:
    records: list[bytes] = []
    async with asyncio.timeout(READ_SECONDS):
        while len(records) < count:
            records += await consumer.read()
    return records


async def append_until_acknowledged(producer: Producer, record: bytes) -> list[str]:
    """What went wrong until a lone append was acknowledged."""
    failures: list[str] = []
    deadline = time.monotonic() + FAILOVER_SECONDS
    while True:
        try:
            await producer.append_many([record])
        except AppendError as error:
            failures.append(str(error))
            assert time.monotonic() < deadline, failures[-1]
            await asyncio.sleep(0.05)
        else:
            return failures


@pytest.mark.parametrize("name", PEERS)
async def test_what_was_acknowledged_is_read_back_in_order_from_the_beginning_and_at_the_tail(
    name: str, tmp_path: Path
) -> None:
    async with started(name, tmp_path, durability=DurabilityClass.SYNC) as system:
        modes = [mode for mode in Mode if system.engine.settings(mode)]
        assert modes[0] is Mode.SINGLE
        logs = await system.running.create_logs(len(modes))
        assert len(logs) == len(modes)
        for log, mode in zip(logs, modes, strict=True):
            setting = system.engine.settings(mode)[0]
            await system.append(log, RECORDS[:500], mode, setting)
            tail = await system.running.consumer(log, StartAt.TAIL)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(tail.read(), 0.2)
            await system.append(log, RECORDS[500:], mode, setting)
            beginning = await system.running.consumer(log, StartAt.BEGINNING)
            few = await beginning.read(7)
            assert 1 <= len(few) <= 7
            assert [*few, *await read(beginning, 1000 - len(few))] == RECORDS
            # the read that was cancelled took nothing away
            assert await read(tail, 500) == RECORDS[500:]
            await tail.close()
            await beginning.close()


@pytest.mark.parametrize("name", LEADERS)
async def test_appends_go_on_after_the_leader_was_killed_and_nothing_acknowledged_is_lost(
    name: str, tmp_path: Path
) -> None:
    async with started(name, tmp_path, durability=DurabilityClass.ASYNC, tolerate_failure=True) as system:
        running = system.running
        (log,) = await running.create_logs(1)
        await system.append(log, RECORDS[:200], Mode.SINGLE, system.engine.lone_setting())
        leader = await running.leader(log)
        assert leader not in await running.followers(log)
        (victim,) = [process for process in running.processes() if process.name == leader]
        producer = await running.producer(log, Mode.SINGLE, system.engine.lone_setting(), timeout=2.0)
        await producer.append_many([RECORDS[200]])

        await running.kill(leader)

        assert not is_running(victim)
        assert leader not in [process.name for process in running.processes()]
        await append_until_acknowledged(producer, RECORDS[201])
        assert await running.leader(log) != leader
        consumer = await running.consumer(log, StartAt.BEGINNING)
        # an append that failed may be in the log all the same
        assert sorted(set(await read(consumer, 202))) == RECORDS[:202]
        await consumer.close()
        await producer.close()
        await running.restart(leader)
        assert leader in [process.name for process in running.processes()]


async def test_a_bookie_that_is_killed_or_paused_is_replaced(tmp_path: Path) -> None:
    async with started("bookkeeper", tmp_path, durability=DurabilityClass.ASYNC, tolerate_failure=True) as system:
        running = system.running
        (log,) = await running.create_logs(1)
        with pytest.raises(EngineError):
            await running.leader(log)
        bookies = await running.followers(log)
        assert len(bookies) == 3
        await system.append(log, RECORDS[:200], Mode.SINGLE, system.engine.lone_setting())

        await running.kill(bookies[0])

        await system.append(log, RECORDS[200:400], Mode.SINGLE, system.engine.lone_setting())
        assert bookies[0] not in await running.followers(log)
        await running.pause(bookies[1])
        await system.append(log, RECORDS[400:500], Mode.SINGLE, system.engine.lone_setting())
        await running.resume(bookies[1])
        consumer = await running.consumer(log, StartAt.BEGINNING)
        assert await read(consumer, 500) == RECORDS[:500]
        await consumer.close()


async def test_a_sequencers_node_that_is_cut_off_is_replaced_and_leaves_no_network_behind(tmp_path: Path) -> None:
    if (reason := why_no_machines()) is not None:
        pytest.skip(reason)
    async with started("logdevice", tmp_path, durability=DurabilityClass.ASYNC, partitions=True) as system:
        running = system.running
        assert isinstance(running, RunningLogDevice)
        (log,) = await running.create_logs(1)
        await system.append(log, RECORDS[:200], Mode.SINGLE, system.engine.lone_setting())
        leader = await running.leader(log)
        producer = await running.producer(log, Mode.SINGLE, system.engine.lone_setting(), timeout=2.0)

        await running.cut_off(leader)

        assert await append_until_acknowledged(producer, RECORDS[200]), "nobody but the node itself took the append"
        assert await running.leader(log) != leader
        await running.connect_again(leader)
        consumer = await running.consumer(log, StartAt.BEGINNING)
        # an append that failed may be in the log all the same
        assert sorted(set(await read(consumer, 201))) == RECORDS[:201]
        await consumer.close()
        await producer.close()
    mine = VirtualNetwork(()).namespace(0).removesuffix("0")
    assert mine not in await asyncio.to_thread(run, "ip", "netns", "list")


async def test_appends_to_a_paused_leader_fail_after_their_timeout_and_not_before(tmp_path: Path) -> None:
    async with started("redis", tmp_path, durability=DurabilityClass.ASYNC) as system:
        (log,) = await system.running.create_logs(1)
        producer = await system.running.producer(log, Mode.SINGLE, system.engine.lone_setting(), timeout=1.0)
        await producer.append_many(RECORDS[:10])
        await system.running.pause("r0")
        began = time.monotonic()
        with pytest.raises(AppendError):
            await producer.append_many(RECORDS[10:20])
        assert time.monotonic() - began >= 0.9
        await system.running.resume("r0")
        await append_until_acknowledged(producer, RECORDS[20])
        await producer.close()


@pytest.mark.parametrize("name", ["jetstream", "redis", "bookkeeper"])
async def test_a_system_whose_servers_end_at_once_is_reported_with_what_they_printed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load_engine(name)
    if isinstance(engine, str):
        pytest.skip(engine)
    options = StartOptions(directory=tmp_path, durability=DurabilityClass.ASYNC)
    reason = engine.unavailable(options)
    if reason is not None:
        pytest.skip(reason)
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(EngineError, match="ended with 1"):
        await engine.start(options)
