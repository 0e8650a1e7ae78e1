"""Connections to nodes that count as dead, over routes on which packets vanish: those that nobody acknowledges are closed, others are not."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from logdevice_py.core.ids import InstanceId, LogId, NodeId, PeerId, ShardId
from logdevice_py.protocol.messages import Release
from logdevice_py.runtime.transport import Transport
from logdevice_py.shell.introduction import Identity
from logdevice_py.shell.settings import RuntimeSettings
from server.dev import layout
from server.dev.region_network import Distances, PlayedMachine, RegionNetwork, why_no_regions
from tests.chaos.places import FarPlace
from tests.integration.test_transport import UUID, Recorder, release

_WHY_NOT = why_no_regions()
pytestmark = pytest.mark.skipif(_WHY_NOT is not None, reason=str(_WHY_NOT))
HERE, FAR = NodeId(0), NodeId(1)
CUT = 4.0
"""Seconds. Packets are sent again after 0.2 s and then after ever longer ones, so that the last try before the end of the cut is at some 3.2 s, the next one at 6.4."""
SOON = 2.0
"""Seconds from the end of a cut: a dial during it may have begun to wait, for a second, before its first packet is sent again."""


class Pair:
    """Node 0 here and node 1 in another region."""

    def __init__(self, network: RegionNetwork, place: FarPlace, addresses: dict[int, tuple[str, int]]) -> None:
        self.network = network
        self.place = place
        self._addresses = addresses
        self.dead: set[NodeId] = set()
        """Which nodes count as dead for node 0."""
        self.seen = Recorder()
        self.here = self._transport(HERE, self.seen)

    def _transport(self, node: NodeId, recorder: Recorder) -> Transport:
        return Transport(
            Identity("c", UUID, node, InstanceId(1), 1),
            recorder,
            self._addresses.get,
            settings=RuntimeSettings(),
            rng=random.Random(node),
            is_alive=lambda asked: asked not in self.dead,
        )

    async def start_far(self) -> Transport:
        async def start() -> Transport:
            far = Transport(
                Identity("c", UUID, FAR, InstanceId(1), 1),
                Recorder(),
                self._addresses.get,
                settings=RuntimeSettings(),
                rng=random.Random(FAR),
            )
            await far.listen(*self._addresses[FAR])
            return far

        return await self.place.do(start)

    def send(self) -> None:
        self.here.send(PeerId(FAR), release(1))
        self.here.flush()


@asynccontextmanager
async def pair(directory: Path) -> AsyncIterator[Pair]:
    hosts = {number: layout.region_host(directory, number) for number in (HERE, FAR)}
    network = RegionNetwork(Distances.parse("5ms"))
    namespace = layout.machine_name(directory, "far")
    place = FarPlace("far", namespace, "eu....")
    await asyncio.to_thread(
        network.open,
        [
            PlayedMachine(layout.machine_name(directory, "here"), hosts[HERE], "us", is_here=True),
            PlayedMachine(namespace, hosts[FAR], "eu"),
        ],
    )
    try:
        place.open()
        both = Pair(network, place, {number: (host, layout.NODE_PORT) for number, host in hosts.items()})
        far = await both.start_far()
        try:
            both.send()
            await both.seen.until(lambda: both.seen.up == [FAR])
            yield both
        finally:
            await both.here.close()
            await place.do(far.close)
    finally:
        place.close()
        network.close()


async def cut_for_a_while(both: Pair, *, sends: bool) -> float:
    """Seconds after the end of the cut until there is a new connection."""
    both.network.cut_off("eu")
    began = time.monotonic()
    if sends:
        both.send()
    both.dead = {FAR}
    await both.seen.until(lambda: both.seen.down == [(FAR, False)])
    assert time.monotonic() < began + 10, "TCP by itself ends it after 20 s"
    await asyncio.sleep(max(0.0, began + CUT - time.monotonic()))
    both.network.reconnect()
    both.dead = set()
    ended = time.monotonic()
    both.here.connect(FAR)
    await both.seen.until(lambda: both.seen.up == [FAR, FAR])
    return time.monotonic() - ended


@pytest.mark.parametrize("sends", [True, False], ids=["something is under way", "nothing is under way"])
async def test_after_a_cut_there_is_a_new_connection_at_once(tmp_path: Path, sends: bool) -> None:
    async with pair(tmp_path) as both:
        assert await cut_for_a_while(both, sends=sends) < SOON
        assert both.here.metrics.dead_peers_closed == 1


async def test_a_connection_of_a_living_node_is_not_closed(tmp_path: Path) -> None:
    """Nor does a cut that is over before anybody counts as dead end it."""
    async with pair(tmp_path) as both:
        both.network.cut_off("eu")
        both.send()
        await asyncio.sleep(CUT / 2)
        both.network.reconnect()
        await asyncio.sleep(CUT / 2)
        assert both.seen.down == []


async def test_a_node_that_is_stopped_and_counts_as_dead_keeps_its_connections(tmp_path: Path) -> None:
    """Its kernel acknowledges what comes, also that there is no more room for it."""
    async with pair(tmp_path) as both:
        stopped = asyncio.Event()

        async def stop() -> None:
            stopped.set()
            time.sleep(CUT)  # noqa: ASYNC251 - its whole thread

        stopping = asyncio.create_task(both.place.do(stop))
        await asyncio.sleep(0.1)
        both.dead = {FAR}
        large = Release(shard=ShardId(0), logs=[(LogId(1), number) for number in range(4_000)])
        for _ in range(750):
            both.here.send(PeerId(FAR), large)
            both.here.flush()
        (state,) = both.here.connections()
        assert state.pending_bytes, "there is no more room at the other end"
        await stopping
        assert both.seen.down == []
        assert both.here.metrics.dead_peers_closed == 0
