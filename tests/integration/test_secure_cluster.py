"""Clusters with certificates and permissions, as their operators and strangers meet them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import pytest

from client.client import Client
from client.identity import ClientIdentity
from client.replica.replica import Replica
from client.settings import ClientSettings
from ldquery.ctl import main as ctl
from logdevice_py import LocalCluster, LogDeviceError, Record
from logdevice_py.config.logs import LogTree
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.permits import parse_permits
from logdevice_py.core.ids import LOG_TREE_DELTAS, NodeId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.principal import Principal
from logdevice_py.core.status import Status
from logdevice_py.runtime.certificates import CertificateAuthority
from logdevice_py.runtime.clock import wall_us
from server.dev import layout
from server.dev.identities import SECURITY, make_identities
from server.dev.supervisor import write_cluster_file
from tests.integration.test_dev_cluster import Up
from tests.unit.client.replica.registers import REGISTERS


def rewrite(directory: Path, *, permit: str | None = None, security: dict[str, Any] | None = None) -> None:
    """A newer version of a cluster's file."""
    config = load_cluster(layout.cluster_file(directory).read_text())
    tree = config.logs
    defaults = {**tree.defaults, **({} if permit is None else {"permit": parse_permits(permit)})}
    groups = [(group.path, group.lo, group.hi, group.overrides) for group in tree.groups]
    logs = LogTree.build(defaults=defaults, directories=tree.directories, groups=groups)
    settings = config.settings if security is None else {**config.settings, "security": security}
    write_cluster_file(directory, replace(config, version=config.version + 1, logs=logs, settings=settings))


def authority_of(directory: Path) -> CertificateAuthority:
    config = load_cluster(layout.cluster_file(directory).read_text())
    return CertificateAuthority(directory / "identity", config.uuid)


async def refused(operation: Awaitable[Any]) -> LogDeviceError:
    with pytest.raises(LogDeviceError) as raised:
        await operation
    return raised.value


async def cannot_connect(config: Any, identity: ClientIdentity) -> str:
    """Why somebody is not let in."""
    async with Client(config, identity=identity, settings=ClientSettings(log_tree_wait_us=1)) as client:
        error = await refused(client.append(1, b"stranger", timeout=20))
        assert not error.maybe_applied
        assert error.status is Status.ACCESS
        return error.detail


async def until_version(cluster: LocalCluster) -> None:
    """Until every node uses the newest cluster file."""
    version = load_cluster(Path(cluster.config_file).read_text()).version
    async with asyncio.timeout(20):
        while any(  # noqa: ASYNC110
            host.config.version < version for host in cluster.hosts.values()
        ):
            await asyncio.sleep(0.05)


async def test_strangers_of_every_kind(tmp_path: Path) -> None:
    async with LocalCluster(nodes=2, logs=2, secure=True, log_tree=True, directory=tmp_path) as cluster:
        authority = authority_of(tmp_path)
        clicks = authority.certify_principal(Principal("svc-clicks", frozenset({"services"})))
        mallory = authority.certify_principal(Principal("mallory"))
        rewrite(tmp_path, permit="admin:operator, append:group/services, read:svc-clicks, read:svc-token")
        await until_version(cluster)
        async with cluster.client() as operator:
            await operator.append(2, b"untouched")

        # in clear text
        config = load_cluster(Path(cluster.config_file).read_text())
        settings = {name: section for name, section in config.settings.items() if name != "security"}
        said = await cannot_connect(replace(config, settings=settings), ClientIdentity())
        assert "connect with TLS" in said

        # of another authority
        other = CertificateAuthority(tmp_path / "other", config.uuid)
        other.make()
        forged = other.certify_principal(Principal("operator"))
        assert "unknown ca" in await cannot_connect(cluster.config_file, ClientIdentity(certificate=forged.path))
        trusting = ClientIdentity(certificate=forged.path, ca=tmp_path / "other" / "ca.pem")
        assert "not accepted" in await cannot_connect(cluster.config_file, trusting)

        # with tokens
        expired = authority.make_token(Principal("operator"), 1)
        while wall_us() < jwt.decode(expired, options={"verify_signature": False})["exp"] * 1_000_000:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        for token in (other.make_token(Principal("operator")), expired):
            assert "token is not believed" in await cannot_connect(cluster.config_file, ClientIdentity(token=token))
        good = ClientIdentity(token=authority.make_token(Principal("svc-token")))
        async with Client(cluster.config_file, identity=good) as client:
            assert (await refused(client.append(1, b"x"))).status is Status.ACCESS
            assert await client.tail_lsn(1) >= 0

        # without a permission, and with one that is taken away
        async with Client(cluster.config_file, identity=ClientIdentity(certificate=mallory.path)) as client:
            error = await refused(client.append(1, b"x"))
            assert "principal mallory may not append to log 1 (/logs/1)" in error.detail
            assert (await refused(client.append(LOG_TREE_DELTAS, b"forged command"))).status is Status.ACCESS
            async with Replica(client, REGISTERS, 1, 2) as replica:
                error = await refused(replica.caught_up(timeout=20))
                assert (error.status, error.retriable) == (Status.ACCESS, False)
                assert "principal mallory has no permission for log 1" in error.detail
        async with Client(cluster.config_file, identity=ClientIdentity(certificate=clicks.path)) as client:
            await client.append(1, b"clicked")
            rewrite(tmp_path, permit="admin:operator")
            await until_version(cluster)
            assert (await refused(client.append(1, b"clicked"))).status is Status.ACCESS
            rewrite(tmp_path, permit="admin:operator, append:svc-clicks")
            await until_version(cluster)
            await client.append(1, b"clicked again")
            # revoked while connected: out within seconds, and not let in again
            authority.revoke(clicks.serial)
            async with asyncio.timeout(20):
                while not client.connectivity().troubles:
                    with_trouble = client.append(1, b"revoked", timeout=1)
                    await asyncio.gather(with_trouble, return_exceptions=True)
            assert "is revoked" in str(client.connectivity().troubles)
        async with cluster.client() as operator:
            payloads: dict[int, list[bytes]] = {}
            for log in (1, 2):
                tail = await operator.tail_lsn(log)
                async with operator.reader(log, start=LSN.OLDEST, until=tail) as reader:
                    payloads[log] = [item.payload async for item in reader if isinstance(item, Record)]
        assert payloads[2] == [b"untouched"]
        assert payloads[1][:2] == [b"clicked", b"clicked again"]
        assert set(payloads[1][2:]) <= {b"revoked"}


