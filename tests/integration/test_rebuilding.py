"""Nodes that are lost for good, disks that fail while their nodes live, and nodes that are emptied, in clusters of real processes: afterwards every record has all its copies."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from client.cli.program import EXIT_UNANSWERED
from client.client import Client
from ldquery.ctl.event_log import (
    mark_unrecoverable,
    read_rebuilding_set,
    start_rebuilding,
    wait_until_rebuilt,
)
from ldquery.ctl.main import parser, run
from logdevice_py.config.cluster import ClusterConfig, ShardState
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import (
    EVENT_LOG_DELTAS,
    EVENT_LOG_SNAPSHOTS,
    USER_LOG_ID_MAX,
    Generation,
    LogId,
    NodeId,
    ShardId,
    shard_id,
)
from logdevice_py.core.lsn import LSN_MAX, LSN_OLDEST, Lsn, compose_lsn
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import Timestamp
from logdevice_py.event_log.events import DonorFlags, RebuildMode, ShardNeedsRebuild, encode_event
from logdevice_py.event_log.rebuilding_set import RebuildingSet, RebuildingShard
from logdevice_py.placement.failure_domains import Authority
from server.dev import layout
from server.dev.supervisor import write_cluster_file
from storage_node.log_store.interface import ReadShard
from storage_node.log_store.rocksdb import RocksLogStore
from storage_node.log_store.settings import LogStoreSettings
from tests.integration.process_cluster import ProcessCluster, StreamWorkload, compare, process_cluster, read_all

SECONDS = 180.0
"""For what takes some on a machine of two cores with nothing else to do, while the records of writers that never rest are copied."""
SHARDS = [shard_id(NodeId(node)) for node in range(5)]
Copies = dict[LogId, dict[int, dict[ShardId, tuple[ShardId, ...]]]]
"""Per log and LSN: the copyset that each shard's copy names."""


def rebuilding(**options: Any) -> dict[str, dict[str, Any]]:
    """Settings of a cluster that rebuilds soon."""
    return {
        "rebuilding": {
            "enabled": True,
            "self_initiated_grace_period_us": "2s",
            "supervision_us": "200ms",
            "retry_us_max": "300ms",
            **options,
        }
    }


async def until(client: Client, holds: Callable[[RebuildingSet], bool]) -> None:
    """Wait until the event log says so; it may have to be recovered first."""
    while True:
        try:
            if holds(await read_rebuilding_set(client)):
                return
        except LogDeviceError as error:
            if not error.retriable:
                raise
        await asyncio.sleep(0.2)


def wait_for_words(file: Path, words: str) -> None:
    """Until they are in a node's log."""
    end = time.monotonic() + SECONDS
    while words not in file.read_text():
        assert time.monotonic() < end, f"{file} does not say: {words}"
        time.sleep(0.1)


def copies_of(cluster: ProcessCluster, nodes: Iterable[int]) -> Copies:
    """What the stores of nodes that are stopped hold of data logs."""
    found: Copies = {}
    for node in nodes:
        directory = layout.node_directory(cluster.directory, NodeId(node)) / "shard0"
        store = RocksLogStore(str(directory), LogStoreSettings())
        assert store.found is not None
        store.adopt(store.found, boot="", now=Timestamp(0))
        for log, highest in store.load().highest:
            if log > USER_LOG_ID_MAX:
                continue
            at = LSN_OLDEST
            while at <= highest:
                result = store.read(ReadShard(1, SHARDS[node], log, at, highest, 1 << 20))
                for lsn, image in result.entries:
                    found.setdefault(log, {}).setdefault(lsn, {})[SHARDS[node]] = parse_header(image).copyset
                at = Lsn(result.through + 1)
        store.close()
    return found


def check_copies(
    copies: Copies, log: int, positions: Iterable[tuple[int, int]], copies_min: int, gone: set[ShardId]
) -> None:
    """Every record has enough copies, and no copyset names a shard that is gone or holds nothing."""
    for lsn in sorted({lsn for lsn, _ in positions}):
        held = copies[LogId(log)][lsn]
        assert len(held) >= copies_min, (log, lsn, held)
        for shard, copyset in held.items():
            assert not gone & set(copyset), (log, lsn, shard, copyset)
            assert set(copyset) <= set(held), (log, lsn, shard, copyset, sorted(held))


