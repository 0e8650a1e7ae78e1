"""A cluster whose epoch store is a ZooKeeper of several servers, some of which are killed, the leader among them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from client.client import Client
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn, epoch_of
from server.dev.zookeeper_server import Ensemble, ZooKeeperServer, why_no_zookeeper
from tests.integration.process_cluster import StreamWorkload, compare, process_cluster, read_all

LOG = 1
BOUND = 60.0
"""Seconds in which another node sequences, on a busy machine."""


def is_leader(server: ZooKeeperServer) -> bool:
    """Whether a server leads the others."""
    try:
        with socket.create_connection((server.host, server.port), timeout=5) as connection:
            connection.sendall(b"srvr")
            return b"Mode: leader" in connection.recv(4096)
    except OSError:
        return False


async def leader_of(servers: Sequence[ZooKeeperServer]) -> ZooKeeperServer:
    """The leader, once there is one."""
    async with asyncio.timeout(BOUND):
        while True:
            for server in servers:
                if await asyncio.to_thread(is_leader, server):
                    return server
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "killed"), [(3, 1), (5, 2)])
async def test_a_sequencer_and_servers_of_zookeeper_end_at_once(tmp_path: Path, count: int, killed: int) -> None:
    """As when a region is lost in which all of them stand: the others elect a leader, and another node takes an epoch from it."""
    if reason := why_no_zookeeper():
        pytest.skip(reason)
    # each has an address of its own, where no other test listens
    pid = os.getpid()
    hosts = [f"127.{1 + (pid >> 8) % 250}.{pid & 0xFF}.{10 + number}" for number in range(count)]
    servers = [
        ZooKeeperServer(tmp_path / f"zookeeper{number}", host=host, ensemble=Ensemble(hosts, number))
        for number, host in enumerate(hosts)
    ]
    try:
        for server in servers:
            server.launch()
        for server in servers:
            await server.until_serving()
        url = "zookeeper://" + ",".join(server.address for server in servers)
        async with process_cluster(tmp_path, logs=1, epoch_store=url) as cluster, Client(cluster.file) as client:
            stream = StreamWorkload(client, LOG, name="s")
            await stream.more(100)
            before = await client.sequencer(LogId(LOG))
            leader = await leader_of(servers)
            gone = [leader, *(server for server in servers if server is not leader)][:killed]
            for server in gone:
                server.kill()
            await cluster.kill(before.node)
            began = asyncio.get_running_loop().time()
            await stream.more(100, timeout=BOUND)
            print(f"appending again after {asyncio.get_running_loop().time() - began:.1f} s")
            assert epoch_of(Lsn(stream.journal.order[-1][0])) > before.epoch
            assert await leader_of(servers) not in gone
            journal = await stream.finish()
            compare(await read_all(client, LogId(LOG)), journal)
    finally:
        for server in servers:
            server.kill()
