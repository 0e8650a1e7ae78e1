"""What a manager does about maintenances, step by step."""

from __future__ import annotations

import pytest

from client.maintenance.commands import EndCause, EndMaintenance, GrantMaintenance
from ldquery.maintenance.duties import sees_to
from ldquery.maintenance.manager import MaintenanceLog, MaintenanceManager
from logdevice_py.core.ids import NodeId, shard_id
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND
from tests.unit.ldquery.maintenance.fakes import MemoryMaintenanceLog, SeenCluster

S = [shard_id(NodeId(node)) for node in range(6)]


class Managed:
    """A cluster, a log and a manager of it."""

    def __init__(self, nodes: int = 4, replicate: str = "node:2", **options: int) -> None:
        self.cluster = SeenCluster(nodes, replicate, **options)
        self.log = MemoryMaintenanceLog(self.cluster)
        self.wall = SECOND
        self.manager = self.another(self.log)

    def another(self, log: MemoryMaintenanceLog) -> MaintenanceManager:
        return MaintenanceManager(log, self.cluster.survey, self.cluster, lambda: self.wall)  # type: ignore[arg-type]

    async def look(self) -> dict[int, list[str]]:
        return (await self.manager.look()).reasons

    def pass_time(self, seconds: float) -> None:
        self.wall += int(seconds * SECOND)
        self.log.time = self.wall


async def test_what_is_safe_is_granted_one_after_the_other() -> None:
    managed = Managed()
    assert await managed.look() == {}
    assert managed.cluster.surveys == 0, "nobody is asked while nothing is wanted"
    first, second = await managed.log.apply(0), await managed.log.apply(1)
    told = await managed.look()
    assert told[first] == []
    assert told[second][0].startswith("DATA")
    assert (managed.log.phase(first), managed.log.phase(second)) == ("GRANTED", "WAITING")
    assert (await managed.manager.reasons())[second] == told[second]
    await managed.log.propose(EndMaintenance(first, EndCause.DONE))
    assert await managed.look() == {second: []}
    assert managed.log.phase(second) == "GRANTED"


async def test_nobody_is_asked_while_all_that_is_wanted_is_granted() -> None:
    managed = Managed()
    number = await managed.log.apply(0, seconds=100)
    assert managed.manager.has_work
    await managed.look()
    assert not managed.manager.has_work
    managed.pass_time(101)
    assert managed.manager.has_work
    managed.wall -= 50 * SECOND
    await managed.log.propose(EndMaintenance(number, EndCause.DONE))
    drained = await managed.log.apply(1, drain=True)
    await managed.look()
    assert (managed.log.phase(drained), managed.manager.has_work) == ("DRAINING", True)


def test_who_sees_to_something() -> None:
    rows = [
        {"node_id": 1, "duties": "janitors; maintenances (failed: ACCESS: no, really)"},
        {"node_id": 2, "duties": "maintenances of old"},
        {"node_id": 3, "duties": "maintenances"},
        {"node_id": 4},
    ]
    assert sees_to("maintenances", rows) == ["N1 (failed: ACCESS: no, really)", "N3"]


async def test_one_that_cannot_go_holds_up_no_other() -> None:
    managed = Managed(4, "node:3")
    await managed.log.apply(0, 1, 2)
    small = await managed.log.apply(3)
    await managed.look()
    assert managed.log.phase(small) == "GRANTED"


async def test_a_grant_that_another_manager_overtook_is_refused_and_judged_again() -> None:
    managed = Managed()
    first, second = await managed.log.apply(0), await managed.log.apply(1)
    survey = managed.cluster.survey

    async def slow() -> object:
        found = await survey()
        if managed.cluster.surveys == 1:
            await managed.log.propose(GrantMaintenance(second, managed.log.state.basis))
        return found

    managed.cluster.survey = slow  # type: ignore[method-assign, assignment]
    managed.manager = managed.another(managed.log)
    told = await managed.look()
    assert told[first][0].startswith("DATA"), "what was granted during the survey counts"
    assert managed.log.phase(first) == "WAITING"


async def test_whoever_takes_something_away_looks_again_and_takes_the_grant_back() -> None:
    managed = Managed()
    number = await managed.log.apply(0)
    await managed.look()
    assert await managed.manager.confirm(number) == []
    managed.cluster.down = {2}
    assert (await managed.manager.confirm(number))[0].startswith("DATA")
    assert managed.log.phase(number) == "WAITING"
    managed.cluster.down = set()
    await managed.look()
    assert await managed.manager.confirm(number) == []
    await managed.log.propose(EndMaintenance(number, EndCause.DONE))
    with pytest.raises(LogDeviceError, match="is over") as raised:
        await managed.manager.confirm(number)
    assert raised.value.status is Status.NOTFOUND


async def test_a_manager_takes_nothing_back_that_may_be_gone_already() -> None:
    managed = Managed()
    number = await managed.log.apply(0)
    await managed.look()
    managed.cluster.down = {0, 2}
    await managed.look()
    assert managed.log.phase(number) == "GRANTED"


async def test_a_drain_from_its_begin_to_shards_that_are_used_again() -> None:
    managed = Managed()
    number = await managed.log.apply(1, drain=True, seconds=0)
    await managed.look()
    assert (managed.log.phase(number), managed.cluster.drained) == ("DRAINING", {})
    assert await managed.look() == {number: ["N1:S0 is being drained: asked for"]}
    assert managed.cluster.drained == {S[1]: "rebuilding"}
    managed.cluster.drained[S[1]] = "uncertain"
    assert await managed.look() == {
        number: ["N1:S0 is being drained: records may be gone: see ldctl status, then cancel it"]
    }
    assert managed.log.phase(number) == "DRAINING"
    managed.cluster.drained[S[1]] = "rebuilt"
    await managed.look()
    assert managed.log.phase(number) == "DRAINED"
    assert await managed.manager.confirm(number) == []
    await managed.log.propose(EndMaintenance(number, EndCause.CANCELLED))
    await managed.look()
    assert (managed.log.state.live, managed.cluster.drained) == ({}, {})


