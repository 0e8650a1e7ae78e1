"""A cut between regions of real nodes: what was under way has its outcome soon, and nobody waits for TCP to try old connections again when the cut is over."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from client.client import Client
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError
from server.dev.readiness import wait_until_acquainted
from server.dev.region_network import why_no_regions
from server.dev.zookeeper_server import why_no_zookeeper
from tests.chaos.regions import region_chaos_cluster

_WHY_NOT = why_no_regions() or why_no_zookeeper()
REGIONS = ("us", "eu", "ap")
IN_EU = LogId(1)
CUT = 4.0
"""Seconds. TCP sends again after some 1.7, 3.7 and 7.6 of them."""
SOON = 2.0
"""Seconds from its end until all nodes hear each other and take appends."""


@pytest.mark.slow
@pytest.mark.skipif(_WHY_NOT is not None, reason=str(_WHY_NOT))
async def test_appends_and_nodes_go_on_at_once_after_a_cut(tmp_path: Path) -> None:
    async with region_chaos_cluster(tmp_path, REGIONS, logs=1) as cluster, Client(cluster.file) as client:
        supervisor = cluster.supervisor
        home = (await client.sequencer(IN_EU)).node
        assert supervisor.config.nodes[home].location.region == "eu"
        await client.append(IN_EU, b"before")
        await supervisor.cut_off("eu")
        cut = time.monotonic()
        with pytest.raises(LogDeviceError) as caught:
            await client.append(IN_EU, b"under way", timeout=30)
        assert caught.value.maybe_applied
        assert time.monotonic() < cut + 3, (
            "it waits for no answer of a node that counts as dead and acknowledges nothing"
        )
        await client.append(IN_EU, b"elsewhere", timeout=30)
        await asyncio.sleep(cut + CUT - time.monotonic())
        await supervisor.reconnect("eu")
        ended = time.monotonic()
        access = supervisor.admin_access
        acquainted = asyncio.create_task(
            wait_until_acquainted(supervisor.config, supervisor.running, timeout=60, access=access)
        )
        await client.append(IN_EU, b"after", timeout=30)
        await acquainted
        await client.append(IN_EU, b"after, perhaps elsewhere", timeout=30)
        assert time.monotonic() < ended + SOON
