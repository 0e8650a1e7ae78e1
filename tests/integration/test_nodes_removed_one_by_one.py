"""Nodes are taken out while logs lie idle. What readers are told then: `tests/history/test_nodes_removed_one_by_one.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from logdevice_py.core.status import LogDeviceError
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