async def test_a_node_that_is_lost_for_good_is_rebuilt_without_anybody_doing_anything(tmp_path: Path) -> None:
    async with (
        process_cluster(tmp_path, replicate="node:2", racks=1, settings=rebuilding()) as cluster,
        Client(cluster.file) as client,
    ):
        streams = [StreamWorkload(client, log, size=500) for log in (1, 2, 3)]
        for stream in streams:
            await stream.more(1000)
        await cluster.kill(4)
        await cluster.wipe(4)
        async with asyncio.timeout(SECONDS):
            await until(client, lambda state: SHARDS[4] in state.shards)
            await wait_until_rebuilt(client, SHARDS[4])
        entry = (await read_rebuilding_set(client)).shards[SHARDS[4]]
        assert (entry.flags, entry.authority) == (DonorFlags.NONE, Authority.AUTHORITATIVE_EMPTY)
        for stream in streams:
            await stream.more(100)
        journals = [await stream.finish() for stream in streams]
        for log, journal in zip((1, 2, 3), journals, strict=True):
            compare(await read_all(client, log), journal)
        for node in range(4):
            await asyncio.to_thread(wait_for_words, cluster.directory / f"n{node}.log", "INFO N4:S0 is rebuilt: ")
        await cluster.supervisor.stop_all()
        for node in range(4):
            said = (cluster.directory / f"n{node}.log").read_text()
            assert said.count("WARNING N4:S0 is taken for lost in generation 1 (N4 was dead for ") == 1, said
            assert said.count("INFO rebuilding of N4:S0 begins: ") == 1, said
            assert said.count("INFO N4:S0 is rebuilt: ") == 1, said
        copies = await asyncio.to_thread(copies_of, cluster, range(4))
        for log, journal in zip((1, 2, 3), journals, strict=True):
            check_copies(copies, log, journal.acknowledged, 2, {SHARDS[4]})


async def test_what_a_node_held_whose_nodesets_had_no_spare_finds_places_on_others(tmp_path: Path) -> None:
    """A cluster of three nodes, and three copies, that has grown to five: of what was written before, a lost copy has no place on the two that are left."""
    async with process_cluster(tmp_path, replicate="node:3", racks=1, settings=rebuilding(), change=small) as cluster:
        async with Client(cluster.file) as client:
            streams = [StreamWorkload(client, log, size=500, pause=0.02) for log in (1, 2, 3)]
            for stream in streams:
                await stream.more(300)
            for log in (1, 2, 3):
                await client.head(log)  # it knows the nodesets of now
            epochs = {stream.log: await epoch_of_append(client, stream.log) for stream in streams}
            config = cluster.supervisor.config
            nodes = {node: replace(each, shard_state=ShardState.READ_WRITE) for node, each in config.nodes.items()}
            write_cluster_file(tmp_path, replace(config, version=config.version + 1, nodes=nodes))
            async with asyncio.timeout(SECONDS):
                for log, epoch in epochs.items():
                    while await epoch_of_append(client, log) == epoch:  # noqa: ASYNC110 - nobody tells
                        await asyncio.sleep(0.2)
            for stream in streams:
                await stream.more(50)
            for lost in (0, 2):
                await cluster.kill(lost)
                await cluster.wipe(lost)
                async with asyncio.timeout(SECONDS):
                    await until(client, lambda state, shard=SHARDS[lost]: shard in state.shards)
                    await wait_until_rebuilt(client, SHARDS[lost])
                entry = (await read_rebuilding_set(client)).shards[SHARDS[lost]]
                assert (entry.flags, entry.authority) == (DonorFlags.NONE, Authority.AUTHORITATIVE_EMPTY)
                for stream in streams:
                    await stream.more(50)
            journals = [await stream.finish() for stream in streams]
            # who has read the nodesets before goes on, and finds all of it
            for log, journal in zip((1, 2, 3), journals, strict=True):
                compare(await read_all(client, log), journal)
                assert (await client.head(log)).lsn is not None
        await cluster.supervisor.stop_all()
        left = [1, 3, 4]
        copies = await asyncio.to_thread(copies_of, cluster, left)
        for log, journal in zip((1, 2, 3), journals, strict=True):
            check_copies(copies, log, journal.acknowledged, 3, {SHARDS[0], SHARDS[2]})


