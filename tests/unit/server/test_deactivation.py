"""Sequencers that operators deactivate and send into other epochs, in clusters that break meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from server.simulation.cluster import SimCluster, simulate
from server.simulation.machines import SimNode, SimNodeState
from tests.unit.sequencer.fakes import LOG, active

RECORDS = 300


def ask(node: SimNode, recover: bool, done: list[Status]) -> None:
    process, root = node.process, node.root
    if process is None or root is None or node.state is not SimNodeState.RUNNING or root.sequencer is None:
        return
    sequencer = root.sequencer

    def event(now: Micros) -> None:
        done.append(sequencer.start_recovery(LogId(1), now)[0] if recover else sequencer.deactivate(LogId(1), now))

    process.event(event)


async def write_and_meddle(cluster: SimCluster) -> list[Status]:
    done: list[Status] = []
    async with cluster.client() as client:
        async with client.buffered_writer() as writer:
            for number in range(RECORDS):
                await writer.append(1, b"%d" % number)
                if cluster.rng.random() < 0.3:
                    ask(cluster.node(cluster.rng.randrange(3)), cluster.rng.random() < 0.3, done)
                await asyncio.sleep(cluster.rng.random() / 50)
        await cluster.calm()
        tail = await client.tail_lsn(1)
        async with client.reader(1, start=LSN.OLDEST, until=tail) as reader:
            read = [item.payload async for item in reader if hasattr(item, "payload")]
    assert read == [b"%d" % number for number in range(RECORDS)]
    return done


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_repeated_or_reordered(seed: int) -> None:
    done = simulate(write_and_meddle, seed=seed, nodes=3, faults="all" if seed % 2 else ())
    assert done.count(Status.OK) > 3


def test_a_log_is_deactivated_when_nothing_of_it_is_on_its_way() -> None:
    world = active()
    world.answer = lambda store: None  # type: ignore[assignment,return-value]
    world.append()
    world.run()
    assert world.node.deactivate(LOG, world.now) is Status.AGAIN
    idle = active()
    epoch = idle.sequencer.epoch
    assert idle.node.deactivate(LOG, idle.now) is Status.OK
    assert idle.sequencer.epoch == 0
    assert idle.node.deactivate(LOG, idle.now) is Status.NOSEQUENCER
    idle.node.check()
    idle.append()
    idle.run(1_000_000)
    assert idle.sequencer.epoch == epoch + 1
    assert idle.sequencer.is_released
