"""Extra copies in simulated clusters: what is acknowledged outlives its sequencer before it is settled, and readers get each record once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from client.read.items import Record
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.protocol.messages import Records
from sequencer.extra_copies import EpochWithExtras
from server.simulation.cluster import SimCluster, simulate
from tests.slow import quick

LOG = LogId(1)
CLUSTER: dict[str, Any] = {
    "nodes": 4,
    "logs": 1,
    "replicate": "node:2",
    "attributes": {"extra_copies": 1, "sequencer_batching": False, "sticky_copysets": False},
}


def sequencing(cluster: SimCluster) -> tuple[int, EpochWithExtras]:
    """The node that sequences the log, and its epoch: the latest one, as another node may not have heard of it."""
    found: list[tuple[int, int, EpochWithExtras]] = []
    for node, machine in cluster.machines.nodes.items():
        root = machine.root
        sequencer = None if root is None or root.sequencer is None else root.sequencer.sequencers.get(LOG)
        if sequencer is not None and isinstance(sequencer.current, EpochWithExtras):
            found.append((sequencer.current.epoch, node, sequencer.current))
    _, node, epoch = max(found, key=lambda each: each[0])
    return node, epoch


@pytest.mark.parametrize("seed", quick(range(4), 2))
def test_what_is_acked_outlives_its_sequencer(seed: int) -> None:
    unsettled: list[int] = []

    async def application(cluster: SimCluster) -> None:
        acknowledged: dict[LSN, bytes] = {}
        async with cluster.client() as client:
            await client.append(LOG, b"first")
            node, epoch = sequencing(cluster)
            late = next(other for other in cluster.machines.nodes if other != node)
            await cluster.pause_node(late)
            for _ in range(50):
                payload = b"%d" % len(acknowledged)
                acknowledged[(await client.append(LOG, payload)).lsn] = payload
                node, epoch = sequencing(cluster)
                if epoch.acked_through > epoch.lng:
                    break
            unsettled.append(epoch.acked_through - epoch.lng)
            await cluster.stop_node(node)
            await cluster.resume_node(late)
            await asyncio.sleep(0.1)
            await cluster.start_node(node)
            await client.append(LOG, b"last")
            until = await client.tail_lsn(LOG)
            async with client.reader(LOG, until=until) as reader:
                found = {item.lsn: item.payload async for item in reader if isinstance(item, Record)}
        assert acknowledged.items() <= found.items()
        assert set(found.values()) >= {b"first", b"last"}

    simulate(application, seed=seed, **CLUSTER)
    assert unsettled[0] > 0


def test_readers_get_each_record_from_one_shard() -> None:
    sent: Counter[int] = Counter()

    async def application(cluster: SimCluster) -> int:
        async with cluster.client() as writer, cluster.client() as client:
            receipts = [await writer.append(LOG, b"%d" % number) for number in range(100)]
            original = client.session.streams.on_records

            def on_records(peer: Any, message: Records, now: Any) -> None:
                sent[message.shard] += len(message.entries)
                original(peer, message, now)

            client.session._routes[Records] = on_records
            async with client.reader(LOG, until=receipts[-1].lsn) as reader:
                return len([item async for item in reader if isinstance(item, Record)])

    assert simulate(application, **CLUSTER) == 100
    assert sent.total() == 100, "not from an extra copy as well"
    assert len(sent) == 4
