"""``ldindexd`` over TLS, as its callers and strangers meet it: what is taken at its port, and who may read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from indexlog.index_log import make_index_log
from indexlog.serving.ldindexd import parser, run
from logdevice_py import LocalCluster
from logdevice_py.config.cluster import default_metadata_nodeset
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import NodeId
from logdevice_py.core.principal import Principal
from logdevice_py.runtime.certificates import CertificateAuthority
from server.dev.free_ports import free_ports
from server.dev.supervisor import write_cluster_file
from tests.integration.test_admin_tls import ask, context, outsider
from tests.integration.test_secure_cluster import authority_of, rewrite, until_version

HOST = "127.0.0.1"
INDEXES = "/v1/indexes"


@contextlib.asynccontextmanager
async def ldindexd(file: str, *options: str) -> AsyncIterator[tuple[str, int]]:
    """The program in this process; where it serves."""
    (port,) = free_ports(1, HOST)
    arguments = parser().parse_args(["-c", file, "--listen", f"{HOST}:{port}", *options])
    program = asyncio.create_task(run(arguments))
    try:
        async with asyncio.timeout(60):
            while True:
                assert not program.done(), program.result()
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection(HOST, port)
                    writer.close()
                    break
                await asyncio.sleep(0.05)
        yield HOST, port
    finally:
        program.cancel()
        await asyncio.gather(program, return_exceptions=True)


async def test_who_may_read_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with LocalCluster(
        nodes=3, replicate="node:2", logs=1, secure=True, log_tree=True, directory=tmp_path
    ) as cluster:
        authority = authority_of(tmp_path)
        rewrite(tmp_path, permit="admin:operator, admin:ldindexd")
        await until_version(cluster)
        async with cluster.client() as operator:
            await make_index_log(operator, f"file://{tmp_path}/store", raw_logs=1)
        mine = authority.certify_principal(Principal("ldindexd"), hosts=[HOST])
        monkeypatch.setenv("LOGDEVICE_IDENTITY", str(mine.path))
        secret = tmp_path / "secret"
        secret.write_text("a token, so that reads are not open\n")
        secret.chmod(0o600)
        readers = "svc-search,group/bi"
        async with ldindexd(cluster.config_file, "--token-file", str(secret), "--readers", readers) as where:
            anybody = context(tmp_path)
            status, said = await ask(where, None, INDEXES)
            assert (status, "ask with https" in said) == (426, True)
            _, said = await outsider(where, "-tls1_2", "-connect")
            assert "alert" in said, "nothing older than TLS 1.3"

            # by certificate and by signed token
            other = CertificateAuthority(tmp_path / "other", load_cluster(Path(cluster.config_file).read_text()).uuid)
            other.make()
            search, mallory = Principal("svc-search"), Principal("mallory")
            group = authority.certify_principal(Principal("carol", frozenset({"bi"})))
            reader = authority.certify_principal(search)
            stranger = authority.certify_principal(mallory)
            for certificate, expected in ((reader, 200), (group, 200), (stranger, 403)):
                assert (await ask(where, context(tmp_path, certificate.path), INDEXES))[0] == expected
            assert (await ask(where, context(tmp_path, other.certify_principal(search).path), INDEXES))[0] == 0
            assert (await ask(where, anybody, INDEXES))[0] == 401
            for token, expected in (
                (authority.make_token(search), 200),
                (authority.make_token(mallory), 403),
                (other.make_token(search), 401),
                ("a token, so that reads are not open", 200),
            ):
                assert (await ask(where, anybody, INDEXES, bearer=token))[0] == expected

            # nodes of the cluster, one that never was, and one that is removed meanwhile
            member = context(tmp_path, tmp_path / "identity" / "N2.pem")
            assert (await ask(where, member, INDEXES))[0] == 200
            assert (await ask(where, context(tmp_path, authority.certify_node(NodeId(7)).path), INDEXES))[0] == 401
            await cluster.stop_node(2)
            config = load_cluster(Path(cluster.config_file).read_text())
            left = {node: each for node, each in config.nodes.items() if node != NodeId(2)}
            metadata_log = replace(config.metadata_log, nodeset=default_metadata_nodeset(left))
            write_cluster_file(
                tmp_path, replace(config, version=config.version + 1, nodes=left, metadata_log=metadata_log)
            )
            async with asyncio.timeout(20):
                while (await ask(where, member, INDEXES))[0] != 401:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

            # one that is revoked while it is connected
            incoming, writer = await asyncio.open_connection(*where, ssl=context(tmp_path, reader.path))
            authority.revoke(reader.serial)
            assert await asyncio.wait_for(incoming.read(), 5) == b""
            writer.close()
            assert (await ask(where, context(tmp_path, reader.path), INDEXES))[0] in (0, 401)
