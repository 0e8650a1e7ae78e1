"""A real ZooKeeper server that speaks TLS only, and nodes' cells there that nobody else reads or changes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from epoch_store.all_cells import read_cells, write_cells
from epoch_store.interface import ReadMetadata, Result, WriterIdentity
from epoch_store.opening import open_epoch_store
from epoch_store.zookeeper import ZooKeeperAccess
from epoch_store.zookeeper_access import zookeeper_access, zookeeper_access_of_tool
from logdevice_py import LocalCluster
from logdevice_py.config.logs import Durability
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import InstanceId, LogId, NodeId
from logdevice_py.core.principal import Principal
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.certificates import CertificateAuthority
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.identities import SECURITY, make_identities
from server.dev.supervisor import write_cluster_file
from server.dev.zookeeper_server import ZooKeeperServer, ZooKeeperTls, why_no_zookeeper

LOG = LogId(1)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Of a cluster with certificates, and a server that has its own of the same authority."""
    reason = why_no_zookeeper()
    if reason is not None:
        pytest.skip(reason)
    config = make_config(
        tmp_path, nodes=1, logs=1, replicate="node:1", racks=1, epoch_store=None, durability=Durability.SYNC
    )
    authority = CertificateAuthority(tmp_path / "identity", config.uuid)
    authority.make()
    certificate = authority.certify_principal(Principal("zookeeper"), hosts=["127.0.0.1"]).path
    server = ZooKeeperServer(tmp_path / "zookeeper", tls=ZooKeeperTls(tmp_path / "identity" / "ca.pem", certificate))
    security = {
        **SECURITY,
        "permissions": False,
        "zookeeper_tls": True,
        "zookeeper_auth_file": "identity/zookeeper.auth",
    }
    config = replace(config, epoch_store=server.url, settings={**config.settings, "security": security})
    write_cluster_file(tmp_path, config)
    make_identities(tmp_path, config)
    server.start()
    yield tmp_path
    server.kill()


def outsider(directory: Path, *options: str) -> bytes:
    """What openssl's own client gets for the question of who asks whether the server is up."""
    config = load_cluster(layout.cluster_file(directory).read_text())
    address = config.epoch_store.removeprefix("zookeeper://")
    ca = str(directory / "identity" / "ca.pem")
    command = ["openssl", "s_client", "-quiet", "-no_ign_eof", "-connect", address, "-CAfile", ca, *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(b"srvr")
        client.stdin.flush()
        said = client.stdout.read()
        client.kill()
    return said


def in_clear_text(directory: Path) -> bytes:
    config = load_cluster(layout.cluster_file(directory).read_text())
    host, _, port = config.epoch_store.removeprefix("zookeeper://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(b"srvr")
        with contextlib.suppress(ConnectionError):
            return connection.recv(4096)
    return b""


async def read(directory: Path, access: ZooKeeperAccess) -> Result:
    config = load_cluster(layout.cluster_file(directory).read_text())
    loop = asyncio.get_running_loop()
    store = open_epoch_store(
        config.epoch_store, config.name, WriterIdentity(NodeId(7), InstanceId(1)), loop, access=access
    )
    answer: asyncio.Future[list[Result]] = loop.create_future()
    store.submit([ReadMetadata(LOG)], answer.set_result)
    try:
        return (await answer)[0]
    finally:
        store.close()


async def test_nobody_but_nodes_reads_or_changes_what_nodes_keep_there(directory: Path) -> None:
    file = layout.cluster_file(directory)
    config = load_cluster(file.read_text())
    access = zookeeper_access(file, config, NodeId(0))
    async with LocalCluster(nodes=1, directory=directory) as cluster, cluster.client() as client:
        await client.append(LOG, b"the log has an epoch")
        assert (await read(directory, access)).status is Status.OK

        mallory = CertificateAuthority(directory / "identity", config.uuid).certify_principal(Principal("mallory")).path
        ca, own = str(directory / "identity" / "ca.pem"), str(mallory)
        assert b"Mode:" not in await asyncio.to_thread(in_clear_text, directory)
        assert b"Mode:" not in await asyncio.to_thread(outsider, directory), "without a certificate"
        assert b"Mode:" in await asyncio.to_thread(outsider, directory, "-cert", own, "-key", own)
        hosts = config.epoch_store.removeprefix("zookeeper://")
        certified = KazooClient(hosts=hosts, timeout=5, use_ssl=True, ca=ca, certfile=own, keyfile=own)
        await asyncio.to_thread(certified.start, 30)
        try:
            cell = f"/logdevice/{config.name}/logs/{LOG}/sequencer"
            for attempt in (
                lambda: certified.get(cell),
                lambda: certified.set(cell, b"forged"),
                lambda: certified.delete("/logdevice", recursive=True),
                lambda: certified.create(f"/logdevice/{config.name}/logs/2", b""),
            ):
                with pytest.raises(NoAuthError):
                    await asyncio.to_thread(attempt)
            assert await asyncio.to_thread(certified.get_acls, "/") is not None
        finally:
            await asyncio.to_thread(certified.stop)
            await asyncio.to_thread(certified.close)
        forged = replace(access, credentials=("logdevice", "another password"))
        assert "NoAuth" in (await read(directory, forged)).detail

        # copies are made as a node, and what is made of one is as closed as what nodes make
        copied = await asyncio.to_thread(read_cells, config.epoch_store, config.name, access)
        assert f"logs/{LOG}/sequencer" in copied
        as_tool = zookeeper_access_of_tool(file, config)
        await asyncio.to_thread(write_cells, config.epoch_store, "restored", copied, as_tool)
        with pytest.raises(LogDeviceError, match="NoAuth"):
            await asyncio.to_thread(read_cells, config.epoch_store, "restored", forged)
        assert await asyncio.to_thread(read_cells, config.epoch_store, "restored", as_tool) == copied


def test_a_program_reaches_zookeeper_as_a_node_of_its_machine(directory: Path) -> None:
    file = layout.cluster_file(directory)
    config = load_cluster(file.read_text())
    own = directory / "identity" / "N0.pem"
    assert zookeeper_access_of_tool(file, config).certificate == str(own)
    own.rename(own.with_suffix(".elsewhere"))
    with pytest.raises(LogDeviceError, match="run this on the machine of a node"):
        zookeeper_access_of_tool(file, config)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_server_whose_certificate_names_another_host_is_not_believed(directory: Path) -> None:
    file = layout.cluster_file(directory)
    config = load_cluster(file.read_text())
    moved = replace(config, epoch_store=config.epoch_store.replace("127.0.0.1", "localhost"))
    write_cluster_file(directory, moved)
    found = await read(directory, zookeeper_access(file, moved, NodeId(0)))
    assert (found.status, "did not answer" in found.detail) == (Status.AGAIN, True)
    gc.collect()  # kazoo leaves sockets open whose handshake failed


def test_a_password_that_others_may_read_is_refused(directory: Path) -> None:
    file = layout.cluster_file(directory)
    path = directory / "identity" / "zookeeper.auth"
    for mode, text, why in ((0o644, path.read_text(), "chmod 600"), (0o600, "logdevice:short", "at least")):
        path.chmod(0o600)
        path.write_text(text)
        path.chmod(mode)
        with pytest.raises(LogDeviceError, match=why):
            zookeeper_access(file, load_cluster(file.read_text()), NodeId(0))
