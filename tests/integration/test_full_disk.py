"""A file system of 200 MB that fills up: records are refused before anything is damaged, and taken again when there is space."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from client.client import Client
from logdevice_py.core.ids import Generation, LogId, NodeId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Timestamp
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.local_cluster import LocalCluster
from server.dev.supervisor import write_cluster_file
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.interface import WriteBatch
from storage_node.log_store.rocksdb import RocksLogStore
from storage_node.log_store.settings import LogStoreSettings
from tests.integration.process_cluster import read_all
from tests.unit.storage_node.log_store.images import SHARD, at, put
from tests.unit.storage_node.log_store.images import read_all as read_entries

LOG = LogId(1)
SETTINGS = {
    "storage": {
        "memtable_bytes": "4MiB",
        "wal_bytes_max": "16MiB",
        "partition_bytes": "8MiB",
        "upkeep_interval_us": "200ms",
    }
}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """200 MB, of which nothing else is written to."""
    directory = tmp_path / "disk"
    directory.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount a file system")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", str(directory)], check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


def fill(path: Path) -> None:
    """Write to a file until nothing more fits on its disk, whatever else is written there meanwhile."""
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))


@pytest.mark.slow
@pytest.mark.slow
async def test_a_full_disk_refuses_records_and_takes_them_again(
    small_disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(tmp_path, nodes=1, logs=1, replicate="node:1", racks=1, epoch_store=None)
    write_cluster_file(tmp_path, dataclasses.replace(config, settings=SETTINGS))
    layout.node_directory(tmp_path, NodeId(0)).symlink_to(small_disk)
    payload = os.urandom(500_000)
    stored: list[LSN] = []
    async with LocalCluster(nodes=1, directory=tmp_path) as cluster, Client(cluster.config_file) as client:
        [service] = cluster.hosts[0].shards.values()

        async def append_until_refused() -> LogDeviceError:
            # what is written out of memory makes room for a moment, until files take all there is
            in_a_row = 0
            while True:
                try:
                    stored.append((await client.append(LOG, payload, timeout=2)).lsn)
                    in_a_row = 0
                except LogDeviceError as error:
                    in_a_row += 1
                    if in_a_row >= 3 and service.metrics.no_space:
                        return error

        for _ in range(2):
            refused = await append_until_refused()
            assert refused.status in (Status.NOSPC, Status.TIMEDOUT), refused
            assert service.metrics.no_space == 1
            free = os.statvfs(small_disk)
            assert free.f_bavail * free.f_frsize > 1 << 20, "refused before it is full"
            assert not service.failed
            # appends that are refused are tried again by the sequencer: the tail is not settled
            reading = await read_all(client, 1, until=stored[-1])
            assert {lsn for lsn, _ in reading.records} >= {int(lsn) for lsn in stored}
            await client.trim(LOG, stored[-20])
            stored = stored[-19:]
            async with asyncio.timeout(90):
                while True:
                    try:
                        stored.append((await client.append(LOG, payload, timeout=5)).lsn)
                        break
                    except LogDeviceError:
                        await asyncio.sleep(0.5)
            assert service.metrics.no_space == 0
        assert not service.failed
        reading = await read_all(client, 1)
        assert {lsn for lsn, _ in reading.records} >= {int(lsn) for lsn in stored}, (
            "those of unknown outcome may be there as well"
        )
    assert "nearly full: records are refused until there is space again" in caplog.text
    assert "there is space again" in caplog.text


async def test_a_store_is_closed_although_its_disk_is_full(small_disk: Path) -> None:
    """RocksDB would wait until it could write what is in memory to files."""
    marker = ShardMarker(b"c" * 16, SHARD, Generation(1))
    store = RocksLogStore(str(small_disk / "shard0"), LogStoreSettings(memtable_bytes=4 << 20))
    assert store.adopt(marker, boot="boot 1", now=Timestamp(SECOND)) is Status.OK
    store.load()
    batch = WriteBatch()
    for esn in range(1, 31):
        put(batch, at(esn), os.urandom(100_000), timestamp=SECOND)
    assert store.write([batch]) == [Status.OK]
    assert store.sync() is Status.OK
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        fill(filler)
    async with asyncio.timeout(30):
        await asyncio.to_thread(store.close)
    filler.unlink()
    store = RocksLogStore(str(small_disk / "shard0"), LogStoreSettings())
    assert store.adopt(marker, boot="boot 1", now=Timestamp(SECOND)) is Status.OK
    store.load()
    assert len(read_entries(store).entries) == 30
    store.close()
