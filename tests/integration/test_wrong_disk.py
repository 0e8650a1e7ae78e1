"""A node that is started on a disk that is not its own: an empty one, another node's, one that was replaced."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from client.client import Client
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.tables.constraints import EVERYTHING
from server.admin.tables import NodeTables
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.local_cluster import LocalCluster
from server.dev.supervisor import write_cluster_file
from server.host import NodeHost
from server.registration import ShardRegistration
from storage_node.log_store import identity
from storage_node.log_store.extents import block_format
from storage_node.log_store.identity import LOSS_NOT_ACCEPTED, AcceptedLoss, ShardMarker
from storage_node.log_store.rocksdb import RocksLogStore

ONE = AcceptedLoss.parse(["N0:S0=1"])


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A cluster of two nodes, none of which runs; its directory."""
    directory = tmp_path / "c"
    directory.mkdir()
    config = make_config(directory, nodes=2, logs=1, replicate="node:1", racks=1, epoch_store=None)
    write_cluster_file(directory, config)
    return directory


async def quarantined(directory: Path) -> list[tuple[int, str, str]]:
    """Shard, reason and path of what a node that runs lists."""
    data = layout.node_directory(directory, NodeId(0))
    host = await NodeHost.open(layout.cluster_file(directory), NodeId(0), data)
    rows: Any = NodeTables(host).rows("quarantined_stores", EVERYTHING)
    found = [(row.shard, row.reason, row.directory) async for row in rows]
    await host.close()
    return found


async def run_once(directory: Path, node: int = 0, accepted: AcceptedLoss = LOSS_NOT_ACCEPTED) -> int:
    """Start a node as an operator does, stop it; the generation of its shard."""
    host = await NodeHost.open(
        layout.cluster_file(directory), NodeId(node), layout.node_directory(directory, NodeId(node)), accepted
    )
    [service] = host.shards.values()
    generation = service.contents.marker.generation
    await host.close()
    return generation


def names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


@pytest.mark.parametrize("state", ["missing", "empty", "without its shard"])
async def test_a_node_does_not_take_an_empty_directory_for_its_own(cluster: Path, state: str) -> None:
    await run_once(cluster)
    node = cluster / "n0"
    node.rename(cluster / "elsewhere")
    if state != "missing":
        node.mkdir()
    if state == "without its shard":
        (node / "lost+found").mkdir()
    before = names(cluster / "n0")
    with pytest.raises(LogDeviceError) as refused:
        await run_once(cluster)
    for part in ('N0:S0 of cluster "dev"', "generation 1", str(node / "shard0"), "--accept-data-loss N0:S0=1"):
        assert part in refused.value.detail
    assert names(cluster / "n0") == before, "a start that is refused leaves nothing behind"
    if state != "missing":
        shutil.rmtree(node)
    (cluster / "elsewhere").rename(node)
    assert await run_once(cluster) == 1


async def test_a_loss_is_accepted_once(cluster: Path) -> None:
    await run_once(cluster)
    shutil.rmtree(cluster / "n0")
    assert await run_once(cluster, accepted=ONE) == 2
    shutil.rmtree(cluster / "n0")
    with pytest.raises(LogDeviceError, match="should have generation 2"):
        await run_once(cluster, accepted=ONE)


async def test_a_consent_that_was_not_needed_is_pointed_out(cluster: Path, caplog: pytest.LogCaptureFixture) -> None:
    await run_once(cluster)
    with caplog.at_level(logging.WARNING):
        assert await run_once(cluster, accepted=ONE) == 1
    assert "N0:S0=1 was not needed" in caplog.text


async def test_a_disk_that_was_replaced_counts_no_more(cluster: Path, caplog: pytest.LogCaptureFixture) -> None:
    await run_once(cluster)
    (cluster / "n0").rename(cluster / "elsewhere")
    await run_once(cluster, accepted=ONE)
    shutil.rmtree(cluster / "n0")
    (cluster / "elsewhere").rename(cluster / "n0")
    with pytest.raises(LogDeviceError, match="holds its generation 1, which ended when"):
        await run_once(cluster)
    with caplog.at_level(logging.WARNING):
        assert await run_once(cluster, accepted=AcceptedLoss.parse(["N0:S0=2"])) == 3
    assert "counts no more and lies in" in caplog.text
    aside = cluster / "n0" / "shard0.replaced-1"
    assert (aside / "db").is_dir()
    assert await quarantined(cluster) == [(0, "REPLACED", str(aside))]
    shutil.rmtree(aside)
    assert await quarantined(cluster) == []


@pytest.mark.parametrize("moment", ["while it ran", "when it was stopped"])
async def test_an_older_state_of_a_disk_is_noticed(
    cluster: Path, caplog: pytest.LogCaptureFixture, moment: str
) -> None:
    await run_once(cluster)
    node, backup = cluster / "n0", cluster / "backup"
    if moment == "when it was stopped":
        shutil.copytree(node, backup)
        await run_once(cluster)
    else:
        host = await NodeHost.open(layout.cluster_file(cluster), NodeId(0), node)
        shutil.copytree(node, backup)
        await host.close()
    shutil.rmtree(node)
    shutil.copytree(backup, node)
    with pytest.raises(LogDeviceError, match=r"holds an older state of it .* a snapshot or a backup") as refused:
        await run_once(cluster)
    assert "--accept-data-loss N0:S0=1" in refused.value.detail
    with caplog.at_level(logging.WARNING):
        assert await run_once(cluster, accepted=ONE) == 2
    assert (node / "shard0.replaced-1" / "db").is_dir()
    assert await run_once(cluster) == 2


