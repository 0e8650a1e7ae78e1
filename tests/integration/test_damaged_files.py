"""Bits flip in the files of a node that serves, and copies vanish from its disk: nobody reads a wrong byte, and every copy is whole again."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from client.client import Client
from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import LogId, NodeId, ShardId, shard_id
from logdevice_py.core.lsn import LSN_MAX, Lsn
from logdevice_py.core.status import LogDeviceError
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.local_cluster import LocalCluster
from server.dev.supervisor import write_cluster_file
from server.host import NodeHost
from server.registration import ShardRegistration
from storage_node.log_store import keys
from storage_node.log_store.identity import LOSS_NOT_ACCEPTED, AcceptedLoss, ShardMarker
from storage_node.log_store.interface import ReadShard
from tests.integration.process_cluster import StreamWorkload, compare, read_all

LOGS = (1, 2)
SETTINGS = {
    "storage": {
        "memtable_bytes": "256KiB",
        "partition_bytes": "2MiB",
        "wal_bytes_max": "4MiB",
        "block_cache_bytes": "64KiB",
        "recent_entries_bytes_max": "0B",
        "upkeep_interval_us": "200ms",
        "file_check_interval_us": "500ms",
        "scrub_interval_us": "2s",
        "scrub_bytes_per_s": 64 << 20,
    }
}
VICTIM = 1


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a cluster of three nodes and three copies, with small files."""
    config = make_config(tmp_path, nodes=3, logs=2, replicate="node:3", racks=1, epoch_store=None)
    write_cluster_file(tmp_path, dataclasses.replace(config, settings=SETTINGS))
    return tmp_path


def files_of(cluster: LocalCluster) -> list[Path]:
    """What RocksDB keeps of the victim, but for what it writes for people, locks, and tables of other rows than entries and their bodies: what is
    damaged of those is noticed when the shard is opened next."""
    database = layout.node_directory(cluster.directory, NodeId(VICTIM)) / "shard0" / "db"
    [service] = cluster.hosts[VICTIM].shards.values()
    others = {
        str(each["name"]).lstrip("/")
        for each in service._store._families.database.live_files()  # type: ignore[attr-defined]
        if each["start_key"][:1] not in (b"b", b"d")  # of the key of a body, of a copy
    }
    names = sorted(name for name in os.listdir(database) if not name.startswith(("LOG", "LOCK", "rocksdict")))
    names = [name for name in names if name not in others]
    return [database / name for name in names]


def flip(path: Path, rng: random.Random) -> None:
    """One bit, somewhere."""
    try:
        with open(path, "r+b") as file:
            place = rng.randrange(os.path.getsize(path))
            file.seek(place)
            [byte] = file.read(1)
            file.seek(place)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))
    except (FileNotFoundError, ValueError):
        pass  # the file is gone meanwhile


def copies(host: NodeHost, log: int) -> tuple[dict[int, bytes], list[tuple[Lsn, Lsn]]]:
    """What a node has of a log on its disk, and what of it cannot be read."""
    [service] = host.shards.values()
    images: dict[int, bytes] = {}
    corrupt: list[tuple[Lsn, Lsn]] = []
    first = Lsn(1)
    while first < LSN_MAX - 1:
        result = service.inspect(ReadShard(0, ShardId(0), LogId(log), first, Lsn(LSN_MAX - 1), 1 << 20))
        images.update(result.entries)
        corrupt += result.corrupt
        first = Lsn(result.through + 1)
    return images, corrupt


def whats_missing(cluster: LocalCluster) -> str:
    """Copies that their copysets name and that cannot be read; empty: every copy is whole."""
    for log in LOGS:
        held = {shard_id(NodeId(node)): copies(host, log) for node, host in cluster.hosts.items()}
        for shard, (images, corrupt) in held.items():
            if corrupt:
                return f"log {log}: {shard} cannot read {corrupt[:3]}"
            if not images:
                continue  # nothing was ever written to the log, so nobody knows of a release
            released = min(
                host.node.storage.shards[shard].shard.logs[LogId(log)].last_released for host, shard in pairs(cluster)
            )
            for lsn, image in images.items():
                for member in parse_header(image).copyset:
                    if lsn <= released and lsn not in held[member][0]:
                        return f"log {log}: {member} has no copy of {lsn >> 32}:{lsn & 0xFFFFFFFF}"
    return ""