async def test_a_drain_of_which_some_records_found_no_place_is_tried_again_when_there_is_one() -> None:
    managed = Managed(4, "node:3")
    number = await managed.log.apply(1, drain=True, seconds=0)
    await managed.look()
    await managed.look()
    managed.cluster.drained[S[1]] = "unplaced"
    managed.cluster.down = {2}
    told = (await managed.look())[number]
    assert told[0] == "N1:S0 is being drained: some records found no other place"
    assert '"node:3" could not be kept' in told[1] or "too few" in told[1]
    assert managed.cluster.drained == {S[1]: "unplaced"}, "nobody is asked to try what cannot be"
    managed.cluster.down = set()
    assert await managed.look() == {
        number: ["N1:S0 is being drained: some records found no other place, asked for once more"]
    }
    assert managed.cluster.drained == {S[1]: "rebuilding"}
    assert managed.log.phase(number) == "DRAINING"


async def test_a_shard_that_was_lost_while_it_was_drained_keeps_its_maintenance_until_it_is_back() -> None:
    managed = Managed()
    number = await managed.log.apply(1, drain=True, seconds=0)
    await managed.look()
    await managed.look()
    await managed.log.propose(EndMaintenance(number, EndCause.CANCELLED))
    managed.cluster.lost = {S[1]}
    assert await managed.look() == {number: ["N1:S0 was lost while it was drained"]}
    assert managed.log.phase(number) == "ENDING"
    managed.cluster.lost = set()
    await managed.look()
    assert managed.log.state.live == {}


async def test_a_drain_that_is_not_safe_any_more_when_it_begins_waits_again() -> None:
    managed = Managed(4, "node:3")
    number = await managed.log.apply(1, drain=True)
    await managed.look()
    managed.cluster.down = {2}
    told = await managed.look()
    assert "could not be kept" in told[number][0] or "too few" in told[number][0]
    assert (managed.log.phase(number), managed.cluster.drained) == ("WAITING", {})
    managed.cluster.down = set()
    await managed.look()
    await managed.look()
    managed.cluster.down = {2}
    await managed.look()
    assert managed.log.phase(number) == "DRAINING", "what has begun goes on"


async def test_a_node_that_was_drained_and_left_the_cluster_file_ends_its_maintenance() -> None:
    managed = Managed()
    number = await managed.log.apply(1, drain=True, seconds=0)
    await managed.look()
    await managed.look()
    managed.cluster.drained[S[1]] = "rebuilt"
    await managed.look()
    del managed.cluster.plan.nodes[1]
    managed.cluster.publish()
    await managed.look()
    assert (managed.log.state.live, managed.log.state.ended[0].cause) == ({}, EndCause.LEFT)
    assert managed.cluster.drained == {S[1]: "rebuilt"}
    assert number == 1


async def test_what_waits_too_long_ends_and_what_is_away_too_long_ends_when_it_is_back() -> None:
    managed = Managed()
    gone, waits = await managed.log.apply(0, seconds=100), await managed.log.apply(1, seconds=100)
    await managed.look()
    managed.cluster.down = {0}
    managed.pass_time(101)
    await managed.look()
    assert list(managed.log.state.live) == [gone], "who waited waits no more, who is away stays"
    assert managed.log.state.ended[0].number == waits
    managed.cluster.down = set()
    await managed.look()
    assert managed.log.state.live == {}
    assert [each.cause for each in managed.log.state.ended] == [EndCause.EXPIRED, EndCause.EXPIRED]


async def test_a_manager_whose_clock_is_ahead_ends_nothing() -> None:
    managed = Managed()
    number = await managed.log.apply(0, seconds=100)
    await managed.look()
    managed.wall += 1000 * SECOND
    await managed.look()
    assert managed.log.phase(number) == "GRANTED"


async def test_a_drain_with_a_time_is_called_off_after_it() -> None:
    managed = Managed()
    await managed.log.apply(1, drain=True, seconds=100)
    await managed.look()
    await managed.look()
    managed.pass_time(101)
    await managed.look()
    assert [each.phase.name for each in managed.log.state.live.values()] == ["ENDING"]
    assert managed.cluster.drained
    await managed.look()
    assert (managed.log.state.live, managed.cluster.drained) == ({}, {})


async def test_a_manager_that_was_killed_between_its_steps_is_replaced_by_the_next_one() -> None:
    """Of each step: the command was proposed and nothing was done, or done and not proposed."""
    managed = Managed()
    number = await managed.log.apply(1, drain=True, seconds=0)
    await managed.log.propose(GrantMaintenance(number, managed.log.state.basis))
    await managed.cluster.begin(S[1])
    await managed.look()
    assert managed.log.commands.count("WithdrawMaintenance") == 0
    managed.cluster.drained[S[1]] = "rebuilt"
    await managed.look()
    await managed.log.propose(EndMaintenance(number, EndCause.CANCELLED))
    await managed.cluster.call_off(S[1])
    await managed.look()
    assert managed.log.state.live == {}


def test_a_cluster_without_such_a_log_says_what_to_do() -> None:
    class Without:
        class config:
            has_maintenances = False

    with pytest.raises(LogDeviceError, match=r"enabled = true in \[settings.maintenance\]") as raised:
        MaintenanceLog(Without())  # type: ignore[arg-type]
    assert raised.value.status is Status.NOTSUPPORTED
