"""Nodes are taken out while logs lie idle. What readers are told then: `tests/history/test_nodes_removed_one_by_one.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from client.client import Client
from ldquery.ctl.event_log import start_rebuilding, wait_until_rebuilt
from logdevice_py.core.ids import NodeId, shard_id
from logdevice_py.core.status import LogDeviceError
from logdevice_py.event_log.events import RebuildMode
from server.dev import supervisor
from server.dev.supervisor import CommandError
from tests.integration.process_cluster import process_cluster


async def test_no_node_is_taken_out_while_logs_rely_on_those_that_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {"sequencer": {"idle_logs_delay_us": "600s"}}
    async with process_cluster(tmp_path, nodes=5, logs=1, settings=slow) as cluster:
        monkeypatch.setattr(supervisor, "SETTLE_TIMEOUT", 1.0)
        with pytest.raises(CommandError, match=r"N1 is not removed: N\d looks at the logs located at it") as caught:
            await cluster.supervisor.remove(1)
        assert not isinstance(caught.value, LogDeviceError)
        assert 1 in cluster.supervisor.config.nodes


@pytest.mark.slow
@pytest.mark.slow
async def test_no_node_is_taken_out_undrained_where_it_can_be_drained(tmp_path: Path) -> None:
    rebuilds = {"rebuilding": {"enabled": True}}
    async with process_cluster(tmp_path, nodes=5, logs=1, settings=rebuilds) as cluster:
        with pytest.raises(CommandError, match=r"N1 is not removed: .*N1:S0 \(not drained\).*ldctl drain N1:S0 --wait"):
            await cluster.supervisor.remove(1)
        assert 1 in cluster.supervisor.config.nodes
        async with Client(cluster.file) as client:
            entry = (await start_rebuilding(client, shard_id(NodeId(1)), RebuildMode.RELOCATE)).shards[
                shard_id(NodeId(1))
            ]
            await wait_until_rebuilt(client, shard_id(NodeId(1)), entry)
        assert (await cluster.supervisor.remove(1)).startswith("N1 removed")


@pytest.mark.slow
async def test_no_node_is_taken_out_with_the_last_copies_of_records(tmp_path: Path) -> None:
    async with process_cluster(tmp_path, nodes=5, logs=2, replicate="node:2", racks=1) as cluster:
        async with Client(cluster.file) as client:
            receipt = await client.append(1, b"somewhere")
        first, second = sorted(shard >> 8 for shard in receipt.copyset)
        await cluster.supervisor.remove(first)
        with pytest.raises(
            CommandError, match=rf"N{second} is not removed: records of 2 logs .* of log 1, epochs 1 to \d+, on N"
        ):
            await cluster.supervisor.remove(second)
        assert second in cluster.supervisor.config.nodes
        assert (await cluster.supervisor.remove(second, without_drain=True)).startswith(f"N{second} removed")
