"""Retention by time through a whole cluster: what is too old goes, readers are told, the rest stays."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from client.read.items import Gap, GapKind, Record
from logdevice_py.config.logs import LogTree
from logdevice_py.config.parse import load_cluster, render_cluster
from logdevice_py.core.units import MILLISECOND
from server.dev.local_cluster import LocalCluster

BACKLOG = 1_500 * MILLISECOND
SETTINGS = {
    "storage": {
        "partition_duration_us": "300ms",
        "upkeep_interval_us": "50ms",
        "retention_interval_us": "100ms",
        "retention_margin_us": "0ms",
    }
}


def short_lived(cluster: LocalCluster) -> None:
    """Keep records of log 1 for a moment, those of log 2 for ever."""
    path = Path(cluster.config_file)
    config = load_cluster(path.read_text(encoding="utf-8"))
    logs = LogTree.build(
        defaults=config.logs.defaults, groups=[("/short", 1, 1, {"backlog_us": BACKLOG}), ("/ever", 2, 2, {})]
    )
    path.write_text(render_cluster(replace(config, logs=logs, settings=SETTINGS)), encoding="utf-8")


async def read_all(cluster: LocalCluster, log: int) -> tuple[list[bytes], list[Gap]]:
    async with cluster.client() as client:
        tail = await client.tail_lsn(log)
        async with client.reader(log, until=tail) as reader:
            items = [item async for item in reader]
    return [each.payload for each in items if isinstance(each, Record)], [
        each for each in items if isinstance(each, Gap)
    ]


@pytest.mark.slow
async def test_old_records_go_and_readers_get_one_trim_gap() -> None:
    cluster = LocalCluster(nodes=3)
    short_lived(cluster)
    async with cluster, cluster.client() as client:
        kept_for_ever = [b"first"]
        await client.append(2, b"first")
        first = await client.append(1, b"0")
        number = 0
        async with asyncio.timeout(60):
            while True:
                number += 1
                await client.append(1, b"%d" % number)
                payloads, gaps = await read_all(cluster, 1)
                trimmed = [gap for gap in gaps if gap.kind is GapKind.TRIM]
                # records that go while they are read leave further gaps between those that were read before
                if len(trimmed) == 1 and trimmed[0].lo <= first.lsn <= trimmed[0].hi:
                    break
                await asyncio.sleep(0.1)
        # nothing went before its time, and all that is younger is there; the clock is that of the nodes, which run in this process
        assert time.time_ns() // 1000 - first.timestamp >= BACKLOG
        assert payloads == [b"%d" % each for each in range(number + 1 - len(payloads), number + 1)]
        assert not [gap for gap in gaps if gap.kind is GapKind.DATALOSS]
        assert (await read_all(cluster, 2))[0] == kept_for_ever
