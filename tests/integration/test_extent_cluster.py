"""Nodes whose shards are stored in extents: the service of a shard, and processes that are killed."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from client.client import Client
from ldquery.session import LDQuery
from logdevice_py.core.ids import Generation
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from server.dev.local_cluster import LocalCluster
from storage_node.log_store.extents.kernel_sync import KernelSync
from storage_node.log_store.extents.store import ExtentLogStore
from storage_node.log_store.interface import Completion, ReadDone, ReadShard, WriteBatch, WriteShard, Written
from storage_node.log_store.rocksdb import RocksLogStore
from storage_node.log_store.rocksdb.shard_opening import StoreInUseError, open_store
from storage_node.log_store.rocksdb.sync_thread import SyncThread
from storage_node.log_store.settings import LogStoreSettings
from storage_node.service import ShardService
from tests.integration.process_cluster import process_cluster
from tests.unit.storage_node.log_store.images import LAST, LOG, SHARD, at, put
from tests.unit.storage_node.log_store.test_kernel_sync import ScriptedQueue, loop_turns

CLUSTER = b"c" * 16
SETTINGS = LogStoreSettings(free_space_min=0, store="extents", extent_bytes=1 << 20, checkpoint_bytes=1 << 20)


async def open_service(directory: Path, settings: LogStoreSettings = SETTINGS) -> ShardService:
    async def keep(generation: Generation | None, birth: bytes) -> Generation:
        return generation or Generation(1)

    return await ShardService.open(
        str(directory), SHARD, CLUSTER, settings, keep, wall=lambda: Timestamp(time.time_ns() // 1000)
    )


async def run(service: ShardService, *effects: WriteShard | ReadShard) -> list[Completion]:
    """Their outcomes."""
    done: list[Completion] = []
    changed = asyncio.Event()

    def take(completions: list[Completion]) -> None:
        done.extend(completions)
        changed.set()

    service.run(effects, take)
    async with asyncio.timeout(20):
        while len(done) < len(effects):
            changed.clear()
            await changed.wait()
    return done


def write_of(token: int, size: int = 100_000) -> WriteShard:
    batch = WriteBatch()
    put(batch, at(token), os.urandom(size))
    return WriteShard(token, SHARD, batch, sync=True)


class TestService:
    async def test_it_writes_reads_and_comes_back(self, tmp_path: Path) -> None:
        service = await open_service(tmp_path / "shard")
        for round_ in range(10):
            done = await run(service, *(write_of(1 + round_ * 5 + each) for each in range(5)))
            assert all(isinstance(each, Written) and each.status is Status.OK for each in done)
        extents = service.view.extents()
        assert len(extents) >= 4
        await service.close()
        service = await open_service(tmp_path / "shard")
        assert service.contents.highest == [(LOG, at(50))]
        lsns = []
        first = at(1)
        while len(lsns) < 50:
            [done_] = await run(service, ReadShard(1, SHARD, LOG, first, LAST, 1 << 20))
            assert isinstance(done_, ReadDone)
            lsns += [lsn for lsn, _ in done_.result.entries]
            first = type(first)(done_.result.through + 1)
        assert lsns == [at(esn) for esn in range(1, 51)]
        await service.close()

    def test_a_store_that_is_there_stays_what_it_is(self, tmp_path: Path) -> None:
        rocks = replace(SETTINGS, store="rocksdb")
        for name, kind, first, second in (
            ("a", RocksLogStore, rocks, SETTINGS),
            ("b", ExtentLogStore, SETTINGS, rocks),
        ):
            for settings in (first, second):
                store = open_store(str(tmp_path / name), settings, SHARD)
                assert type(store) is kind
                store.abandon()
        os.rename(tmp_path / "b" / "extents", tmp_path / "a" / "extents")
        with pytest.raises(LogDeviceError, match="which one counts"):
            open_store(str(tmp_path / "a"), SETTINGS, SHARD)

    def test_a_store_that_is_open_is_not_opened_again(self, tmp_path: Path) -> None:
        store = open_store(str(tmp_path / "a"), SETTINGS, SHARD)
        with pytest.raises(StoreInUseError, match="this process has the store there open"):
            open_store(str(tmp_path / "a"), SETTINGS, SHARD)
        store.abandon()
        open_store(str(tmp_path / "a"), SETTINGS, SHARD).abandon()

    def test_another_kind_of_store_is_refused_by_the_settings(self) -> None:
        with pytest.raises(ValueError, match="there are rocksdb, extents"):
            LogStoreSettings(store="files")


class TestIncarnation:
    """The next incarnation is told when the group commit has synced it."""

    async def open_scripted(self, directory: Path) -> tuple[ShardService, ScriptedQueue]:
        """A shard whose syncs end when the test says so."""
        service, queue = await open_service(directory), ScriptedQueue()
        assert isinstance(service._store, ExtentLogStore)
        if isinstance(service._syncs, SyncThread):
            service._syncs.stop()
        else:
            service._syncs.close()
        service._syncs = KernelSync(
            service._store,
            queue,  # type: ignore[arg-type]
            asyncio.get_running_loop(),
            service._on_synced,
            service._sync_by_thread,
        )
        return service, queue

    async def test_it_waits_for_a_sync_that_begins_when_the_one_under_way_has_ended(self, tmp_path: Path) -> None:
        service, queue = await self.open_scripted(tmp_path / "shard")
        done: list[Completion] = []
        service.run([write_of(1, 1_000)], done.extend)
        told = asyncio.create_task(service.advance_incarnation())
        await loop_turns()
        assert len(queue.submitted) == 1
        queue.end(0)
        await loop_turns()
        assert len(queue.submitted) == 2
        assert [each.token for each in done if isinstance(each, Written)] == [1]
        service.run([write_of(2, 1_000)], done.extend)
        await loop_turns()
        assert not told.done()
        queue.end(0)
        await loop_turns()
        assert await told == service.marker.incarnation
        assert (len(queue.submitted), len(done)) == (3, 1)
        queue.end(0)
        await loop_turns()
        assert len(done) == 2
        await service.close()

    async def test_it_is_not_told_where_its_sync_fails(self, tmp_path: Path) -> None:
        service, queue = await self.open_scripted(tmp_path / "shard")
        told = asyncio.create_task(service.advance_incarnation())
        await loop_turns()
        assert len(queue.submitted) == 1
        queue.end(-errno.EIO)
        assert await told is None
        assert service.failed
        assert await service.advance_incarnation() is None
        await service.close()

    async def test_who_waits_when_the_shard_is_closed_gets_an_answer(self, tmp_path: Path) -> None:
        service, queue = await self.open_scripted(tmp_path / "shard")
        service.run([write_of(1, 1_000)], lambda _: None)
        told = asyncio.create_task(service.advance_incarnation())
        await loop_turns()
        closing = asyncio.create_task(service.close())
        await loop_turns()
        assert await service.advance_incarnation() is None, "it is being closed"
        queue.end(0)
        await loop_turns()
        assert len(queue.submitted) == 2
        queue.end(0)
        incarnation = await told
        await closing
        assert incarnation is not None
        assert service.marker.incarnation > incarnation

    async def test_who_does_not_wait_any_more_harms_nobody(self, tmp_path: Path) -> None:
        service, queue = await self.open_scripted(tmp_path / "shard")
        told = asyncio.create_task(service.advance_incarnation())
        await loop_turns()
        told.cancel()
        await loop_turns()
        done: list[Completion] = []
        service.run([write_of(1, 1_000)], done.extend)
        queue.end(0)
        await loop_turns()
        queue.end(0)
        await loop_turns()
        assert len(done) == 1
        await service.close()

    @pytest.mark.parametrize("kind", ["extents", "rocksdb"])
    async def test_it_is_a_sync_of_the_group_commit(self, tmp_path: Path, kind: str) -> None:
        service = await open_service(tmp_path / "shard", replace(SETTINGS, store=kind))
        before, syncs = service.marker.incarnation, service.metrics.syncs
        assert await service.advance_incarnation() == before + 1
        assert service.metrics.syncs == syncs + 1
        await service.close()


async def test_a_local_cluster_serves_from_extents() -> None:
    async with LocalCluster(nodes=1, logs=1, store="extents") as cluster, cluster.client() as client:
        receipt = await client.append(1, b"record")
        [host] = cluster.hosts.values()
        [service] = host.shards.values()
        assert [each.state for each in service.view.extents()][-1] == "head"
        assert receipt.lsn > 0


async def test_nodes_that_are_killed_have_what_they_acknowledged(tmp_path: Path) -> None:
    storage = {"store": "extents", "extent_bytes": "1MiB", "checkpoint_bytes": "1MiB"}
    async with process_cluster(
        tmp_path, nodes=3, logs=2, replicate="node:3", racks=1, settings={"storage": storage}
    ) as cluster:
        written: dict[int, list[bytes]] = {1: [], 2: []}
        async with Client(cluster.file) as client:
            for number in range(60):
                for log in written:
                    payload = b"%d " % number + os.urandom(30_000)
                    await client.append(log, payload)
                    written[log].append(payload)
            # all at once: what they serve then is what they had stored
            await cluster.kill(0, 1, 2)
            await cluster.start(0, 1, 2)
            await cluster.acquainted()
            for log, payloads in written.items():
                tail = await client.tail_lsn(log)
                async with client.reader(log, until=tail) as reader:
                    assert [item.payload async for item in reader if hasattr(item, "payload")] == payloads
        session = LDQuery(cluster.file, deadline=60)
        try:
            sql = "SELECT node_id, count(*), sum(copies) FROM extents GROUP BY node_id ORDER BY node_id"
            rows = [tuple(row) for row in (await asyncio.to_thread(session.query, sql)).rows]
        finally:
            session.close()
        assert [row[0] for row in rows] == [0, 1, 2]
        assert all(row[1] >= 3 and row[2] >= 120 for row in rows), rows
