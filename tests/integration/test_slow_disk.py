"""One disk of five becomes a hundred times as slow as the others: appends go round it."""

from __future__ import annotations

import time
from collections.abc import Callable

from client.client import Client
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import Status
from sequencer.metrics import SequencerMetrics
from server.host import NodeHost
from server.local_cluster import LocalCluster

LOG = LogId(1)
APPENDS = 400
USUAL, SLOW = 0.002, 0.2
"""Seconds of a sync."""


class Disk:
    """Of a node: each sync of it takes this much longer, and is counted."""

    def __init__(self, host: NodeHost) -> None:
        [service] = host.shards.values()
        store = service._store
        sync: Callable[[], Status] = store.sync
        self.delay = USUAL
        self.syncs = 0

        def delayed() -> Status:
            self.syncs += 1
            time.sleep(self.delay)
            return sync()

        store.sync = delayed  # type: ignore[method-assign]


async def latencies(client: Client) -> list[float]:
    """Of one append after the other, in seconds, in order of size."""
    taken = []
    for number in range(APPENDS):
        begun = time.perf_counter()
        await client.append(LOG, b"%d" % number)
        taken.append(time.perf_counter() - begun)
    return sorted(taken)


def told(taken: list[float]) -> str:
    p50, p99 = taken[APPENDS // 2], taken[APPENDS * 99 // 100]
    return f"p50 {1e3 * p50:.1f} ms, p99 {1e3 * p99:.1f} ms, {1e3 * taken[-1]:.1f} ms at most"


def sequencing(cluster: LocalCluster, node: int) -> SequencerMetrics:
    sequencer = cluster.hosts[node].node.sequencer
    assert sequencer is not None
    return sequencer.metrics


async def test_a_slow_disk_is_gone_round_by_appends() -> None:
    async with LocalCluster(nodes=5, replicate="node:3") as cluster, Client(cluster.config_file) as client:
        disks = {node: Disk(host) for node, host in cluster.hosts.items()}
        before = await latencies(client)
        home = max(cluster.hosts, key=lambda node: sequencing(cluster, node).entries_replicated)
        # One of the copyset, which is kept for a block of entries: disks outside it are not written to.
        slow = max((node for node in cluster.hosts if node != home), key=lambda node: disks[node].syncs)
        timed_out = sequencing(cluster, home).stores_timed_out
        disks[slow].delay = SLOW
        during = [await latencies(client), await latencies(client)]
        metrics = sequencing(cluster, home)
        print(f"control: {told(before)}; one disk is slow: {told(during[0])}; then: {told(during[1])}")
        assert metrics.shards_graylisted
        assert metrics.stores_timed_out - timed_out <= APPENDS // 20, "who chose it time and again would wait each time"
        for taken in during:
            assert taken[APPENDS * 99 // 100] < SLOW / 2, told(taken)