def small(config: ClusterConfig) -> ClusterConfig:
    """Only the first three nodes take records."""
    nodes = {
        node: each if node < 3 else replace(each, shard_state=ShardState.DISABLED)
        for node, each in config.nodes.items()
    }
    return replace(config, nodes=nodes)


async def epoch_of_append(client: Client, log: int) -> int:
    """The epoch in which a record is appended at this moment."""
    return (await client.append(log, f"probe {time.monotonic_ns()}".encode())).lsn.epoch


_FILE_BYTES: Final = 6 << 20
"""No file of a node whose disk fails grows beyond it: more than the epoch store takes, which the node goes on to use."""


@pytest.mark.parametrize("store", ["rocksdb", pytest.param("extents", marks=pytest.mark.slow)])
async def test_a_shard_whose_disk_fails_is_rebuilt_while_its_node_lives(store: str, tmp_path: Path) -> None:
    settings = {**rebuilding(), "storage": {"store": store}}
    async with (
        process_cluster(tmp_path, replicate="node:2", racks=1, settings=settings) as cluster,
        Client(cluster.file) as client,
    ):
        streams = [StreamWorkload(client, log, size=4000) for log in (1, 2, 3, 4)]
        for stream in streams:
            await stream.more(100)
        process = cluster.supervisor.children[NodeId(4)].process
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (_FILE_BYTES, resource.RLIM_INFINITY))
        async with asyncio.timeout(SECONDS):
            await until(client, lambda state: SHARDS[4] in state.shards)
            await wait_until_rebuilt(client, SHARDS[4])
        entry = (await read_rebuilding_set(client)).shards[SHARDS[4]]
        assert (entry.flags, entry.authority) == (DonorFlags.NONE, Authority.AUTHORITATIVE_EMPTY)
        assert entry.source.startswith("the disk of N4:S0 failed ")
        for stream in streams:
            await stream.more(100)
        assert process.returncode is None
        journals = [await stream.finish() for stream in streams]
        for log, journal in zip((1, 2, 3, 4), journals, strict=True):
            compare(await read_all(client, log), journal)
        await cluster.supervisor.stop_all()
        if store == "rocksdb":
            copies = await asyncio.to_thread(copies_of, cluster, range(4))
            for log, journal in zip((1, 2, 3, 4), journals, strict=True):
                check_copies(copies, log, journal.acknowledged, 2, {SHARDS[4]})
        # the disk works again: the limit went with the process
        await cluster.supervisor.start_all()
        async with asyncio.timeout(SECONDS):
            await until(client, lambda state: SHARDS[4] not in state.shards)
        for log, journal in zip((1, 2, 3, 4), journals, strict=True):
            compare(await read_all(client, log), journal)


@pytest.mark.slow
async def test_two_nodes_one_after_the_other_while_the_first_is_being_rebuilt(tmp_path: Path) -> None:
    settings = rebuilding(rate_limit_bytes="600KiB", chunk_bytes="20KiB")
    async with (
        process_cluster(tmp_path, replicate="node:3", racks=1, settings=settings) as cluster,
        Client(cluster.file) as client,
    ):
        streams = [StreamWorkload(client, log, size=500) for log in (1, 2, 3)]
        for stream in streams:
            await stream.more(2000)
        await cluster.kill(4)
        await cluster.wipe(4)
        async with asyncio.timeout(SECONDS):
            await until(client, lambda state: SHARDS[4] in state.shards)
            await cluster.kill(3)
            await cluster.wipe(3)
            await until(client, lambda state: SHARDS[3] in state.shards)
            await wait_until_rebuilt(client, SHARDS[3])
            await wait_until_rebuilt(client, SHARDS[4])
        state = await read_rebuilding_set(client)
        assert state.authority(SHARDS[4], state.shards[SHARDS[4]].generation) is Authority.AUTHORITATIVE_EMPTY
        journals = [await stream.finish() for stream in streams]
        for log, journal in zip((1, 2, 3), journals, strict=True):
            compare(await read_all(client, log), journal)
        await cluster.supervisor.stop_all()
        copies = await asyncio.to_thread(copies_of, cluster, range(3))
        for log, journal in zip((1, 2, 3), journals, strict=True):
            check_copies(copies, log, journal.acknowledged, 3, {SHARDS[3], SHARDS[4]})


