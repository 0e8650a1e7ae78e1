"""Four of seven nodes are taken out one after the other while logs lie idle: nobody is told of a loss where nothing was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from client.client import Client
from logdevice_py.core.ids import LogId, node_of
from logdevice_py.core.status import LogDeviceError
from server import supervisor
from server.supervisor import CommandError
from tests.integration.process_cluster import process_cluster, read_all

LOGS = range(1, 21)
GONE = range(4)


async def test_readers_are_told_of_no_loss_where_a_copy_is_left(tmp_path: Path) -> None:
    async with process_cluster(tmp_path, nodes=7, logs=len(LOGS)) as cluster:
        kept = []
        async with Client(cluster.file) as client:
            for log in LOGS:
                receipt = await client.append(LogId(log), b"the only one")
                if any(node_of(shard) not in GONE for shard in receipt.copyset):
                    kept.append(log)
        assert len(kept) > len(LOGS) // 2
        for node in GONE:
            await cluster.supervisor.remove(node)
        async with Client(cluster.file) as client:
            for log in kept:
                reading = await read_all(client, log)
                assert list(reading.records.values()) == [b"the only one"]
                assert "dataloss" not in [gap[0] for gap in reading.gaps], (log, reading.gaps)


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
