"""The write-ahead log of a node loses its end, and the machine seems to have been started anew: the node gets back what it lost."""

from __future__ import annotations

import asyncio
import glob
import os
import re
import time
from pathlib import Path

import pytest

from client.client import Client
from ldquery.session import LDQuery
from logdevice_py.config.logs import Durability
from logdevice_py.core.ids import NodeId
from server.dev import layout
from tests.integration.process_cluster import ProcessCluster, process_cluster

VICTIM = 3
ANOTHER_BOOT = """
import storage_node.log_store.rocksdb.shard_opening as opening

opening.boot_id = lambda: "another boot"
"""


def write_ahead_log(cluster: ProcessCluster) -> tuple[str, int]:
    """The latest one of the victim, and how many bytes of it are written."""
    files = glob.glob(str(layout.node_directory(cluster.directory, NodeId(VICTIM)) / "shard0" / "db" / "*.log"))
    latest = max(files)
    return latest, len(Path(latest).read_bytes().rstrip(b"\0"))


def notices(cluster: ProcessCluster) -> str:
    """What the victim wrote for people."""
    return layout.node_log(cluster.directory, NodeId(VICTIM)).read_text()


@pytest.mark.slow
async def test_what_a_power_cut_took_is_fetched_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = tmp_path / "hook"
    directory = tmp_path / "cluster"
    for each in (hook, directory):
        each.mkdir()
    (hook / "sitecustomize.py").write_text(ANOTHER_BOOT)
    async with process_cluster(
        directory,
        nodes=4,
        logs=2,
        replicate="node:3",
        racks=1,
        durability=Durability.ASYNC,
        attributes={"sticky_copysets": False},
        settings={"storage": {"last_released_persist_interval_us": "60s"}},
    ) as cluster:
        async with Client(cluster.file) as client:
            payloads = {log: [b"%d" % number * 50 for number in range(200)] for log in (1, 2)}
            for log in payloads:
                for payload in payloads[log][:20]:
                    await client.append(log, payload)
            await asyncio.sleep(1)
            path, synced = write_ahead_log(cluster)
            for log in payloads:
                for payload in payloads[log][20:]:
                    await client.append(log, payload)
            await cluster.kill(VICTIM)
            latest, written = write_ahead_log(cluster)
            assert latest == path
            assert written > synced
            os.truncate(path, synced + (written - synced) // 3)
            monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(hook), os.environ.get("PYTHONPATH", "")]))
            await cluster.start(VICTIM)
            deadline = time.monotonic() + 60
            while "nothing is missing here any more" not in notices(cluster):
                assert time.monotonic() < deadline, notices(cluster)[-3000:]
                await asyncio.sleep(0.2)
            found = re.search(r"(\d+) copies were re-replicated", notices(cluster))
            assert found is not None
            assert int(found[1]) > 0
            assert "2 logs may lack records here" in notices(cluster)
            for log in payloads:
                tail = await client.tail_lsn(log)
                async with client.reader(log, until=tail) as reader:
                    read = [item.payload async for item in reader if hasattr(item, "payload")]
                assert read == payloads[log]
        session = LDQuery(cluster.file, deadline=60)
        try:
            sql = f"SELECT previous_stop, dirty_logs FROM shards WHERE node_id = {VICTIM}"
            result = await asyncio.to_thread(session.query, sql)
        finally:
            session.close()
        assert [tuple(row) for row in result.rows] == [("MACHINE_DIED", 0)]