@pytest.mark.slow
async def test_disks_that_are_replaced_one_after_the_other_use_up_nothing(tmp_path: Path) -> None:
    """Under the same node ids. Who knows nothing of the logs yet reads them though a third node is away, and that is rebuilt as well."""
    async with process_cluster(tmp_path, replicate="node:3", racks=1, settings=rebuilding()) as cluster:
        async with Client(cluster.file) as client:
            streams = [StreamWorkload(client, log, size=500) for log in (1, 2, 3)]
            for stream in streams:
                await stream.more(100)
            for node in (4, 3):
                await cluster.kill(node)
                await cluster.wipe(node)
                await cluster.start(node)
                said = cluster.directory / f"n{node}.log"
                await asyncio.to_thread(wait_for_words, said, "records of metadata logs came back")
                async with asyncio.timeout(SECONDS):
                    await until(client, lambda state, node=node: SHARDS[node] in state.shards)  # type: ignore[misc]
                    await wait_until_rebuilt(client, SHARDS[node])
            journals = [await stream.finish() for stream in streams]
        await cluster.kill(0)
        async with Client(cluster.file) as stranger:
            for log, journal in zip((1, 2, 3), journals, strict=True):
                compare(await read_all(stranger, log), journal)
            async with asyncio.timeout(SECONDS):
                await until(stranger, lambda state: SHARDS[0] in state.shards)
                await wait_until_rebuilt(stranger, SHARDS[0])
            await stranger.append(1, b"and so on")


@pytest.mark.slow
@pytest.mark.slow
async def test_a_drained_node_is_taken_out_and_no_record_is_short_of_copies(tmp_path: Path) -> None:
    async with (
        process_cluster(tmp_path, replicate="node:2", racks=1, settings=rebuilding()) as cluster,
        Client(cluster.file) as client,
    ):
        streams = [StreamWorkload(client, log, size=500) for log in (1, 2, 3)]
        for stream in streams:
            await stream.more(1000)
        await start_rebuilding(client, SHARDS[4], RebuildMode.RELOCATE)
        async with asyncio.timeout(SECONDS):
            await wait_until_rebuilt(client, SHARDS[4])
        assert (await read_rebuilding_set(client)).shards[SHARDS[4]].authority is Authority.AUTHORITATIVE_EMPTY
        # it serves until it is taken out
        reading = await read_all(client, 1)
        assert len(reading.records) >= 1000
        config = cluster.supervisor.config
        nodes = {node: each for node, each in config.nodes.items() if node != 4}
        metadata = replace(config.metadata_log, nodeset=tuple(SHARDS[:4]))
        fewer = replace(config, version=config.version + 1, nodes=nodes, metadata_log=metadata)
        await cluster.kill(4)
        write_cluster_file(cluster.directory, fewer)
        for stream in streams:
            await stream.more(100)
        journals = [await stream.finish() for stream in streams]
        for log, journal in zip((1, 2, 3), journals, strict=True):
            compare(await read_all(client, log), journal)
        await cluster.supervisor.stop_all()
        copies = await asyncio.to_thread(copies_of, cluster, range(4))
        for log, journal in zip((1, 2, 3), journals, strict=True):
            check_copies(copies, log, journal.acknowledged, 2, {SHARDS[4]})


@pytest.mark.slow
async def test_a_node_that_comes_back_with_its_data_is_used_again(tmp_path: Path) -> None:
    async with (
        process_cluster(tmp_path, replicate="node:2", racks=1, settings=rebuilding()) as cluster,
        Client(cluster.file) as client,
    ):
        stream = StreamWorkload(client, 1, size=500)
        await stream.more(1000)
        await cluster.kill(4)
        async with asyncio.timeout(SECONDS):
            await until(client, lambda state: SHARDS[4] in state.shards)
            await wait_until_rebuilt(client, SHARDS[4])
            await cluster.start(4)
            await until(client, lambda state: SHARDS[4] not in state.shards)
        await stream.more(100)
        journal = await stream.finish()
        compare(await read_all(client, 1), journal)