def pairs(cluster: LocalCluster) -> list[tuple[NodeHost, ShardId]]:
    return [(host, shard_id(NodeId(node))) for node, host in cluster.hosts.items()]


async def until(done: Callable[[], bool], what: Callable[[], str], timeout: float = 120) -> None:
    """Wait for something to be so."""
    try:
        async with asyncio.timeout(timeout):
            while not done():  # noqa: ASYNC110 - it is looked at, nobody tells
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(what()) from None


@pytest.mark.slow
async def test_bits_flipped_in_a_hundred_places_under_load(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(5)
    async with LocalCluster(nodes=3, directory=directory) as cluster, Client(cluster.config_file) as client:
        writers = [
            StreamWorkload(client, log, name=f"w{log}", batch=10, size=size)
            for log, size in zip(LOGS, (300, 6000), strict=True)
        ]
        for writer in writers:
            await writer.more(1500, timeout=120)
        stop = asyncio.Event()

        async def read_again_and_again(log: int) -> int:
            rounds = 0
            while not stop.is_set():
                reading = await read_all(client, log)
                assert not [gap for gap in reading.gaps if gap[0] == "dataloss"], reading.gaps
                rounds += 1
                await asyncio.sleep(0.1)
            return rounds

        readers = [asyncio.create_task(read_again_and_again(log)) for log in LOGS]
        kinds: dict[str, int] = {}
        for _ in range(100):
            victims: dict[str, list[Path]] = {}
            for each in files_of(cluster):
                victims.setdefault(each.suffix or each.name.partition("-")[0], []).append(each)
            path = rng.choice(victims[rng.choice(sorted(victims))])
            kinds[path.suffix or path.name.partition("-")[0]] = (
                kinds.get(path.suffix or path.name.partition("-")[0], 0) + 1
            )
            flip(path, rng)
            await asyncio.sleep(0.02)
        [service] = cluster.hosts[VICTIM].shards.values()
        storage = cluster.hosts[VICTIM].node.storage
        assert storage is not None
        [machines] = storage.shards.values()
        journals = [await writer.finish() for writer in writers]
        passes = machines.scrubber.passes

        def whole() -> bool:
            return (
                machines.scrubber.passes > passes
                and not service.metrics.damaged_partitions
                and not machines.repairs.damaged
                and not service._store.find_damage_in_use()
                and not whats_missing(cluster)
            )

        await until(whole, lambda: f"{whats_missing(cluster)}; {machines.repairs.damaged}; {service.metrics}")
        before = service.metrics.background_errors
        await asyncio.sleep(3)
        assert service.metrics.background_errors == before, "compaction does not fail any more"
        stop.set()
        assert min(await asyncio.gather(*readers)) >= 1
        for log, journal in zip(LOGS, journals, strict=True):
            compare(await read_all(client, log), journal)
        assert kinds.keys() >= {".sst", ".blob", ".log", "MANIFEST"}, kinds
        assert storage.metrics.copies_restored > 0
        assert not service.failed
    for words in ("does not match its checksum", "re-replicated from N0:S0", "is whole again"):
        assert words in caplog.text
    print(kinds, storage.metrics.copies_restored, "copies restored")


async def test_copies_that_vanish_without_a_trace_are_found_and_made_again(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with LocalCluster(nodes=3, directory=directory) as cluster, Client(cluster.config_file) as client:
        receipts = [await client.append(LogId(1), b"x" * 100) for _ in range(200)]
        [service] = cluster.hosts[VICTIM].shards.values()
        store = service._store
        for receipt in receipts[50:60]:
            begin, end = keys.data_bounds(1, receipt.lsn, receipt.lsn)
            store._families.reader(store.partitions[-1]).delete_range(begin, end)
        assert "has no copy" in whats_missing(cluster)
        metrics = cluster.hosts[VICTIM].node.storage.metrics
        # a copy can be read before its write is synced, and is counted once it is
        await until(lambda: metrics.copies_restored >= 10, lambda: f"{whats_missing(cluster)}; {metrics}")
        assert metrics.copies_restored == 10
        assert not whats_missing(cluster)
    assert "copies are not here that other shards say should be" in caplog.text


def shard_files(cluster: Path, index: int, pattern: str) -> list[Path]:
    return sorted((layout.node_directory(cluster, NodeId(0)) / f"shard{index}" / "db").glob(pattern))


@pytest.mark.parametrize("pattern", ["MANIFEST-*", "*.log", "*.sst"])
async def test_a_file_that_cannot_be_opened_takes_one_shard_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, pattern: str
) -> None:
    config = make_config(tmp_path, nodes=1, logs=1, replicate="node:1", racks=1, epoch_store=None)
    member = dataclasses.replace(config.nodes[NodeId(0)], shards=2)
    write_cluster_file(tmp_path, dataclasses.replace(config, nodes={NodeId(0): member}))
    file, directory = layout.cluster_file(tmp_path), layout.node_directory(tmp_path, NodeId(0))

    async def opened(accepted: AcceptedLoss = LOSS_NOT_ACCEPTED) -> dict[int, int]:
        host = await NodeHost.open(file, NodeId(0), directory, accepted)
        found = {shard & 0xFF: service.contents.marker.generation for shard, service in host.shards.items()}
        assert {shard & 0xFF for shard in host.config.storage_shards() if host.node.gossip.serves(shard)} == set(found)
        if pattern == "*.log":
            # as if the process was killed: the log is not written out of memory
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
            shutil.copytree(directory, tmp_path / "copy")
        await host.close()
        if pattern == "*.log":
            shutil.rmtree(directory)
            (tmp_path / "copy").rename(directory)
        return found

    def all_settled(self: ShardRegistration, marker: ShardMarker) -> Awaitable[None]:
        return asyncio.sleep(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShardRegistration, "note", all_settled)  # what is put back here is meant
        assert await opened() == {0: 1, 1: 1}
        victim = max(shard_files(tmp_path, 0, pattern), key=os.path.getsize)
        content = bytearray(victim.read_bytes())
        content[20] ^= 1
        victim.write_bytes(content)
        for accepted, hint in ((LOSS_NOT_ACCEPTED, ""), (AcceptedLoss.parse(["N0:S0=2"]), "the generation is 1.")):
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                assert await opened(accepted) == {1: 1}
            assert "N0:S0 is out of service, the other shards of the node serve" in caplog.text
            assert "start it once with --accept-data-loss N0:S0=1." in caplog.text
            assert hint in caplog.text
        assert victim.read_bytes() == content, "nothing is changed"
        assert await opened(AcceptedLoss.parse(["N0:S0=1"])) == {0: 2, 1: 1}
        assert (directory / "shard0.damaged-1" / "db").is_dir()


async def test_a_node_whose_only_store_is_damaged_says_the_ways_out(tmp_path: Path) -> None:
    config = make_config(tmp_path, nodes=1, logs=1, replicate="node:1", racks=1, epoch_store=None)
    write_cluster_file(tmp_path, config)
    file, directory = layout.cluster_file(tmp_path), layout.node_directory(tmp_path, NodeId(0))
    await (await NodeHost.open(file, NodeId(0), directory)).close()
    manifest = max(shard_files(tmp_path, 0, "MANIFEST-*"), key=os.path.getsize)
    content = bytearray(manifest.read_bytes())
    content[20] ^= 1
    manifest.write_bytes(content)
    for accepted, hint in ((LOSS_NOT_ACCEPTED, ""), (AcceptedLoss.parse(["N0:S0=7"]), "N0:S0=7 accepts nothing")):
        with pytest.raises(LogDeviceError) as refused:
            await NodeHost.open(file, NodeId(0), directory, accepted)
        for part in ('N0:S0 of cluster "dev"', "MANIFEST", "a copy of the files", "--accept-data-loss N0:S0=1.", hint):
            assert part in refused.value.detail


async def test_current_is_written_again(tmp_path: Path) -> None:
    config = make_config(tmp_path, nodes=1, logs=1, replicate="node:1", racks=1, epoch_store=None)
    write_cluster_file(tmp_path, config)
    file, directory = layout.cluster_file(tmp_path), layout.node_directory(tmp_path, NodeId(0))
    await (await NodeHost.open(file, NodeId(0), directory)).close()
    [current] = shard_files(tmp_path, 0, "CURRENT")
    before = current.read_bytes()
    current.write_bytes(b"MANIFESU" + before[8:])
    await (await NodeHost.open(file, NodeId(0), directory)).close()
    assert current.read_text().startswith("MANIFEST-")