async def test_a_disk_that_the_epoch_store_was_not_told_of_is_no_older_one(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run_once(cluster)

    async def note(self: ShardRegistration, marker: ShardMarker) -> None:
        pass

    with monkeypatch.context() as patch:
        patch.setattr(ShardRegistration, "note", note)
        assert await run_once(cluster) == 1
    assert await run_once(cluster) == 1


async def test_a_node_leaves_the_disk_of_another_node_alone(cluster: Path) -> None:
    await run_once(cluster, 1)
    (cluster / "n1").rename(cluster / "n0")
    with pytest.raises(LogDeviceError, match="belongs to N1:S0"):
        await run_once(cluster, 0)
    (cluster / "n0").rename(cluster / "n1")
    assert await run_once(cluster, 1) == 1


@pytest.mark.parametrize("generation", [0, 1], ids=["before it was registered", "before its marker"])
async def test_a_first_start_that_ended_half_way_is_no_loss(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, generation: int
) -> None:
    adopt = RocksLogStore.adopt

    def fails(store: RocksLogStore, marker: ShardMarker, *, boot: str, now: Timestamp) -> Status:
        return Status.FAILED if marker.generation == generation else adopt(store, marker, boot=boot, now=now)

    with monkeypatch.context() as patch:
        patch.setattr(RocksLogStore, "adopt", fails)
        with pytest.raises(LogDeviceError, match="marker"):
            await run_once(cluster)
    assert await run_once(cluster) == 1
    shutil.rmtree(cluster / "n0" / "shard0")
    with pytest.raises(LogDeviceError, match="generation 1"):
        await run_once(cluster)


async def test_the_program_says_it_and_obeys(cluster: Path) -> None:
    async def logdeviced(*options: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "server.logdeviced", "--config", str(layout.cluster_file(cluster)), "--node", "0"),
            *("--data", str(cluster / "n0"), *options),
            stderr=asyncio.subprocess.PIPE,
        )

    await run_once(cluster)
    shutil.rmtree(cluster / "n0")
    refused = await logdeviced()
    _, text = await refused.communicate()
    assert refused.returncode == 1
    assert text.decode().startswith('logdeviced: N0:S0 of cluster "dev" should have generation 1, but')
    for wrong, why in (("N0:S0", b"like N2:S0=1, or all"), ("N1:S0=1", b"N0 has no shard N1:S0")):
        process = await logdeviced("--accept-data-loss", wrong)
        _, text = await process.communicate()
        assert process.returncode != 0
        assert why in text
    started = await logdeviced("--accept-data-loss", "N0:S0=1")
    assert started.stderr is not None
    async with asyncio.timeout(60):  # a Python starts in seconds where the machine is busy
        async for line in started.stderr:
            if b"serving at" in line:
                break
    started.terminate()
    await started.communicate()
    assert started.returncode == 0


async def test_a_directory_that_is_deleted_in_a_cluster_for_trying_things_is_meant(tmp_path: Path) -> None:
    async with LocalCluster(nodes=3, directory=tmp_path / "c") as cluster, Client(cluster.config_file) as client:
        await client.append(1, b"kept")
        await cluster.stop_node(1)
        shutil.rmtree(tmp_path / "c" / "n1")
        await cluster.start_node(1)
        await client.append(1, b"goes on")
        [service] = cluster.hosts[1].shards.values()
        assert service.contents.marker.generation == 2


@pytest.mark.parametrize("store", ["rocksdb", "extents"])
@pytest.mark.parametrize("what", ["marker", "extent"])
async def test_a_store_that_a_later_version_wrote_is_refused_and_left_as_it_is(
    tmp_path: Path, store: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (store, what) == ("rocksdb", "extent"):
        pytest.skip("it has none")
    config = make_config(tmp_path, nodes=1, logs=1, replicate="node:1", racks=1, epoch_store=None, store=store)
    write_cluster_file(tmp_path, config)
    of_later = (identity, "MARKER_VERSION") if what == "marker" else (block_format, "EXTENT_VERSION")
    with monkeypatch.context() as later:
        later.setattr(*of_later, 2)
        assert await run_once(tmp_path) == 1
    before = sorted(path.name for path in (tmp_path / "n0").iterdir())
    for accepted in (LOSS_NOT_ACCEPTED, ONE, AcceptedLoss(everything=True)):
        with pytest.raises(LogDeviceError) as refused:
            await run_once(tmp_path, accepted=accepted)
        for part in ("N0:S0", str(tmp_path / "n0" / "shard0"), "has version 2, this program knows 1", "later version"):
            assert part in refused.value.detail
        assert "--accept-data-loss" not in refused.value.detail
    assert sorted(path.name for path in (tmp_path / "n0").iterdir()) == before
    with monkeypatch.context() as later:
        later.setattr(*of_later, 2)
        assert await run_once(tmp_path) == 1, "nothing was lost"
