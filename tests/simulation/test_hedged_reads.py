"""Hedged readers: one slow shard does not make them slow, and slow shards cost little more."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.percentiles import percentile
from client.client import Client
from client.read.hedge_budget import ENTRIES_PER_HEDGE
from client.read.settings import ReadSettings
from client.tables import client_shard_delays_rows
from logdevice_py.core.ids import NodeId, shard_id
from logdevice_py.core.lsn import LSN
from logdevice_py.core.units import MILLISECOND
from logdevice_py.simulation.links import LinkFault
from logdevice_py.tables.constraints import EVERYTHING
from server.simulation.cluster import APPLICATION_ADDRESS, SimCluster, simulate

CLUSTER: dict[str, Any] = {
    "nodes": 5,
    "logs": 1,
    "attributes": {"sticky_copysets": False, "sequencer_batching": False, "hedged_reads": True},
}
SMALL = ReadSettings(buffer_bytes=1 << 16, shard_buffer_bytes_min=4096)
LONGEST = 400
"""Bytes of an entry."""
READER = APPLICATION_ADDRESS - 1
SLOW = 200 * MILLISECOND


class Follower:
    """A client that writes a record every two milliseconds, and another one that follows the log."""

    def __init__(self, writer: Client, client: Client) -> None:
        self.writer, self.client = writer, client
        self.sent: list[float] = []
        self.latencies: list[float] = []
        """Of each record: from its append to when it was read."""

    async def follow(self, **options: Any) -> None:
        loop = asyncio.get_running_loop()
        async with self.client.reader(1, until=LSN.MAX - 1, **options) as reader:
            while True:
                batch = await reader.read()
                self.latencies += [loop.time() - self.sent[int(payload)] for payload in batch.payloads]

    async def write(self, count: int) -> list[float]:
        """Append records; how long each took to be read."""
        loop = asyncio.get_running_loop()
        first, appends = len(self.sent), []
        for number in range(first, first + count):
            self.sent.append(loop.time())
            appends.append(asyncio.ensure_future(self.writer.append(1, b"%d" % number)))
            await asyncio.sleep(0.002)
        await asyncio.gather(*appends)
        while len(self.latencies) < len(self.sent):  # noqa: ASYNC110 - nobody else runs at that moment of virtual time
            await asyncio.sleep(0.01)
        return self.latencies[first:]


def rows_of(client: Client) -> dict[str, Any]:
    return {row.asked_shard: row for row in client_shard_delays_rows(client.session, "mine", EVERYTHING, client.now())}


@pytest.mark.parametrize("records", [300, pytest.param(2000, marks=pytest.mark.slow)])
def test_one_slow_shard_costs_a_read_no_more_than_a_hedge(records: int) -> None:
    """The time of a read that is waited for: the delay of the hedge, the way to the other shard and back, and what reads take otherwise."""
    told: dict[str, Any] = {}

    async def application(cluster: SimCluster) -> None:
        distances = cluster.machines.network.distances
        cluster.machines.network.settings.slow_probability = 0  # its own rare long delays are not what is measured
        async with cluster.client() as writer, cluster.client() as client:
            await writer.append(1, b"0")
            delays = client.session.hedges.delays
            delays.settings = replace(delays.settings, hedge_penalty_us=4_000_000)
            follower = Follower(writer, client)
            follower.sent.append(asyncio.get_running_loop().time())
            following = asyncio.ensure_future(follower.follow())
            told["healthy"] = await follower.write(1000)
            told["before"] = rows_of(client)
            distances[2, READER] = SLOW
            told["slow"] = await follower.write(records)
            told["metrics"] = replace(client.read_metrics)
            told["slow until"] = delays.of(shard_id(NodeId(2))).slow_until
            distances[2, READER] = 0
            await asyncio.sleep(5)
            told["again"] = await follower.write(200)
            told["last"] = rows_of(client)
            following.cancel()
            await asyncio.wait([following])

    simulate(application, **CLUSTER)
    shard, share = "N2:S0", 0.999 if records >= 2000 else 0.98
    before, metrics = told["before"][shard], told["metrics"]
    most = (before.hedge_delay_us + before.round_trip_us) / 1e6 + percentile(told["healthy"], 0.99)
    assert most < SLOW / 2e6
    assert percentile(told["slow"], share) <= most, (percentile(told["slow"], share), most)
    assert before.last_for_us == 0
    assert told["slow until"] > 0
    assert metrics.shards_left_to_the_end >= 1
    assert metrics.hedges_won > 0
    assert metrics.hedge_entries <= 0.05 * metrics.entries_received + ENTRIES_PER_HEDGE
    assert told["last"][shard].last_for_us == 0
    assert told["last"][shard].answers > 0
    assert percentile(told["again"], 0.97) <= most


def test_when_all_shards_are_slow_hedges_bring_a_twentieth_more_at_most() -> None:
    """In catch-up, where the client's link to every node is slow now and then."""
    told: dict[str, Any] = {}
    attributes = {**CLUSTER["attributes"], "hedged_reads": False}

    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as writer, cluster.client() as client:
            appends = [asyncio.ensure_future(writer.append(1, b"%d" % number * 50)) for number in range(1500)]
            tail = max(receipt.lsn for receipt in await asyncio.gather(*appends))
            lag = LinkFault(kind="lag", lag=SLOW)
            for node in range(5):
                cluster.machines.network.add_link_fault(node, READER, lag)
            for hedged in (False, True):
                before = replace(client.read_metrics)
                async with client.reader(1, until=tail, hedged=hedged, settings=SMALL) as reader:
                    while await reader.read():
                        pass
                    told[f"proof {hedged}"] = reader.proof()
                told[f"bytes {hedged}"] = client.read_metrics.bytes_received - before.bytes_received
            told["metrics"] = client.read_metrics

    simulate(application, **{**CLUSTER, "attributes": attributes})
    metrics = told["metrics"]
    assert told["proof True"] == told["proof False"]
    assert metrics.hedges_sent > 0
    assert metrics.hedge_entries <= 0.05 * metrics.entries_received + ENTRIES_PER_HEDGE
    assert told["bytes True"] <= 1.05 * told["bytes False"] + ENTRIES_PER_HEDGE * LONGEST
