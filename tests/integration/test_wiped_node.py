"""A node that comes back without its data: every tool that shows health says so, and says it no more once nothing is missing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from client.cli.program import EXIT_OK, EXIT_UNHEALTHY
from client.client import Client
from ldquery.ctl.main import parser, run
from ldquery.session import LDQuery
from logdevice_py.core.ids import LogId
from server.dev.dev_cluster import main as dev_cluster
from tests.integration.process_cluster import ProcessCluster, process_cluster
from tests.integration.test_ldquery import fetch
from tests.integration.test_rebuilding import SECONDS, rebuilding

RECORDS = 60
LOGS = (1, 2, 3)


async def fill(client: Client) -> None:
    """Three logs, each record an entry of its own."""
    for number in range(RECORDS):
        await asyncio.gather(*(client.append(LogId(log), b"%d" % number) for log in LOGS))


async def ctl_status(cluster: ProcessCluster, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    status = await run(parser().parse_args(["-c", cluster.file, "status"]))
    said = capsys.readouterr()
    return status, said.out, said.err


async def until_well(cluster: ProcessCluster, capsys: pytest.CaptureFixture[str]) -> None:
    """Until nothing is wrong."""
    while True:
        if (await ctl_status(cluster, capsys))[0] == EXIT_OK:
            return
        await asyncio.sleep(0.5)


async def wipe(cluster: ProcessCluster, node: int) -> str:
    await cluster.kill(node)
    directory = cluster.directory / f"n{node}"
    await asyncio.to_thread(lambda: [path.unlink() for path in directory.rglob("*") if path.is_file()])
    said: str = await cluster.supervisor.start(node)
    await cluster.acquainted()
    return said


def ask(cluster: ProcessCluster, sql: str) -> list[dict[str, Any]]:
    with LDQuery(cluster.file, deadline=30) as session:
        return session.query(sql).to_dicts()


async def test_a_wiped_node_is_told_by_every_tool_while_rebuilding_is_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        process_cluster(tmp_path, nodes=3, logs=4, replicate="node:3", racks=1) as cluster,
        Client(cluster.file) as client,
    ):
        await fill(client)
        assert (await ctl_status(cluster, capsys))[0] == EXIT_OK
        assert await asyncio.to_thread(dev_cluster, ["status", "--dir", str(tmp_path)]) == EXIT_OK
        capsys.readouterr()

        assert "the data of N1:S0 is gone: it begins empty, as a new generation" in await wipe(cluster, 1)
        status, out, err = await ctl_status(cluster, capsys)
        assert status == EXIT_UNHEALTHY, err
        assert "generation 2" in out
        assert (
            "N1: S0 began anew, empty; the copies that its generation 1 held are missing in log 1 from e1n1 on" in err
        )
        assert "rebuilding is off" in err

        assert await asyncio.to_thread(dev_cluster, ["status", "--dir", str(tmp_path)]) == EXIT_UNHEALTHY
        assert "N1: S0 began anew" in capsys.readouterr().err

        rows = await asyncio.to_thread(ask, cluster, "SELECT * FROM under_replicated_logs")
        assert {(row["node_id"], row["log_id"]) for row in rows} >= {(node, log) for node in (0, 2) for log in LOGS}
        assert {(row["state"], row["lost_shards"]) for row in rows} == {("SHORT", "N1:S0=1")}
        for path in ("/v1/health", "/v1/ready"):
            code, body = await asyncio.to_thread(fetch, cluster, 0, path)
            facts = json.loads(body)
            assert (code, facts["status"], facts["copies_reviewed"]) == (200, "OK", True)
            assert facts["under_replicated_logs"] >= len(LOGS)
            assert facts["logs_with_lost_records"] == 0
        assert json.loads((await asyncio.to_thread(fetch, cluster, 1, "/v1/health"))[1])["shards"] == {
            "S0": {"status": "OK", "generation": 2}
        }
        _, page = await asyncio.to_thread(fetch, cluster, 0, "/metrics")
        assert f"logdevice_copies_under_replicated_logs {facts['under_replicated_logs']}.0" in page

        # what is trimmed is missed by nobody
        for log in range(1, 5):
            await client.trim(LogId(log), await client.tail_lsn(LogId(log)))
        async with asyncio.timeout(SECONDS):
            await until_well(cluster, capsys)


@pytest.mark.slow
async def test_records_of_which_every_copy_is_gone_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with process_cluster(tmp_path, nodes=3, logs=4, replicate="node:2", racks=1) as cluster:
        async with Client(cluster.file) as client:
            await fill(client)
        await wipe(cluster, 1)
        assert (await ctl_status(cluster, capsys))[0] == EXIT_UNHEALTHY
        await wipe(cluster, 2)
        status, _, err = await ctl_status(cluster, capsys)
        assert status == 3, err
        assert "records may have no copy left" in err
        assert "N1:S0=1, N2:S0=1" in err


@pytest.mark.slow
async def test_a_wiped_node_is_told_until_it_is_rebuilt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with (
        process_cluster(tmp_path, nodes=4, logs=4, replicate="node:2", racks=1, settings=rebuilding()) as cluster,
        Client(cluster.file) as client,
    ):
        await fill(client)
        await wipe(cluster, 1)
        async with asyncio.timeout(SECONDS):
            # before it is declared lost the logs are short, then it is being rebuilt, in the end nothing is missing
            await until_well(cluster, capsys)
        assert await asyncio.to_thread(ask, cluster, "SELECT * FROM under_replicated_logs") == []
        assert await asyncio.to_thread(
            ask,
            cluster,
            "SELECT count(*) AS n FROM under_replicated WHERE log_id = 1 AND lsn BETWEEN 'e1n1' AND 'e1n999'",
        ) == [{"n": 0}]
