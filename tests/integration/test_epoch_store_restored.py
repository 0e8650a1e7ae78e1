"""The epoch store is lost and restored from a copy that is older than the last activations, or from no copy at all: the cluster goes on, no epoch is given twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from client.client import Client
from server.dev import layout
from server.dev.readiness import wait_until_writable
from tests.forked import run_program_async
from tests.integration.process_cluster import ProcessCluster, process_cluster, read_all

NODES = 3


async def ldctl(cluster: ProcessCluster, *arguments: object) -> tuple[int, str, str]:
    return await run_program_async("ldquery.ctl.main", "-c", cluster.file, *arguments)


async def append(client: Client, logs: tuple[int, ...], written: dict[int, list[tuple[int, bytes]]]) -> None:
    """A record to each log."""
    for log in logs:
        number = len(written.setdefault(log, []))
        async with asyncio.timeout(60):
            receipt = await client.append(log, b"%d" % number, timeout=50)
        written[log].append((int(receipt.lsn), b"%d" % number))


async def reports(cluster: ProcessCluster, directory: Path) -> list[Path]:
    """What the disks know."""
    files = []
    for node in range(NODES):
        data = layout.node_directory(cluster.directory, node)
        status, text, errors = await run_program_async(
            "server.logdeviced", "-c", cluster.file, "-n", node, "--data", data, "--report-epochs"
        )
        assert status == 0, errors
        files.append(directory / f"n{node}.report")
        files[-1].write_text(text)
    return files


@pytest.mark.parametrize("has_copy", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["older copy", "no copy"])
async def test_a_restored_epoch_store_gives_no_epoch_twice(has_copy: bool, tmp_path: Path) -> None:
    written: dict[int, list[tuple[int, bytes]]] = {}
    copy = tmp_path / "copy of epochs"
    async with process_cluster(tmp_path, nodes=NODES, logs=2, replicate="node:2", racks=1) as cluster:
        async with Client(cluster.file) as client:
            await append(client, (1,), written)
            status, _, errors = await ldctl(cluster, "epoch-store", "export", copy)
            assert status == 0, errors
            for _ in range(2):  # later activations
                status, _, errors = await ldctl(cluster, "recovery", 1)
                assert status == 0, errors
                await append(client, (1, 2), written)
        status, _, errors = await ldctl(cluster, "epoch-store", "import", copy)
        assert (status, "stop all nodes first" in errors) == (1, True), errors
        await asyncio.gather(*(cluster.supervisor.stop(node) for node in range(NODES)))
        files = await reports(cluster, tmp_path)
        source = copy if has_copy else "none"
        status, _, errors = await ldctl(cluster, "epoch-store", "import", source, "--disks", *files)
        assert (status, "holds epochs of the cluster" in errors) == (1, True), errors
        for path in cluster.directory.glob("epochs.sqlite*"):
            path.unlink()
        status, _, errors = await ldctl(cluster, "epoch-store", "import", source, "--disks", *files[1:])
        assert status != 0
        assert "nothing is said of the disks of N0:S0" in errors
        status, text, errors = await ldctl(cluster, "--json", "epoch-store", "import", source, "--disks", *files)
        assert status == 0, errors
        moved = {row["log_id"]: row["next"] for row in map(json.loads, text.splitlines())}
        assert moved[1] > written[1][-1][0] >> 32, (moved, written)
        assert (2 in moved) == (not has_copy), "log 2 has the epoch that the copy knows"
        await cluster.start(*range(NODES))
        await wait_until_writable(layout.cluster_file(cluster.directory), timeout=60)
        async with Client(cluster.file) as client:
            before = {log: found[-1][0] >> 32 for log, found in written.items()}
            await append(client, (1, 2), written)
            for log, found in written.items():
                assert found[-1][0] >> 32 > before[log], "the epoch was given before"
                reading = await read_all(client, log)
                assert [(lsn, payload) for (lsn, _), payload in sorted(reading.records.items())] == found
                assert not [gap for gap in reading.gaps if gap[0] == "DATALOSS"]
