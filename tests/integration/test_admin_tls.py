"""The admin API over TLS, as its callers and strangers meet it."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client import node_tables
from client.admin_access import AdminAccess
from client.identity import CLEAR_TEXT_VARIABLE, ClientIdentity
from client.node_tables import NodeAsker
from ldquery.session import LDQuery
from logdevice_py import LocalCluster
from logdevice_py.config.admin import AdminEndpoint, admin_endpoint
from logdevice_py.config.cluster import ClusterConfig, NodeConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import NodeId
from logdevice_py.core.principal import Principal
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.admin_token import program_token
from logdevice_py.runtime.certificates import CertificateAuthority
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING
from server.dev import layout
from server.dev.identities import SECURITY, make_identities
from server.dev.supervisor import write_cluster_file
from tests.integration.test_secure_cluster import authority_of, rewrite, until_version


def address(directory: Path, node: int = 0) -> tuple[str, int]:
    config = load_cluster(layout.cluster_file(directory).read_text())
    endpoint = admin_endpoint(config, config.nodes[NodeId(node)])
    assert endpoint is not None
    return endpoint.host, endpoint.port


def context(directory: Path, certificate: Path | None = None) -> ssl.SSLContext:
    """Of a program that knows nodes by their host names, as browsers do."""
    made = ssl.create_default_context(cafile=directory / "identity" / "ca.pem")
    if certificate is not None:
        made.load_cert_chain(certificate)
    return made


async def ask(
    where: tuple[str, int],
    tls: ssl.SSLContext | None,
    path: str,
    *,
    bearer: str = "",
    body: bytes | None = None,
) -> tuple[int, Any]:
    """HTTP's status and the answer; 0: there is no connection."""
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"Host: {where[0]}", "Connection: close"]
    if bearer:
        lines.append(f"Authorization: Bearer {bearer}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    try:
        reader, writer = await asyncio.open_connection(*where, ssl=tls)
        writer.write("\r\n".join([*lines, "", ""]).encode() + (body or b""))
        head, _, content = (await asyncio.wait_for(reader.read(), 60)).partition(b"\r\n\r\n")
    except (ssl.SSLError, ConnectionResetError) as error:
        return 0, str(error)
    writer.close()
    return int(head.split()[1]), content.decode()


async def test_who_may_ask_what_over_tls(tmp_path: Path) -> None:
    async with LocalCluster(nodes=2, logs=2, secure=True, directory=tmp_path) as cluster:
        authority, where = authority_of(tmp_path), address(tmp_path)
        anybody = context(tmp_path)

        # strangers
        status, said = await ask(where, None, "/v1/ready")
        assert (status, "ask with https" in said) == (426, True)
        other = CertificateAuthority(tmp_path / "other", load_cluster(Path(cluster.config_file).read_text()).uuid)
        other.make()
        forged = other.certify_principal(Principal("operator"))
        assert (await ask(where, context(tmp_path, forged.path), "/v1/node"))[0] == 0
        assert (await ask(where, anybody, "/v1/ready"))[0] == 200, "health checks need no certificate"
        trim = b'{"log_id": 1, "lsn": "e1n1"}'
        mallory = authority.certify_principal(Principal("mallory"))
        status, said = await ask(where, context(tmp_path, mallory.path), "/v1/actions/trim", body=trim)
        assert (status, "principal mallory may not do this" in said) == (403, True)
        assert (await ask(where, anybody, "/v1/actions/trim", body=trim))[0] == 401
        false = other.make_token(Principal("operator"))
        assert (await ask(where, anybody, "/v1/actions/trim", body=trim, bearer=false))[0] == 401

        # the operator, by certificate and by signed token
        async with cluster.client() as client:
            await client.append(1, b"x")
        mine = context(tmp_path, layout.cluster_file(tmp_path).with_suffix(".pem"))
        assert (await ask(where, mine, "/v1/actions/trim", body=trim))[0] == 200
        token = authority.make_token(Principal("operator"))
        assert (await ask(where, anybody, "/v1/actions/trim", body=trim, bearer=token))[0] == 200

        # nodes of the cluster, and one that was removed
        member = context(tmp_path, tmp_path / "identity" / "N1.pem")
        assert (await ask(where, member, "/v1/actions/trim", body=trim))[0] == 200
        removed = context(tmp_path, authority.certify_node(NodeId(7)).path)
        assert (await ask(where, removed, "/v1/actions/trim", body=trim))[0] == 401
        with LDQuery(cluster.config_file, deadline=60) as session:
            result = await asyncio.to_thread(session.query, "SELECT node_id FROM info ORDER BY 1")
        assert (result.rows, result.failures) == ([(0,), (1,)], [])

        # another node answers than was asked
        config = load_cluster(Path(cluster.config_file).read_text())
        n0, n1 = config.nodes[NodeId(0)], config.nodes[NodeId(1)]
        swapped = {NodeId(0): replace(n0, host=n1.host, admin_port=n1.admin_port), NodeId(1): n1}
        access = AdminAccess.of_program(Path(cluster.config_file))
        asker = NodeAsker(replace(config, nodes=swapped), access)
        _, failures = await asker.ask_each(TABLES["info"], [NodeId(0)], EVERYTHING, None, 30)
        await asker.close()
        assert failures[0].status is Status.ACCESS
        assert "names N1, not N0" in failures[0].detail

        # a permission that is taken away counts at once; a revoked certificate ends its connections
        rewrite(tmp_path, permit="admin:somebody-else")
        await until_version(cluster)
        assert (await ask(where, mine, "/v1/actions/trim", body=trim))[0] == 403
        rewrite(tmp_path, permit="admin:operator")
        await until_version(cluster)
        reader, writer = await asyncio.open_connection(*where, ssl=context(tmp_path, mallory.path))
        authority.revoke(mallory.serial)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()

        # certificates are read again
        before, _ = await outsider(where, "-connect")
        authority.certify_node(NodeId(0), host=where[0])
        async with asyncio.timeout(20):
            while (await outsider(where, "-connect"))[0] == before:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def outsider(where: tuple[str, int], *options: str) -> tuple[str, str]:
    """The serial number that openssl's own client sees, and what it says."""

    def run() -> tuple[str, str]:
        command = ["openssl", "s_client", *options, f"{where[0]}:{where[1]}"]
        said = subprocess.run(command, input=b"", capture_output=True, timeout=60, check=False)
        text = said.stdout + said.stderr
        shown = subprocess.run(
            ["openssl", "x509", "-noout", "-serial"], input=said.stdout, capture_output=True, check=False
        )
        return shown.stdout.decode(), text.decode(errors="replace")

    return await asyncio.to_thread(run)


async def test_readers_read_and_do_nothing_else(tmp_path: Path) -> None:
    async with LocalCluster(nodes=1, logs=1, secure=True, directory=tmp_path) as cluster:
        await cluster.stop_node(0)
        config = load_cluster(Path(cluster.config_file).read_text())
        settings = {**config.settings, "admin": {"readers": "prometheus"}}
        write_cluster_file(tmp_path, replace(config, version=config.version + 1, settings=settings))
        (tmp_path / "cluster.token").write_text("a token, so that reads are not open\n")
        (tmp_path / "cluster.token").chmod(0o600)
        await cluster.start_node(0)
        where = address(tmp_path)
        reader = context(tmp_path, authority_of(tmp_path).certify_principal(Principal("prometheus")).path)
        status, text = await ask(where, reader, "/metrics")
        assert (status, "logdevice_admin_tls_failed_total" in text) == (200, True)
        assert (await ask(where, context(tmp_path), "/metrics"))[0] == 401
        assert (await ask(where, reader, "/v1/tables/info"))[0] == 200
        async with cluster.client() as client:
            await client.append(1, b"secret")
        record = f"/v1/tables/record?log_id=1&lsn={(1 << 32) + 1}"
        status, said = await ask(where, reader, record)
        assert (status, "payloads to administrators only" in said) == (403, True), said
        status, said = await ask(where, reader, f"{record}&bare=1")
        assert (status, '"OK"' in said, "secret" in said) == (200, True, False)
        status, said = await ask(where, context(tmp_path), record, bearer="a token, so that reads are not open")
        assert (status, "secret" in said) == (200, True)
        assert (await ask(where, reader, "/v1/console/logs"))[0] == 403
        assert (await ask(where, reader, "/v1/actions/stop", body=b"{}"))[0] == 403
        _, said = await outsider(where, "-tls1_2", "-connect")
        assert "alert" in said, "nothing older than TLS 1.3"


async def test_while_a_cluster_changes_to_tls_both_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with LocalCluster(nodes=2, logs=1, directory=tmp_path) as cluster:
        security = {**SECURITY, "tls": "accept", "permissions": False}
        rewrite(tmp_path, security=security)
        config = load_cluster(Path(cluster.config_file).read_text())
        make_identities(tmp_path, config)
        await cluster.stop_node(0)
        await cluster.start_node(0)  # N1 speaks clear text until it is started again
        with LDQuery(cluster.config_file, deadline=60) as session:
            result = await asyncio.to_thread(session.query, "SELECT node_id FROM info ORDER BY 1")
        assert (result.rows, result.failures) == ([(0,), (1,)], [])
        for tls in (None, context(tmp_path)):
            status, said = await ask(address(tmp_path), tls, "/v1/tables/info")
            assert (status, '"node": 0' in said) == (200, True)
        # who asks for TLS only does not fall back
        strict = replace(config, settings={**config.settings, "security": {**security, "tls": "require"}})
        asker = NodeAsker(strict, AdminAccess(None, Path(cluster.config_file), ClientIdentity()))
        rows, failures = await asker.ask_each(TABLES["info"], list(config.nodes), EVERYTHING, None, 30)
        await asker.close()
        assert [row[0] for row in rows] == [0]
        assert [each.node for each in failures] == [1]
        # the token goes over TLS, to the machine itself, and where somebody says that it may
        token = program_token(Path(cluster.config_file), None)
        access = AdminAccess(token, Path(cluster.config_file), ClientIdentity())
        assert await refusals(config, access) == []
        monkeypatch.setattr(node_tables, "admin_endpoint", lambda *args: AdminEndpoint(*elsewhere(*args)))
        assert await refusals(config, access) == [(1, Status.ACCESS)]
        assert await refusals(config, replace(access, clear_text=True)) == []
        monkeypatch.setenv(CLEAR_TEXT_VARIABLE, "1")
        assert AdminAccess.of_program(Path(cluster.config_file)).clear_text


def elsewhere(config: ClusterConfig, member: NodeConfig) -> tuple[str, int, bool]:
    """Where a node serves its admin API, as if it was another machine."""
    found = admin_endpoint(config, member)
    assert found is not None
    return found.host, found.port, False


async def refusals(config: ClusterConfig, access: AdminAccess) -> list[tuple[int, Status]]:
    """Which nodes do not do what takes a token, and why."""
    asker = NodeAsker(config, access)
    found = []
    for node in config.nodes:
        try:
            await asker.act(node, "set", {"section": "settings.runtime", "name": "trace_instants", "value": "0"}, 30)
        except LogDeviceError as error:
            found.append((int(node), error.status))
    await asker.close()
    return found