async def test_certificates_are_exchanged_a_hundred_times_and_no_append_fails(tmp_path: Path) -> None:
    async with LocalCluster(nodes=2, logs=1, secure=True, directory=tmp_path) as cluster:
        authority, operator = authority_of(tmp_path), layout.cluster_file(tmp_path).with_suffix(".pem")
        certificates = [tmp_path / "identity" / "N0.pem", tmp_path / "identity" / "N1.pem", operator]
        before = [path.read_bytes() for path in certificates]
        stop, written = asyncio.Event(), 0

        async def write(client: Client) -> None:
            nonlocal written
            while not stop.is_set():
                await client.append(1, b"%d" % written)
                written += 1

        async with cluster.client() as client:
            await client.append(1, b"first")
            writing = asyncio.gather(*(write(client) for _ in range(3)))
            for number in range(100):
                for node in cluster.hosts:
                    authority.certify_node(NodeId(node))
                authority.certify_principal(Principal("operator"), path=operator)
                for host in cluster.hosts.values():
                    host.transport.look_at_certificates()
                if number % 20 == 0:
                    async with cluster.client() as newcomer:
                        await newcomer.append(1, b"with other certificates")
                seen = written
                while written == seen:
                    assert not writing.done()
                    await asyncio.sleep(0.001)
            stop.set()
            await writing
            assert written >= 100
            assert await client.tail_lsn(1) >= 0
        assert all(path.read_bytes() != old for path, old in zip(certificates, before, strict=True))


async def test_who_is_revoked_is_out_within_five_seconds(tmp_path: Path) -> None:
    async with LocalCluster(nodes=1, logs=1, secure=True, directory=tmp_path) as cluster:
        lost = authority_of(tmp_path).certify_principal(Principal("svc-lost"))
        async with Client(cluster.config_file, identity=ClientIdentity(certificate=lost.path)) as client:
            await refused(client.append(1, b"x"))
            (transport,) = (host.transport for host in cluster.hosts.values())
            loop = asyncio.get_running_loop()
            theirs = [
                peer for peer in transport.clients if transport.introduction.principals.of(peer).name == "svc-lost"
            ]
            assert theirs
            began = loop.time()
            authority_of(tmp_path).revoke(lost.serial)
            while set(theirs) & set(transport.clients):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            assert loop.time() - began < 5


