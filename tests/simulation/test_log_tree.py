"""Logs that are made, renamed and removed at run time, on simulated clusters that break; rules left out, caught."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from client.log_tree.state import LogTreeState
from client.log_tree.view import LogTreeView
from client.replica.replica import Replica
from epoch_store.updaters import Retire
from logdevice_py import LSN, LogDeviceError, Record, SimCluster, SimulationFailed, Status
from logdevice_py.core.ids import TREE_LOG_ID_MIN
from server.log_tree import retirement
from tests.simulation.deliberate_fault import DeliberateFault
from tests.simulation.tree_workers import STEPS, outcome, use_under_faults
from tests.slow import quick
from tests.unit.client.replica.registers import REGISTERS

SEEDS = range(8)
HUNTED_MAX = 30


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
            for name in ("/team/views", TREE_LOG_ID_MIN + 99):
                for reader in (other.reader(name), other.merged_reader(1, name)):
                    with pytest.raises(LogDeviceError) as raised:
                        async with reader:
                            pass
                    assert raised.value.status is Status.NOTFOUND
                with pytest.raises(LogDeviceError) as raised:
                    await other.known_logs(name, 1)
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
            with pytest.raises(
                LogDeviceError, match=r"there is no directory /teem: .+; did you mean /team\?"
            ) as raised:
                await other.make_log_group("/teem/views")
            assert raised.value.status is Status.NOTFOUND

    simulate(use, nodes=3, log_tree=True, virtual_seconds=120)


def test_a_reader_finds_a_log_that_was_made_before_reading_began(simulate: Callable[..., Any]) -> None:
    async def use(cluster: SimCluster) -> None:
        async with cluster.client() as one, cluster.client() as other:
            reader = other.reader("/a/1", until="tail")
            made = await one.make_log_group("/a", 2, {"single_copy_delivery": False})
            await one.append("/a/1", b"x")
            await one.append("/a/2", b"y")
            assert (reader.log, reader.next_lsn) == (0, LSN.OLDEST)
            assert repr(reader) == "<Reader of log /a/1: not open, until the tail, next is e0n1>"
            assert [item.payload async for item in reader if isinstance(item, Record)] == [b"x"]
            assert (reader.log, reader._stream.request.single_copy) == (made.lo, False)
            await reader.close()
        async with cluster.client() as third, third.merged_reader(made.lo, made.hi, until="tail") as merged:
            got = {(batch.log, payload) async for batch in merged for payload in batch.payloads}
            assert got == {(made.lo, b"x"), (made.hi, b"y")}

    simulate(use, nodes=3, log_tree=True, virtual_seconds=120)


def test_a_replica_waits_for_the_tree_that_has_its_logs(simulate: Callable[..., Any]) -> None:
    async def share(cluster: SimCluster) -> int:
        async with cluster.client() as first:
            await first.make_log_group("/registers", 2, parents=True)
        late = cluster.client()
        late.settings = replace(late.settings, log_tree_wait_us=0)  # opening it does not wait for the tree
        async with late, Replica(late, REGISTERS, "/registers/1", "/registers/2") as replica:
            await replica.caught_up(timeout=30)
            with pytest.raises(LogDeviceError) as raised:
                async with Replica(late, REGISTERS, "/registers/1", "/registers/3"):
                    pass
            assert raised.value.status is Status.NOTFOUND
        return 1

    assert simulate(share, seed=5, nodes=3, logs=1, log_tree=True) == 1


def test_snapshots_replace_commands_and_nobody_notices(simulate: Callable[..., Any]) -> None:
    async def use(cluster: SimCluster) -> int:
        async with cluster.client() as client:
            await cluster.stop_node(4)
            for number in range(60):
                await client.make_log_group(f"/g{number}")
                await asyncio.sleep(0.2)
            await asyncio.sleep(10)
        await cluster.start_node(4)
        await asyncio.sleep(5)
        roots = [node.root for node in cluster.machines.nodes.values()]
        trees = [root.log_tree for root in roots if root is not None and root.log_tree is not None]
        assert [len(tree.view.state) for tree in trees] == [60] * 5
        async with cluster.client() as client:
            await client.append("/g0", b"x")
            await client.append("/g59", b"x")
        return sum(tree.replica.metrics.snapshots_written for tree in trees)

    assert simulate(use, nodes=5, log_tree=True, virtual_seconds=300) > 2


@pytest.mark.parametrize("seed", quick(SEEDS, 3))
def test_the_tree_keeps_its_promises_whatever_breaks(simulate: Callable[..., Any], seed: int) -> None:
    checks = simulate(use_under_faults, seed=seed, nodes=5, logs=2, log_tree=True, faults="all", virtual_seconds=3000)
    assert len(checks.ids) > STEPS // 2
    assert checks.compared > len(checks.ids)


# Rules left out


def ids_follow_the_groups(original: Any) -> Any:
    def retire(self: LogTreeState, wanted: Any) -> None:
        original(self, wanted)
        self.next_id = max([TREE_LOG_ID_MIN, *(group.hi + 1 for group in self.groups())])  # type: ignore[assignment]

    return retire


def unread_is_absent(original: Any) -> Any:
    def is_absent(self: LogTreeView, log: int) -> bool:
        return self.state.group(log) is None  # type: ignore[arg-type]

    return is_absent


BROKEN = (
    DeliberateFault(
        "ids_follow_the_groups", "ids are given again", ids_follow_the_groups, ((LogTreeState, "_retire"),)
    ),
    DeliberateFault(
        "unread_is_absent", "what was not read counts as absent", unread_is_absent, ((LogTreeView, "is_absent"),)
    ),
)


def failures_of(run: Callable[[], object], expected: str) -> int:
    """1 when it fails as it should."""
    try:
        run()
    except SimulationFailed as failed:
        if isinstance(failed.__cause__, AssertionError) and re.search(expected, str(failed)):
            return 1
        raise
    return 0


@pytest.mark.parametrize("fault", BROKEN, ids=lambda fault: fault.name)
def test_a_few_seeds_catch_a_deliberate_fault(simulate: Callable[..., Any], fault: DeliberateFault) -> None:
    options: dict[str, Any] = {"nodes": 5, "logs": 2, "log_tree": True, "faults": "all", "virtual_seconds": 3000}
    with fault.planted():
        caught = any(
            failures_of(
                lambda seed=seed: simulate(use_under_faults, seed=seed, **options), "is given to|said not to be"
            )
            for seed in range(HUNTED_MAX)
        )
    assert caught, f"{fault.breaks}, and nothing shows it"


# A node that does not hear of the removal


async def append_where_nobody_heard(cluster: SimCluster) -> None:
    """A sequencer and a client that get no commands go on as if the log were there; then the node is gone that ended the log."""
    nodes = cluster.machines.nodes
    async with cluster.client() as one, cluster.client() as unaware:
        made = await one.make_log_group("/a", 20)
        homes = {log: (await one.sequencer(log)).node for log in made.logs}
        ending = homes[made.logs[0]]
        log, home = next((log, home) for log, home in homes.items() if home != ending)
        assert await outcome(unaware, log, b"before", 20) is Status.OK
        root, tree = nodes[home].root, unaware.log_tree
        assert root is not None
        assert root.log_tree is not None
        assert tree is not None
        root.log_tree.replica.stop()
        tree.replica.stop()
        await one.remove("/a", timeout=60)
        assert await outcome(unaware, log, b"after", 5) is not Status.OK, (
            "an append that began after remove is acknowledged"
        )
        await cluster.stop_node(ending)
        await asyncio.sleep(10)
        assert await outcome(unaware, log, b"later", 10) is not Status.OK, (
            "an append that began after remove is acknowledged"
        )


def nothing_is_ended(original: Any) -> Any:
    return lambda self, attributes, node, now: True


def not_disabled(original: Any) -> Any:
    return lambda self, current: current


ENDING_BROKEN = (
    DeliberateFault("nothing_is_ended", "removing ends no log", nothing_is_ended, ((retirement._EndingGroup, "look"),)),
    DeliberateFault(
        "not_disabled", "what is removed is recovered, not disabled", not_disabled, ((Retire, "__call__"),)
    ),
)


def test_nobody_acknowledges_to_a_removed_log_who_did_not_hear_of_that(simulate: Callable[..., Any]) -> None:
    simulate(append_where_nobody_heard, nodes=5, log_tree=True, virtual_seconds=600)


@pytest.mark.parametrize("fault", ENDING_BROKEN, ids=lambda fault: fault.name)
def test_a_log_that_is_not_ended_shows(simulate: Callable[..., Any], fault: DeliberateFault) -> None:
    with fault.planted():
        run = partial(simulate, append_where_nobody_heard, nodes=5, log_tree=True, virtual_seconds=600)
        assert failures_of(run, "that began after remove is acknowledged"), fault.breaks
