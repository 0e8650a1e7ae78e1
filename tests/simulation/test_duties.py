"""Maintenances that nobody waits for: some node sees to them, also when that node dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from client.maintenance.commands import ApplyMaintenance, MaintenanceKind
from ldquery.maintenance.cluster import ClusterDrains
from ldquery.maintenance.manager import MaintenanceLog, MaintenanceManager
from logdevice_py import LogDeviceError, SimCluster, SimulationFailed
from logdevice_py.core.ids import MAINTENANCE_DELTAS, NodeId, shard_id
from logdevice_py.core.lsn import LSN_INVALID
from logdevice_py.core.units import SECOND
from logdevice_py.placement import sequencer_locator
from server.duties.duty_watch import MAINTENANCES, DutyStep, DutyWatch
from server.duties.maintenance_duty import see_to_maintenances
from server.simulation.machines import SimNodeState
from tests.simulation.maintenances import SimSurvey
from tests.slow import quick

CLUSTER: dict[str, Any] = {
    "nodes": 5,
    "logs": 1,
    "replicate": "node:2",
    "rebuilding": True,
    "maintenances": True,
    "virtual_seconds": 1500,
}
WITHIN = 240.0
"""Seconds in which all that was asked for is granted and over, though nodes die."""


class SimDuties:
    """What `DutyKeeper` does, for simulated nodes: each looks with its own eyes, and what it does ends with it."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.begun: list[int] = []
        """By whom work was begun, in order."""
        self._working: dict[int, asyncio.Task[None]] = {}

    async def run(self, number: NodeId) -> None:
        """One node, for ever."""
        machines, watch, life = self.cluster.machines, DutyWatch(MAINTENANCES), None
        loop = asyncio.get_running_loop()
        while True:
            node = machines.nodes[number]
            alive = node.state is SimNodeState.RUNNING and node.root is not None
            if (root := node.root if alive else None) is not life:
                await self._end(number)
                watch, life = DutyWatch(MAINTENANCES), root
            if root is not None and root.sequencer is not None:
                located = sequencer_locator.locate_sequencer(MAINTENANCES.log, root.config, root.gossip.may_sequence)
                held = root.sequencer.sequencers.get(MAINTENANCE_DELTAS)
                end = LSN_INVALID if held is None else held.last_released
                step = watch.look(is_mine=located == number, end=end, now=loop.time())
                if step is DutyStep.BEGIN:
                    self.begun.append(int(number))
                    self._working[number] = asyncio.create_task(self._work(watch))
                elif step is DutyStep.END:
                    await self._end(number)
            await asyncio.sleep(2)

    async def _end(self, number: int) -> None:
        task = self._working.pop(number, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _work(self, watch: DutyWatch) -> None:
        cluster, trouble = self.cluster, "it was ended"
        try:
            async with cluster.client() as client, MaintenanceLog(client, timeout=20) as log:
                wall = cluster.machines.nodes[NodeId(0)].clock.wall
                manager = MaintenanceManager(log, SimSurvey(cluster, client), ClusterDrains(client), wall)
                await see_to_maintenances(log, manager, pause=2)
                trouble = ""
        except LogDeviceError as error:
            trouble = str(error)
        finally:
            watch.ended(trouble, asyncio.get_running_loop().time())


async def nobody_waits(cluster: SimCluster) -> SimDuties:
    """Maintenances of all nodes are asked for and left alone, while the node that sees to them dies again and again."""
    duties, loop = SimDuties(cluster), asyncio.get_running_loop()
    tasks = [asyncio.create_task(duties.run(number)) for number in cluster.machines.nodes]
    try:
        async with cluster.client() as client, MaintenanceLog(client, timeout=60) as log:
            for node in range(5):
                drain = node == 3
                kind = MaintenanceKind.DRAIN if drain else MaintenanceKind.AWAY
                await log.propose(
                    ApplyMaintenance(kind, [NodeId(node)], [shard_id(NodeId(node))], 30 * SECOND, "ann", "")
                )
            began = loop.time()
            granted: set[int] = set()
            while (await log.current()).live:
                granted |= {
                    each.number for each in log.state.live.values() if each.phase.name in ("GRANTED", "DRAINED")
                }
                assert loop.time() - began < WITHIN, f"nobody sees to {sorted(log.state.live)}"
                if len(duties.begun) < 4 and duties.begun and cluster.rng.random() < 0.2:
                    node = duties.begun[-1]
                    await cluster.stop_node(node)
                    await asyncio.sleep(cluster.rng.uniform(3, 10))
                    await cluster.start_node(node)
                await asyncio.sleep(1)
            assert granted, "they were granted before they were over"
            assert {each.cause.name for each in log.state.ended if each.cause is not None} == {"EXPIRED"}
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for number in list(duties._working):
            await duties._end(number)
    return duties


@pytest.mark.parametrize("seed", quick(range(20), 1))
def test_what_is_asked_for_is_granted_and_ended_by_nodes(simulate: Callable[..., Any], seed: int) -> None:
    duties = simulate(nobody_waits, seed=seed, **CLUSTER)
    assert len(set(duties.begun)) > 1, "another node went on with it"


def test_when_the_duty_stays_with_one_node_a_death_is_noticed(
    simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deliberate fault: all nodes take the duty for that of the node that had it first, whether that lives or not."""
    first: list[Any] = []
    locate = sequencer_locator.locate_sequencer

    def always_the_first(log: Any, config: Any, may_sequence: Any) -> Any:
        if log == MAINTENANCES.log and not first:
            first.append(locate(log, config, may_sequence))
        return first[0] if log == MAINTENANCES.log else locate(log, config, may_sequence)

    async def that_one_is_gone(cluster: SimCluster) -> None:
        async def stay_down(number: Any) -> None:
            await asyncio.sleep(1)

        cluster.start_node = stay_down  # type: ignore[method-assign, assignment]
        await nobody_waits(cluster)

    monkeypatch.setattr(sequencer_locator, "locate_sequencer", always_the_first)
    with pytest.raises(SimulationFailed, match="nobody sees to"):
        simulate(that_one_is_gone, seed=1, **CLUSTER)
