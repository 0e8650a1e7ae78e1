"""A cluster of processes whose configuration stands in a real ZooKeeper: changed by ldctl while records are appended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from client.cli.program import EXIT_OK, EXIT_UNANSWERED
from client.client import Client
from ldquery.ctl.main import parser, run
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.programs import own_program
from server.dev import layout
from server.dev.zookeeper_server import ZooKeeperServer, why_no_zookeeper
from tests.integration.process_cluster import ProcessCluster, StreamWorkload, compare, process_cluster, read_all

SETTINGS = {"admin": {"open_reads": True}, "rebuilding": {"enabled": True}}


@pytest.fixture
async def zookeeper(tmp_path: Path) -> AsyncIterator[ZooKeeperServer]:
    reason = why_no_zookeeper()
    if reason is not None:
        pytest.skip(reason)
    server = ZooKeeperServer(tmp_path / "zookeeper")
    await server.start_async()
    yield server
    server.kill()


class Ldctl:
    """Types commands."""

    def __init__(self, cluster: ProcessCluster, capsys: pytest.CaptureFixture[str]) -> None:
        self._file = cluster.file
        self._capsys = capsys

    async def types(self, *words: str, late: bool = False) -> str:
        status = await run(parser().parse_args(["-c", self._file, "--timeout", "30s", *words]))
        assert status == EXIT_OK or (late and status == EXIT_UNANSWERED), status
        return self._capsys.readouterr().out

    async def is_refused(self, *words: str) -> LogDeviceError:
        with pytest.raises(LogDeviceError) as refused:
            await run(parser().parse_args(["-c", self._file, "--timeout", "30s", *words]))
        return refused.value


async def sees(client: Client, node: int, *, version: int) -> None:
    """Until the client uses a version, and knows that the node is there."""
    async with asyncio.timeout(90):
        while True:
            if client.config.version >= version and NodeId(node) in client.session.alive_nodes():
                return
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_a_node_is_added_while_records_are_appended_and_zookeeper_is_not_needed_for_what_runs(
    tmp_path: Path, zookeeper: ZooKeeperServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        process_cluster(
            tmp_path, nodes=3, racks=3, logs=2, replicate="node:2", epoch_store=zookeeper.url, settings=SETTINGS
        ) as cluster,
        Client(cluster.file) as client,
    ):
        ldctl, stream = Ldctl(cluster, capsys), StreamWorkload(client, 1)
        await stream.more(20)
        assert "configured by its file" in str(await ldctl.is_refused("nodes", "add", "N3", "host=h", "port=1"))
        assert "version 2 is in force" in await ldctl.types("config", "apply", cluster.file)

        where = [
            f"host={layout.node_host(tmp_path, NodeId(3))}",
            f"port={layout.NODE_PORT}",
            f"admin_port={layout.ADMIN_PORT}",
            "location=dev.dc.cluster.row.rack3",
        ]
        assert "it would be version 3" in await ldctl.types("nodes", "add", "N3", *where, "--dry-run")
        assert "version 3 is in force" in await ldctl.types("nodes", "add", "N3", *where, late=True)
        # on a machine that has no cluster file
        data = layout.node_directory(tmp_path, NodeId(3))
        command = own_program(
            "server.logdeviced", "--epoch-store", zookeeper.url, "--cluster", "dev", "--node", 3, "--data", data
        )
        with (tmp_path / "added.txt").open("w") as told:
            process = await asyncio.create_subprocess_exec(*command, stderr=told)
        try:
            await sees(client, 3, version=3)  # whose file has three nodes
            await stream.more(20)

            reasons = str(await ldctl.is_refused("nodes", "set", "N0", "roles=sequencer", "location=elsewhere"))
            assert "N0:S0 would be gone" in reasons
            assert "ldctl drain N0:S0" in reasons
            refused = await ldctl.is_refused("nodes", "add", "N4", *where)
            assert "is also the address of nodes.N3.port" in str(refused)

            zookeeper.freeze()
            try:
                refused = await ldctl.is_refused("nodes", "set", "N3", "storage_capacity=2")
                assert refused.status is Status.AGAIN
                assert "so nothing is changed" in refused.detail
                assert "[nodes.N3]" in await ldctl.types("config", "show")
                await stream.more(50)
            finally:
                zookeeper.thaw()
            await stream.more(20)

            refused = await ldctl.is_refused("config", "rollback", "2")
            assert "N3:S0 would be gone" in str(refused)
            assert "--accept-data-loss N3" in str(refused)
            out = await ldctl.types("config", "rollback", "2", "--accept-data-loss", "N3", "--why", "a test")
            assert "version 4 is in force" in out
            history = await ldctl.types("config", "history")
            assert [line.split()[0] for line in history.splitlines()] == ["VERSION", "4", "3", "2"]
            assert "[nodes.N3]" not in await ldctl.types("config", "show")
        finally:
            process.kill()
            await process.wait()
        await stream.more(20)
        journal = await stream.finish()
        compare(await read_all(client, stream.log), journal)
