"""Logs that are made, renamed and removed at run time, on simulated clusters that break: what the tree promises, checked, and rules left out, caught.

1. Equal versions of the tree are equal states, in all nodes and all clients.
2. No id is given twice.
3. An append that begins after `remove` returned is never acknowledged.
4. A log that was made is never said not to exist before somebody asks to remove it.
5. What was acknowledged of a log that is there is read.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from client.client import Client
from client.log_tree.client_log_tree import LogTreeEntry
from client.log_tree.state import LogTreeState
from client.log_tree.view import LogTreeView
from client.replica.applied_state import AppliedState
from client.replica.commands import StateVersion
from epoch_store.updaters import Retire
from logdevice_py import LSN, LogDeviceError, Record, SimCluster, SimulationFailed, Status
from logdevice_py.core.ids import TREE_LOG_ID_MIN
from server.log_tree import retirement
from tests.simulation.deliberate_fault import DeliberateFault

SEEDS = range(8)
HUNTED_MAX = 30
WORKERS = 3
STEPS = 14


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


class Checks:
    """What was promised so far, and whether it holds."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.states: dict[StateVersion, bytes] = {}
        self.compared = 0
        self.ids: dict[int, str] = {}
        """That were given, and to which path."""
        self.removed: set[int] = set()
        """First logs of groups of which `remove` returned."""
        self.doomed: set[int] = set()
        """First logs of groups that somebody asked to remove."""
        self.acknowledged: dict[int, set[bytes]] = {}

    def compare(self) -> None:
        """Every node that runs: its tree is that of all others of the version."""
        for node in self.cluster.machines.nodes.values():
            if node.root is not None and node.root.log_tree is not None:
                self._compare(node.root.log_tree.replica.state)

    def compare_client(self, client: Client) -> None:
        """A client as well."""
        assert client.log_tree is not None
        self._compare(client.log_tree.replica.state)

    def _compare(self, state: AppliedState[LogTreeState]) -> None:
        encoded = state.value.encode()
        before = self.states.setdefault(state.position, encoded)
        assert before == encoded, f"two trees of version {state.position}"
        self.compared += 1

    def made(self, entry: LogTreeEntry) -> None:
        """A group was made: all its ids are new."""
        for log in entry.logs:
            assert log not in self.ids, f"id {log} is given to {self.ids[log]} and to {entry.path}"
            self.ids[log] = entry.path

    async def append(self, client: Client, lo: int, payload: bytes) -> None:
        """Whatever comes of it must be allowed."""
        was_removed = lo in self.removed
        status = await outcome(client, lo, payload, self.cluster.rng.choice([0.5, 5, 20]))
        if status is Status.OK:
            assert not was_removed, f"an append to log {lo} that began after it was removed is acknowledged"
            self.acknowledged.setdefault(lo, set()).add(payload)
        elif status is Status.NOTFOUND:
            assert lo in self.doomed, f"log {lo} is there, and is said not to be"


async def outcome(client: Client, log: int, payload: bytes, timeout: float) -> Status:
    """What an append comes to."""
    try:
        await client.append(log, payload, timeout=timeout)
    except LogDeviceError as error:
        return error.status
    return Status.OK


class Worker:
    """A client that makes logs, uses those that it has heard of, and removes some."""

    def __init__(self, number: int, checks: Checks, known: list[LogTreeEntry]) -> None:
        self.number = number
        self.checks = checks
        self.known = known
        """Groups that some worker made, shared by all."""

    async def work(self) -> None:
        cluster = self.checks.cluster
        rng, done = cluster.rng, 0
        while done < STEPS:
            async with cluster.client() as client:
                while done < STEPS and rng.random() > 0.1:
                    done += 1
                    await self.step(client, done)
                    self.checks.compare()
                    self.checks.compare_client(client)
                    await asyncio.sleep(rng.uniform(0, 0.3))

    async def step(self, client: Client, number: int) -> None:
        checks, rng = self.checks, self.checks.cluster.rng
        kind = rng.random()
        if kind < 0.3 or not self.known:
            try:
                entry = await client.make_log_group(f"/w{self.number}-{number}", rng.randrange(1, 3), timeout=20)
            except LogDeviceError:
                return  # it took too long; nobody else takes this path
            checks.made(entry)
            self.known.append(entry)
            await checks.append(client, entry.logs[0], b"%d-%d" % (self.number, number))
        elif kind < 0.75:
            entry = rng.choice(self.known)
            await checks.append(client, entry.logs[0], b"%d-%d" % (self.number, number))
        elif kind < 0.85:
            await self.rename(client, rng.choice(self.known), number)
        else:
            await self.remove(client, rng.choice(self.known))

    async def rename(self, client: Client, entry: LogTreeEntry, number: int) -> None:
        try:
            found = await client.get_log_group(entry.logs[0], timeout=5)
            await client.rename(found.path, f"/renamed{self.number}-{number}", expect=found.version, timeout=5)
        except LogDeviceError:
            pass  # somebody removes it, or it takes too long: what matters is checked elsewhere

    async def remove(self, client: Client, entry: LogTreeEntry) -> None:
        lo = entry.logs[0]
        try:
            found = await client.get_log_group(lo, timeout=5)
            self.checks.doomed.add(lo)
            await client.remove(found.path, timeout=30)
        except LogDeviceError:
            return
        self.checks.removed.add(lo)


async def use_under_faults(cluster: SimCluster) -> Checks:
    checks = Checks(cluster)
    known: list[LogTreeEntry] = []
    await asyncio.gather(*(Worker(number, checks, known).work() for number in range(WORKERS)))
    await cluster.calm()
    async with cluster.client() as client:
        await client.make_log_group("/last", timeout=300)
        for entry in known:
            lo = entry.logs[0]
            await checks.append(client, lo, b"last")
            if lo not in checks.doomed:
                await read_all(client, lo, checks.acknowledged[lo])
        await asyncio.sleep(5)
        checks.compare()
        checks.compare_client(client)
    return checks


async def read_all(client: Client, lo: int, acknowledged: set[bytes]) -> None:
    tail = await client.tail_lsn(lo, timeout=120)
    found: set[bytes] = set()
    async with client.reader(lo, until=tail) as reader:
        while batch := await reader.read(timeout=120):
            found.update(record.payload for record in batch.records())
    assert acknowledged <= found, f"acknowledged in log {lo} and gone: {acknowledged - found}"


@pytest.mark.parametrize("seed", SEEDS)
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