@pytest.mark.slow
async def test_more_nodes_than_replication_allows_cost_exactly_what_only_they_held(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = rebuilding(self_initiated_grace_period_us="0s")
    async with (
        process_cluster(
            tmp_path,
            replicate="node:3",  # metadata and the event log survive what the log does not
            racks=1,
            settings=settings,
            attributes={"replication": ReplicationProperty.parse("node:2"), "sticky_copysets": False},
        ) as cluster,
        Client(cluster.file) as client,
    ):
        acknowledged: dict[int, tuple[ShardId, ...]] = {}
        for number in range(400):
            receipt = await client.append(1, b"%d" % number)
            acknowledged[receipt.lsn] = receipt.copyset
        await cluster.kill(3, 4)
        await cluster.wipe(3)
        await cluster.wipe(4)
        async with asyncio.timeout(SECONDS):
            await until(client, lambda state: True)
            for shard in SHARDS[3:]:
                await start_rebuilding(client, shard, RebuildMode.RESTORE)
            for shard in SHARDS[3:]:
                await mark_unrecoverable(client, shard)
            for shard in SHARDS[3:]:
                await wait_until_rebuilt(client, shard)
            reading = await read_all(client, 1, timeout=60)
            assert await run(parser().parse_args(["-c", cluster.file, "status"])) == EXIT_UNANSWERED
        said = capsys.readouterr().err
        for node in (3, 4):
            assert f"N{node}: S0 is lost, and rebuilding it ended uncertain" in said
        lost = {lsn for lsn, copyset in acknowledged.items() if set(copyset) <= set(SHARDS[3:])}
        found = {lsn for lsn, _ in reading.records}
        losses = [(lo, hi) for kind, lo, hi in reading.gaps if kind == "dataloss"]
        told = {lsn for lsn in acknowledged if any(lo <= lsn <= hi for lo, hi in losses)}
        assert found == set(acknowledged) - told
        # where a node was slow, a wave before the last one may have left a copy on a node that is still there
        assert told <= lost
        assert told


@pytest.mark.slow
async def test_what_an_outsider_appends_to_the_event_log_stops_nobody(tmp_path: Path) -> None:
    """Thousands of shards that nobody has, a snapshot of as many, and one that is ahead of every event; a node is drained all the same."""
    invented = [shard_id(NodeId(1000 + number // 100), number % 100) for number in range(5600)]
    lie = RebuildingSet()
    lie.version = Lsn(LSN_MAX - 1)
    lie.shards = {
        shard: RebuildingShard(shard, Generation(1), RebuildMode.RESTORE, Lsn(1), recoverable=False)
        for shard in invented
    }
    snapshots = [lie.encode()]
    for version in (LSN_MAX, compose_lsn(1, 2)):
        lie.version = Lsn(version)
        snapshots.append(lie.encode())
    settings = rebuilding(self_initiated_grace_period_us="60s", snapshot_events=1000)
    async with (
        process_cluster(tmp_path, replicate="node:2", racks=1, settings=settings) as cluster,
        Client(cluster.file) as client,
    ):
        stream = StreamWorkload(client, 1, size=500)
        await stream.more(200)
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*(client.append(EVENT_LOG_SNAPSHOTS, each, timeout=60) for each in snapshots))
            for first in range(0, len(invented), 200):
                events = [
                    ShardNeedsRebuild(shard, Generation(1), RebuildMode.RESTORE, ((shard, Generation(1)),), False)
                    for shard in invented[first : first + 200]
                ]
                await asyncio.gather(
                    *(client.append(EVENT_LOG_DELTAS, encode_event(event), timeout=60) for event in events)
                )
            await stream.more(100)
            async with Client(cluster.file) as other:  # is told of them as it connects
                assert len((await read_all(other, 1)).records) >= 300
            for node in range(5):
                await cluster.kill(node)
                await cluster.start(node)
                await stream.more(20)
            async with Client(cluster.file) as other:
                await read_all(other, 1)
            await until(client, lambda state: not state.shards.keys() & set(invented))
            await start_rebuilding(client, SHARDS[4], RebuildMode.RELOCATE)
            await wait_until_rebuilt(client, SHARDS[4])
        assert (await read_rebuilding_set(client)).shards[SHARDS[4]].authority is Authority.AUTHORITATIVE_EMPTY
        await stream.more(100)
        journal = await stream.finish()
        compare(await read_all(client, 1), journal)
        assert len(cluster.peak_memory()) == 5, f"a node ended\n{cluster.logs_of_nodes()}"
        assert "Traceback" not in cluster.logs_of_nodes()