async def test_a_token_is_renewed_in_its_file_while_it_is_used(tmp_path: Path) -> None:
    async with LocalCluster(nodes=1, logs=1, secure=True, directory=tmp_path) as cluster:
        authority, file = authority_of(tmp_path), tmp_path / "token"
        rewrite(tmp_path, permit="admin:operator, append:svc-token")
        await until_version(cluster)
        file.write_text(authority.make_token(Principal("svc-token"), 3))
        async with Client(cluster.config_file, identity=ClientIdentity(token_file=file)) as client:
            await client.append(1, b"first", timeout=20)
            async with asyncio.timeout(30):
                while not any("expired" in str(each) for each in client.connectivity().troubles.values()):
                    await asyncio.gather(client.append(1, b"late", timeout=1), return_exceptions=True)
            file.write_text("")  # as it may be for a moment
            assert not (await refused(client.append(1, b"late", timeout=1))).maybe_applied
            file.write_text(authority.make_token(Principal("svc-token"), 60))
            async with asyncio.timeout(60):
                while True:  # nodes that refused are dialled again after a while
                    try:
                        await client.append(1, b"renewed", timeout=5)
                        break
                    except LogDeviceError:
                        await asyncio.sleep(0.1)


async def test_a_cluster_changes_to_tls_while_it_is_written_to(tmp_path: Path) -> None:
    async with LocalCluster(nodes=3, logs=1, directory=tmp_path) as cluster:
        stop, written = asyncio.Event(), []

        async def write() -> None:
            async with cluster.client() as client, client.buffered_writer(timeout="1min") as writer:
                while not stop.is_set():
                    payload = b"%d" % len(written)
                    await writer.append(1, payload)
                    written.append(payload)
                    await asyncio.sleep(0.01)

        writing = asyncio.create_task(write())

        async def restart_each() -> None:
            for node in range(3):
                await cluster.stop_node(node)
                await cluster.start_node(node)
                seen = len(written)
                async with asyncio.timeout(60):
                    while len(written) < seen + 3:
                        await asyncio.sleep(0.02)
                        assert not writing.done()

        for mode in ("accept", "require"):
            security = {**SECURITY, "tls": mode, "permissions": False}
            rewrite(tmp_path, security=security)
            make_identities(tmp_path, load_cluster(Path(cluster.config_file).read_text()))
            await until_version(cluster)
            await restart_each()
        stop.set()
        await writing
        assert all(state.transport.takes_tls for state in cluster.hosts.values())
        async with cluster.client() as client:
            tail = await client.tail_lsn(1)
            async with client.reader(1, start=LSN.OLDEST, until=tail) as reader:
                assert [item.payload async for item in reader if isinstance(item, Record)] == written


def ldctl(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, results and the rest."""
    status = ctl.main(list(arguments))
    said = capfd.readouterr()
    return status, said.out, said.err


def test_programs_on_a_secure_development_cluster(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "c"
    up = Up(directory, "--nodes", "1", "--logs", "1", "--secure")
    up.wait_until_ready()
    try:
        file = str(layout.cluster_file(directory))
        monkeypatch.setenv("LOGDEVICE_CLUSTER", file)
        command = [sys.executable, "-m", "client.cli.write", "1"]
        subprocess.run(command, input=b"one\n", check=True, timeout=60)
        status, made, _ = ldctl(capfd, "identity", "make", "svc-clicks")
        assert (status, "svc-clicks.pem" in made) == (0, True)
        identity = directory / "identity" / "svc-clicks.pem"
        assert {path.stat().st_mode & 0o077 for path in (identity, directory / "identity" / "ca.key")} == {0}
        monkeypatch.setenv("LOGDEVICE_IDENTITY", str(identity))
        status, _, said = ldctl(capfd, "tail", "1")
        assert status == 2
        assert "principal svc-clicks has no permission for log 1 (/logs)" in said
        rewrite(directory, permit="admin:operator, read:svc-clicks")
        deadline = time.monotonic() + 30
        while ldctl(capfd, "tail", "1")[0] != 0:
            assert time.monotonic() < deadline
        status, token, _ = ldctl(capfd, "identity", "token", "svc-clicks", "--group", "bi", "--lifetime", "1min")
        claims = jwt.decode(token.strip(), options={"verify_signature": False})
        assert (claims["sub"], claims["groups"], claims["exp"] - claims["iat"]) == ("svc-clicks", ["bi"], 60)
        serial = made.split()[-2]
        assert ldctl(capfd, "identity", "revoke", serial)[0] == 0
        while "is revoked" not in (said := ldctl(capfd, "--timeout", "1s", "tail", "1")[2]):
            assert time.monotonic() < deadline, said
        assert ldctl(capfd, "identity", "revoke", "no number")[0] == 2
        log = layout.node_log(directory, NodeId(0)).read_text()
        assert "PRIVATE KEY" not in log
        assert "Traceback" not in log
    finally:
        text = up.end()
    assert "Traceback" not in text
