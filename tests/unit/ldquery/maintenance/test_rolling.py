"""A rolling restart: one node after the other, on after it was killed, and no further where something is not as it should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from client.maintenance.commands import EndCause, EndMaintenance, TakeRestart, encode
from client.replica.commands import StateVersion
from ldquery.maintenance.manager import MaintenanceManager
from ldquery.maintenance.rolling import Restarting, RestartStopped, RollingRestarter, abandon
from logdevice_py.core.ids import NodeId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Timestamp
from tests.unit.ldquery.maintenance.fakes import MemoryMaintenanceLog, SeenCluster


class RestarterKilled(Exception):
    """The process that restarts is no more."""


class Restarts:
    """A cluster that is restarted."""

    def __init__(self, nodes: int = 4, replicate: str = "node:2") -> None:
        self.cluster = SeenCluster(nodes, replicate)
        self.log = MemoryMaintenanceLog(self.cluster)
        self.done: list[int] = []
        self.said: list[str] = []
        self.away: list[set[int]] = []
        """Granted nodes at each restart."""
        self.on_restart: Callable[[int], None] = lambda node: None
        """Called when a node is told, before it runs again."""
        self.on_survey: Callable[[], None] = lambda: None
        self.runs = 100

    async def survey(self) -> Any:
        self.on_survey()
        return await self.cluster.survey()

    async def restart(self, node: NodeId) -> None:
        self.away.append(set(self.log.state.going_nodes()))
        self.done.append(int(node))
        self.on_restart(node)
        self.started(node)

    def started(self, node: int) -> None:
        self.runs += 1
        self.cluster.info[node] = {**self.cluster.info.get(node, {}), "instance": str(self.runs)}

    async def run(self, *nodes: int, by: str = "ann", away: float = 600) -> int:
        manager = MaintenanceManager(self.log, self.survey, self.cluster, lambda: SECOND)  # type: ignore[arg-type]
        how = Restarting(self.restart, away, self.said.append, pause=0)
        restarter = RollingRestarter(self.log, manager, self.survey, how)  # type: ignore[arg-type]
        return await restarter.run([NodeId(node) for node in nodes], by, "upgrade")


async def test_each_node_goes_alone_and_in_order() -> None:
    restarts = Restarts()
    assert await restarts.run(2, 0, 1, 3) == 4
    assert restarts.done == [2, 0, 1, 3]
    assert restarts.away == [{2}, {0}, {1}, {3}]
    assert (restarts.log.state.restart, restarts.log.state.live) == (None, {})
    assert [each.cause for each in restarts.log.state.ended] == [EndCause.DONE] * 4
    assert "N2 is back and well" in restarts.said


@pytest.mark.parametrize("after", ["RestartNode", "ApplyMaintenance", "GrantMaintenance", "NodeRestarted", "restart"])
async def test_killed_at_any_step_and_run_again_it_goes_on(after: str) -> None:
    restarts = Restarts()
    propose = restarts.log.propose
    killed: list[bool] = []

    async def dying(command: Any) -> int:
        made = await propose(command)
        if type(command).__name__ == after and not killed:
            killed.append(True)
            raise RestarterKilled
        return made

    def die(node: int) -> None:
        if after == "restart" and not killed:
            killed.append(True)
            restarts.started(node)
            raise RestarterKilled

    restarts.log.propose = dying  # type: ignore[method-assign]
    restarts.on_restart = die
    with pytest.raises(RestarterKilled):
        await restarts.run(0, 1, 2)
    assert await restarts.run(7, by="bob") == 3, "the nodes that were named at first"
    assert restarts.done == [0, 1, 2], "none is restarted twice"
    assert (restarts.log.state.restart, restarts.log.state.live) == (None, {})
    assert any("goes on with rolling restart 1 of ann" in line for line in restarts.said)


async def test_killed_between_the_end_of_a_node_and_its_start_it_is_told_again() -> None:
    restarts = Restarts()

    def die(node: int) -> None:
        if len(restarts.done) == 1:
            restarts.cluster.down = {node}
            raise RestarterKilled

    restarts.on_restart = die
    with pytest.raises(RestarterKilled):
        await restarts.run(0, 1)
    restarts.on_restart = lambda node: restarts.cluster.down.clear()
    assert await restarts.run() == 2
    assert restarts.done == [0, 0, 1]


async def test_it_waits_while_anything_else_is_not_well() -> None:
    restarts = Restarts(5, "node:3")
    restarts.cluster.down = {4}
    looks: list[bool] = []
    done_then: list[list[int]] = []

    def survey() -> None:
        looks.append(True)
        if len(looks) == 6:
            done_then.append(list(restarts.done))
            restarts.cluster.down = set()
            restarts.cluster.rows[3] = {"dirty_logs": 2}
        if len(looks) == 12:
            done_then.append(list(restarts.done))
            restarts.cluster.rows = {}

    restarts.on_survey = survey
    assert await restarts.run(0, 1) == 2
    assert done_then == [[], []]
    told = "\n".join(restarts.said)
    assert "N0 is next when the others are well: N4:S0 does not answer" in told
    assert "N3:S0 may lack records of 2 logs" in told
    assert told.count("N4:S0 does not answer") == 1, "what did not change is said once"


async def test_it_waits_until_the_node_is_back_with_all_that_it_had() -> None:
    restarts = Restarts()
    looks: list[bool] = []
    going_then: list[tuple[set[int], int]] = []

    def told(node: int) -> None:
        restarts.cluster.rows[node] = {"dirty_logs": 1}
        looks.clear()

    def survey() -> None:
        looks.append(True)
        if len(looks) > 4 and restarts.cluster.rows:
            going_then.append((set(restarts.log.state.going_nodes()), restarts.done[-1]))
            restarts.cluster.rows = {}

    restarts.on_restart, restarts.on_survey = told, survey
    assert await restarts.run(0, 1) == 2
    assert going_then == [({0}, 0), ({1}, 1)]
    assert any("N0 is not back and well yet: N0:S0 may lack" in line for line in restarts.said)


async def test_a_command_that_left_the_node_as_it_was_is_noticed() -> None:
    restarts = Restarts()
    restarts.started = lambda node: None  # type: ignore[method-assign, assignment]
    with pytest.raises(RestartStopped, match="N0 is not back and well after 0 s: N0 still runs as before"):
        await restarts.run(0, 1, away=0)
    assert restarts.done == [0]
    assert restarts.log.phase(3) == "GRANTED"


async def test_it_stops_when_a_node_comes_back_without_its_data() -> None:
    restarts = Restarts()

    def lose(node: int) -> None:
        restarts.cluster.rows[node] = {"generation": 2}

    restarts.on_restart = lose
    with pytest.raises(RestartStopped, match="N0:S0 came back without its data, as generation 2"):
        await restarts.run(0, 1)
    assert restarts.done == [0]


async def test_it_stops_when_the_command_fails() -> None:
    restarts = Restarts()

    def fail(node: int) -> None:
        raise RestartStopped("'false' ended with status 1")

    restarts.on_restart = fail
    with pytest.raises(RestartStopped, match="status 1"):
        await restarts.run(0, 1)
    assert restarts.log.state.restart is not None


async def test_only_the_process_that_took_it_last_goes_on() -> None:
    restarts = Restarts()

    def taken(node: int) -> None:
        number = restarts.log.state.restart.number  # type: ignore[union-attr]
        restarts.log.at += 1
        restarts.log.state.apply(
            encode(TakeRestart(number, "bob")), StateVersion(Lsn(restarts.log.at), 0), Timestamp(SECOND)
        )

    restarts.on_restart = taken
    with pytest.raises(LogDeviceError, match="bob goes on with rolling restart 1") as raised:
        await restarts.run(0, 1)
    assert raised.value.status is Status.FENCED
    assert restarts.done == [0]


async def test_a_maintenance_that_was_cancelled_meanwhile_stops_it() -> None:
    restarts = Restarts()
    looks: list[bool] = []

    async def cancel() -> None:
        await restarts.log.propose(EndMaintenance(3, EndCause.CANCELLED))

    original = restarts.log.current

    async def current() -> Any:
        if restarts.log.commands[-1:] == ["RestartNode"] and not looks:
            looks.append(True)
            await cancel()
        return await original()

    restarts.log.current = current  # type: ignore[method-assign]
    with pytest.raises(RestartStopped, match="maintenance 3 changed: N0 may not go"):
        await restarts.run(0, 1)
    assert restarts.done == []


async def test_nodes_that_left_the_cluster_file_are_passed_over_and_it_can_be_abandoned() -> None:
    restarts = Restarts()

    def fail(node: int) -> None:
        raise RestartStopped("no")

    restarts.on_restart = fail
    with pytest.raises(RestartStopped):
        await restarts.run(3, 0)
    restarts.on_restart = lambda node: None
    await restarts.log.propose(EndMaintenance(3, EndCause.CANCELLED))
    del restarts.cluster.plan.nodes[3]
    restarts.cluster.publish()
    restarts.cluster.nodeset = (0, 1, 2)
    assert await restarts.run() == 2
    assert "N3 left the cluster file" in restarts.said
    assert await abandon(restarts.log) is None  # type: ignore[arg-type]
    restarts.on_restart = fail
    with pytest.raises(RestartStopped):
        await restarts.run(0)
    assert (await abandon(restarts.log)) is not None  # type: ignore[arg-type]
    assert (restarts.log.state.restart, restarts.log.state.live) == (None, {})
