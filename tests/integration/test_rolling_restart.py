"""A rolling restart of real processes under load: killed in between and run again, it goes on; no append fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from client.client import Client
from client.node_tables import NodeAsker, as_dicts
from logdevice_py.core.ids import NodeId
from logdevice_py.programs import own_program
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING
from tests.integration.process_cluster import ProcessCluster, StreamWorkload, process_cluster

STALL_MAX = 10.0


async def instances(cluster: ProcessCluster) -> dict[int, str]:
    """The run of each node."""
    config = cluster.supervisor.config
    asker = NodeAsker(config, cluster.supervisor.admin_access)
    try:
        rows, failures = await asker.ask_each(TABLES["info"], list(config.nodes), EVERYTHING, None, 30)
    finally:
        await asker.close()
    assert failures == []
    return {row["node_id"]: row["instance"] for row in as_dicts(TABLES["info"], rows)}


async def restart(cluster: ProcessCluster, *, until: str | None = None) -> tuple[int, list[str]]:
    """Run the program; its exit status and what it said. `until`: kill it when it says so."""
    command = own_program("server.dev.dev_cluster", "rolling-restart", "--dir", cluster.directory)
    program = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert program.stderr is not None
    said = []
    while line := (await program.stderr.readline()).decode().rstrip():
        said.append(line)
        if until is not None and until in line:
            program.kill()
            break
    return await program.wait(), said


@pytest.mark.slow
async def test_under_load_no_append_fails_and_no_node_is_restarted_twice(tmp_path: Path) -> None:
    async with (
        process_cluster(tmp_path, nodes=4, logs=2, replicate="node:2", racks=1) as cluster,
        Client(cluster.file) as client,
    ):
        workload = StreamWorkload(client, 1)
        await workload.more(20)
        before = await instances(cluster)
        status, _ = await restart(cluster, until="N0 is back and well")
        assert status == -9
        between = await instances(cluster)
        assert between[0] != before[0]
        assert {node: run for node, run in between.items() if node > 1} == {n: r for n, r in before.items() if n > 1}
        status, said = await restart(cluster)
        assert status == 0, said
        assert any("goes on with rolling restart" in line for line in said)
        after = await instances(cluster)
        assert after[0] == between[0]
        assert all(after[node] != before[node] for node in map(NodeId, range(4)))
        await workload.more(20)
        journal = await workload.finish()
        assert max(journal.stalls) < STALL_MAX
