"""Logs that are made, renamed and removed at run time, on simulated clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from logdevice_py import LogDeviceError, SimCluster, Status
from logdevice_py.core.ids import TREE_LOG_ID_MIN


def test_logs_are_made_used_and_removed(simulate: Callable[..., Any]) -> None:
    async def use(cluster: SimCluster) -> None:
        async with cluster.client() as one, cluster.client() as other:
            made = await one.make_log_group("/team/clicks", 2, {"replicate": "node:2"}, parents=True)
            assert made.logs == range(TREE_LOG_ID_MIN, TREE_LOG_ID_MIN + 2)
            receipt = await one.append("/team/clicks/1", b"first")
            # who has not heard of it asks before it says that there is no such log
            await other.append("/team/clicks/1", b"second")
            async with other.reader("/team/clicks/1", receipt.lsn) as reader:
                assert [record.payload for record in (await reader.read(1)).records()] == [b"first"]
            with pytest.raises(LogDeviceError) as raised:
                await other.append("/team/views", b"")
            assert raised.value.status is Status.NOTFOUND
            assert (await other.get_log_group("/team/clicks")).version == made.version
            await one.rename("/team/clicks", "/team/old")
            assert (await other.get_log_group(made.lo)).path == "/team/old"
            await one.remove("/team/old", timeout=30)
            for client in (one, other):
                with pytest.raises(LogDeviceError) as raised:
                    await client.append(made.lo, b"late")
                assert raised.value.status is Status.NOTFOUND, raised.value
            again = await other.make_log_group("/team/old")
            assert again.lo == TREE_LOG_ID_MIN + 2

    simulate(use, nodes=3, log_tree=True, virtual_seconds=120)
